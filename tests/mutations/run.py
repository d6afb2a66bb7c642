#!/usr/bin/env python3
"""Does a test notice? Makes each mistake of the tables beside this file in a copy of the tree, builds what is needed,
runs the suites that should notice, and fails unless one of them does.

    tests/mutations/run.py             all of them; --report FILE writes what noticed each, --keep takes over what an
                                       earlier run found of files that have not changed since
    tests/mutations/run.py --check     only that each line to be changed is still there, once

A table (*.txt) is a file's path with the suites that should notice its mistakes, and below it these:

    trainer/train/worker.c: train_step

        breaks: the mean gradient is not clipped
        old:    clip_norm(w->learner->gradients, w->learner->parameter_count, w->settings.clip);
        new:    (void)w;

A row without `new` takes the statement away. A mistake that others should notice names them in a line of its own,
`suites: train_best train_run`. `old` is part of one line and occurs once in the file. A # begins a comment line. A
suite of Python may be followed by a colon and one of its cases, python_library:LibraryTest.test_state_goes_round, which
alone is then run."""
import argparse
import hashlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
LEAST = 60
SKIPPED = 77  # what a suite ends with that lacks something here, as ctest is told
KEYS = ("breaks", "old", "new", "suites")


class Row(dict):
    """One mistake: file, breaks, old, new, suites, and the table's line that it begins at."""

    def name(self):
        return f"{self['table']}:{self['line']}: {self['breaks']}"

    def key(self):
        """The same for the same mistake in the same file, as it is when first asked."""
        if "key" not in self:
            parts = ((ROOT / self["file"]).read_text(), self["old"], self["new"], self["suites"])
            self["key"] = hashlib.sha256("\0".join(parts).encode()).hexdigest()
        return self["key"]


def read_table(path):
    """The rows of a table; a complaint is an exception with the line."""
    rows, file, usual = [], None, ""
    for number, text in enumerate(path.read_text().splitlines(), 1):
        if not text.strip() or text.startswith("#"):
            continue
        if not text.startswith(" "):
            file, _, usual = (part.strip() for part in text.partition(":"))
            continue
        key, colon, value = text.strip().partition(":")
        if not colon or key not in KEYS or file is None:
            raise ValueError(f"{path.name}:{number}: not one of {', '.join(KEYS)}, below a file")
        if key == "breaks":
            rows.append(Row(table=path.name, line=number, file=file, usual=usual))
        if not rows or key in rows[-1]:
            raise ValueError(f"{path.name}:{number}: {key} comes twice, or before breaks")
        rows[-1][key] = value.strip()
    for row in rows:
        if usual := row.pop("usual"):
            row.setdefault("suites", usual)
        row.setdefault("new", "pass" if row["file"].endswith(".py") else "(void)0;")
        for key in KEYS:
            if key not in row:
                raise ValueError(f"{path.name}:{row['line']}: {key} is missing")
    return rows


def read_tables():
    return [row for path in sorted(HERE.glob("*.txt")) for row in read_table(path)]


def complaint(row, root):
    """What is wrong with a row of the table, or None."""
    path = root / row["file"]
    if not path.is_file():
        return f"{row['file']} is not there"
    if row["new"] == "(void)0;" and not re.sub(r"/\*.*?\*/", "", row["old"]).rstrip().endswith(";") and path.suffix == ".c":
        return "a row without `new` takes a whole statement away"
    found = path.read_text().count(row["old"])
    if found != 1:
        return f"{row['file']} has it {found} times, not once: {row['old']}"
    if row["new"] == row["old"]:
        return "old and new are the same"
    return None


def missing_cases(rows):
    """A case that is not there fails whatever is broken, and so would notice everything."""
    text = "".join(path.read_text() for folder in ("tests", "python/tests") for path in (ROOT / folder).rglob("*.py"))
    classes = re.findall(r"^class (\w+)(.*?)(?=^\S)", text, re.M | re.S)
    for row in rows:
        for suite, case in (words.split(":") for words in suites_of(row) if ":" in words):
            kind, _, test = case.partition(".")
            if not any(name == kind and f"def {test}" in body for name, body in classes):
                yield f"{row.name()}: {suite} has no {case}"


def check(rows):
    """Only looks; the number of complaints."""
    told = [f"{row.name()}: {text}" for row in rows if (text := complaint(row, ROOT))] + list(missing_cases(rows))
    names = [row["breaks"] for row in rows]
    told += [f"'{name}' is there twice" for name in sorted({name for name in names if names.count(name) > 1})]
    if len(rows) < LEAST:
        told.append(f"{len(rows)} mutations; there should be at least {LEAST}")
    print("\n".join(told) if told else f"{len(rows)} mutations can be made")
    return len(told)


class Copy:
    """The tree's files in a folder of their own, with a build."""

    def __init__(self, folder, jobs):
        self.source, self.build, self.jobs = folder / "source", folder / "build", jobs
        self.suites = {}

    def refresh(self):
        """Copies what has changed, so that little has to be built again."""
        names = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT,
                               capture_output=True, check=True).stdout.decode().split("\0")
        wanted = {name for name in names if name and (ROOT / name).is_file()}
        for name in wanted:
            old, new = ROOT / name, self.source / name
            if new.is_file() and new.read_bytes() == old.read_bytes():
                continue
            new.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(old, new)
        for path in [path for path in self.source.rglob("*") if path.is_file()]:
            if str(path.relative_to(self.source)) not in wanted:
                path.unlink()
        subprocess.run([self.source / "tools/configure", self.build], cwd=self.source, check=True)

    def make(self, targets):
        """Whether it builds, and what was said."""
        done = subprocess.run(["ninja", "-C", self.build, f"-j{self.jobs}", *targets], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True)
        return done.returncode == 0, done.stdout

    def find_suites(self):
        """Asks ctest for every suite's command and environment."""
        listed = subprocess.run(["ctest", "--show-only=json-v1"], cwd=self.build, capture_output=True, text=True,
                                check=True).stdout
        for test in json.loads(listed)["tests"]:
            properties = {entry["name"]: entry["value"] for entry in test["properties"]}
            variables = dict(text.split("=", 1) for text in properties.get("ENVIRONMENT", []))
            variables.pop("TEST_PART", None)  # what make test leaves out may be what notices
            self.suites[test["name"]] = (test.get("command", []), properties["WORKING_DIRECTORY"], variables)

    def targets(self, suites):
        """The files of the build that the commands of these suites run."""
        suites = [name_of(suite) for suite in suites]
        unknown = [suite for suite in suites if suite not in self.suites]
        if unknown:
            sys.exit(f"there is no suite {', '.join(unknown)}")
        inside = f"{self.build}/"
        return sorted({word[len(inside):] for suite in suites for word in self.suites[suite][0]
                       if word.startswith(inside)})

    def run(self, suites, patience):
        """Runs suites until one fails: what noticed, as "suite [`case`]"; None when all passed."""
        for suite in suites:
            command, folder, variables = self.suites[name_of(suite)]
            command = command + suite.split(":")[1:]
            process = subprocess.Popen(command, cwd=folder, env={**os.environ, **variables}, text=True,
                                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
            try:
                output, ending = process.communicate(timeout=patience)[0], "crashed"
            except BaseException as reason:  # one that does not end would go on without this program
                os.killpg(process.pid, signal.SIGKILL)
                if not isinstance(reason, subprocess.TimeoutExpired):
                    raise
                output, ending = process.communicate()[0], "did not end"
            if process.returncode == SKIPPED:
                sys.exit(f"{name_of(suite)} cannot run here: {output.strip()}")
            if process.returncode != 0:
                return f"{name_of(suite)} {cases(output) or ending}"
        return None


def name_of(suite):
    return suite.split(":")[0]


def cases(output):
    """The cases of a suite that failed, as cmocka and unittest print them."""
    found = re.findall(r"^\[  FAILED  \] ([a-z]\w+)$", output, re.M)
    found += re.findall(r"^(?:FAIL|ERROR): (test_\w+) \(", output, re.M)
    names = list(dict.fromkeys(found))
    more = f" and {len(names) - 2} more" if len(names) > 2 else ""
    return "[" + ", ".join(f"`{name}`" for name in names[:2]) + more + "]" if names else ""


def suites_of(row):
    return row["suites"].split()


def try_row(copy, row, patience):
    """Who notices, or None. One that does not compile ends the run: it breaks nothing."""
    path = copy.source / row["file"]
    whole = path.read_text()
    try:
        path.write_text(whole.replace(row["old"], row["new"]))
        built, output = copy.make(copy.targets(suites_of(row)))
        if not built:
            sys.exit(f"{row.name()}: does not compile\n{output[-3000:]}")
        return copy.run(suites_of(row), patience)
    finally:
        path.write_text(whole)


def sound(copy, rows, patience):
    """Nothing may fail before anything is broken."""
    suites = list(dict.fromkeys(suite for row in rows for suite in suites_of(row)))
    copy.targets(suites) # all of them are there
    print(f"{len(rows)} mutations, {len(suites)} suites", flush=True)
    for suite in suites:
        found = copy.run([suite], patience)
        if found:
            sys.exit(f"{found} fails without any mutation")


HEAD = """# Mutations: does a test notice?

A test that cannot fail is none. So each of these mistakes was made in the code, one at a time, and the suites that
should notice were built and run. `make mutations` does it again, in a copy of the tree, and writes this page. This time
it took {minutes} minutes. It is not part of `make test`, which only checks that every line to be changed is still there
(mutations_table). The mistakes stand in tests/mutations. Of the suites that may notice a mistake, the first that does
is named, with the cases that failed. A suite that did not end was stopped.

All {count} were noticed.
"""


def write_report(path, rows, results):
    text = HEAD.format(count=len(rows), minutes=max(1, round(results.seconds(rows) / 60)))
    file = None
    for row in rows:
        if row["file"] != file:
            file = row["file"]
            text += f"\n## {file}\n\n| what is broken | noticed by |\n|---|---|\n"
        text += f"| {row['breaks']} | {results.noticed(row)} |\n"
    path.write_text(text)


class Results:
    """What was found, in a file, so that a long run that is interrupted can be taken up."""

    def __init__(self, path, keep):
        self.path = path
        self.found = json.loads(path.read_text()) if keep and path.is_file() else {}

    def has(self, row):
        return row.key() in self.found

    def put(self, row, noticed, seconds):
        self.found[row.key()] = [noticed, seconds]
        self.path.write_text(json.dumps(self.found, indent=1))

    def noticed(self, row):
        return self.found[row.key()][0]

    def seconds(self, rows):
        return sum(self.found[row.key()][1] for row in rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--check", action="store_true", help="only look at the tables")
    parser.add_argument("--only", default="", help="mutations whose file or text has this in it")
    parser.add_argument("--folder", type=pathlib.Path, default=ROOT / "build-mutations", help="where the copy goes")
    parser.add_argument("--report", type=pathlib.Path, help="the page to write when all were noticed")
    parser.add_argument("--keep", action="store_true", help="take over what an earlier run found")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--patience", type=int, default=120, help="seconds for a suite")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("asked to end"))
    rows = read_tables()
    if options.check:
        sys.exit(check(rows) > 0)
    rows = [row for row in rows if options.only in row["file"] or options.only in row["breaks"]]
    rotten = [f"{row.name()}: {text}" for row in rows if (text := complaint(row, ROOT))]
    if rotten:
        sys.exit("\n".join(rotten))
    copy = Copy(options.folder.resolve(), options.jobs)
    results = Results(copy.build.parent / "results.json", options.keep)
    copy.refresh()
    built, output = copy.make(["all"])
    if not built:
        sys.exit(output[-3000:])
    copy.find_suites()
    todo = [row for row in rows if not results.has(row)]
    sound(copy, todo, options.patience)
    for row in todo:
        start = time.monotonic()
        found = try_row(copy, row, options.patience)
        seconds = time.monotonic() - start
        print(f"{seconds:5.0f} s  {row['file']}: {row['breaks']}: {found or 'NOBODY NOTICED'}", flush=True)
        if found:
            results.put(row, found, seconds)
    survivors = [row.name() for row in rows if not results.has(row)]
    if survivors:
        sys.exit(f"{len(survivors)} of {len(rows)} survived:\n" + "\n".join(survivors))
    print(f"all {len(rows)} were noticed")
    if options.report:
        write_report(options.report, rows, results)


if __name__ == "__main__":
    main()
