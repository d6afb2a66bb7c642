#!/usr/bin/env python3
"""What the documents name exists: files and headings that they link to, paths, tests, commands and their options. Pages
for users name no tests: docs/how-we-know.md does.

usage: documents.py BUILD [THINWIRE]

BUILD is a configured build folder, which knows the tests. With THINWIRE, the program, its commands are looked at, too."""
import functools
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDERS = r"(?:bench|docs|examples|fuzz|include|python|src|tests|tools|trainer)"
HISTORY = "CHANGELOG.md"  # it names what there was, too
KNOWN = "how-we-know.md"
NAME_TESTS = re.compile(r"docs/(?:architecture|reliability|abi|wire-format|how-to-.*)\.md|C[A-Z]+\.md")
FENCE = re.compile(r"^\s*```.*?^\s*```", re.M | re.S)
WORD = r"[a-z][a-z0-9_]*\*?"
TESTS = re.compile(rf"\(tests? ({WORD}(?: \[[^\]]*\])?(?:,? (?:and )?{WORD}(?: \[[^\]]*\])?)*)\)")


def documents():
    return sorted(path for pattern in ("*.md", "docs/*.md", "python/*.md", "examples/**/*.md") for path in ROOT.glob(pattern))


def anchor(heading):
    """The name that a heading gets on GitHub."""
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
    return re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")


@functools.lru_cache
def anchors(path):
    text = FENCE.sub("", path.read_text())
    return {anchor(heading) for heading in re.findall(r"^#+ +(.*)$", text, re.M)}


def check_links(path, text):
    for target in re.findall(r"\]\(([^)\s]+)\)", FENCE.sub("", text)):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, heading = target.partition("#")
        file = (path.parent / name).resolve() if name else path
        if not file.exists():
            yield f"links to {target}, which does not exist"
        elif heading and heading not in anchors(file):
            yield f"links to {target}, but {file.name} has no such heading"


def check_paths(text):
    for name in re.findall(rf"`(?:sudo )?({FOLDERS}/[\w./*-]*)", text):
        if not list(ROOT.glob(re.sub(r"\b[A-Z]+\b", "*", name.rstrip("/.")))):
            yield f"names {name}, which does not exist"


def check_places(text):
    """What is said to be in a file is named there."""
    for name, file in re.findall(rf"\b(\w+_\w+)`?(?: in |, | \()`?({FOLDERS}/[\w./-]+\.[ch])\b", " ".join(text.split())):
        if (ROOT / file).exists() and not re.search(rf"\b{name}\b", (ROOT / file).read_text()):
            yield f"looks for {name} in {file}, which does not name it"


def named_tests(text):
    for names in TESTS.findall(" ".join(text.split())):
        yield from re.findall(WORD, re.sub(r"\[[^\]]*\]| and ", " ", names))


def check_functions(text):
    """How many the front page says that thinwire.h has."""
    there = len(re.findall("^TW_API ", (ROOT / "include/thinwire/thinwire.h").read_text(), re.M))
    for said in re.findall(r"thinwire\.h\) is the manual\. Its (\d+) functions", text):
        if int(said) != there:
            yield f"tells of {said} functions of thinwire.h, which has {there}"


def check_tests(text, tests):
    for name in named_tests(text):
        if not any(re.fullmatch(name.replace("*", ".*"), test) for test in tests):
            yield f"names the test {name}, which does not exist"


def tests_in_tables(text):
    """The last cell of each row of the tables whose last column is headed "test"."""
    for rows in re.findall(r"^\|.* \| test \|\n\|-.*\n((?:\|.*\n)+)", text, re.M):
        yield from (row.strip("| ").rpartition(" | ")[2] for row in rows.splitlines())


@functools.lru_cache
def words_of_tests():
    files = [path for folder in ("tests", "python/tests") for path in (ROOT / folder).rglob("*")
             if path.suffix in (".c", ".h", ".py", ".txt", ".cmake", ".sh")]
    return frozenset(word for path in files for word in re.findall(r"\w+", path.read_text(errors="replace")))


def check_cases(text):
    """Each case that stands in brackets behind its test exists."""
    for names in re.findall(r"\[(`\w+`(?:,\s+`\w+`)*)\]", FENCE.sub("", text)):
        for case in re.findall(r"\w+", names):
            if case not in words_of_tests():
                yield f"names the case {case}, which no test has"


@functools.lru_cache
def extra_cases():
    """Of suites in Python those that only NAME_extra has."""
    files = [*(ROOT / "tests").rglob("*.py"), *(ROOT / "python/tests").glob("*.py")]
    return frozenset(case for path in files for case in re.findall(r"@parts\.extra\n(?: +@.*\n)* +def (test_\w+)", path.read_text()))


def check_parts(text):
    """A case that is left out of NAME is named with NAME_extra."""
    for suite, names in re.findall(r"\b((?:cli|python)_\w+) \[([^\]]*)\]", text):
        for case in re.findall(r"\w+", names):
            if case in extra_cases() and not suite.endswith("_extra"):
                yield f"names the case {case} of {suite}, which only {suite}_extra has"


def check_known(text, tests):
    """Each test of the tables exists."""
    for names in tests_in_tables(text):
        for name in re.sub(r" \[[^]]*\]", "", names).split(", "):
            if not any(re.fullmatch(name.replace("*", ".*"), test) for test in tests):
                yield f"names the test {name}, which does not exist"


def check_no_tests(text, tests):
    outside = set(re.findall(r"(?<![\w/.-])[\w-]+(?![\w/.-])", re.sub(r"`[^`]*`", "", FENCE.sub("", text))))
    yield from (f"names the test {test}, which belongs into {KNOWN}" for test in tests if "_" in test and test in outside)
    yield from (f"names the case {case}, which belongs into {KNOWN}" for case in re.findall(r"\[`(\w+)`", text)
                if case in words_of_tests() and case.count("_") > 1)


def blocks(text):
    """The lines of fenced and indented blocks, each with those that continue it."""
    text = re.sub(r"\\\n\s*", " ", text)
    return "\n".join(FENCE.findall(text) + re.findall(r"^ {4}.*$", text, re.M))


def check_scripts(text):
    for name in re.findall(rf"^\s*(?:sudo )?({FOLDERS}/[\w./-]+\.(?:py|sh))\b", blocks(text), re.M):
        if not os.access(ROOT / name, os.X_OK):
            yield f"runs {name}, which is no program: it lacks the bit"


def commands(text):
    """The command lines of thinwire's, as lists of words; not those of `python -m thinwire`."""
    for line in re.findall(r"^\s*(?:\S+ )*?(?<!-m )(?:\S*/)?thinwire ([a-z].*)$", blocks(text), re.M):
        yield shlex.split(line, comments=True)


@functools.lru_cache
def help_page(program, words):
    run = subprocess.run([program, *words, "--help"], capture_output=True, text=True, timeout=60, check=False)
    return run.stdout if run.returncode == 0 else ""


def check_command(program, words):
    page = help_page(program, tuple(words[:2])) or help_page(program, (words[0],))
    if not page:
        yield f"shows thinwire {' '.join(words)}, and thinwire {words[0]} is no command"
        return
    for option in {word.split("=")[0] for word in words if re.match(r"--[a-z]", word)}:
        if not re.search(rf"(?<![\w-]){option}(?![\w-])", page):
            yield f"shows thinwire {' '.join(words)}, but that has no option {option}"


def complaints(path, tests, program):
    text = path.read_text()
    yield from check_links(path, text)
    if path.name == HISTORY:
        return
    yield from check_paths(text)
    yield from check_scripts(text)
    yield from check_functions(text)
    yield from check_places(text)
    yield from check_tests(text, tests)
    names_tests = NAME_TESTS.fullmatch(str(path.relative_to(ROOT)))
    if path.name == KNOWN or names_tests:
        yield from check_cases(text)
    if path.name == KNOWN:
        yield from check_parts(text)
        yield from check_known(text, tests)
    elif not names_tests:
        yield from check_no_tests(text, tests)
    for words in commands(text) if program else ():
        yield from check_command(program, words)


def tests_of(build):
    listed = json.loads(subprocess.check_output(["ctest", "--show-only=json-v1"], cwd=build, text=True))
    return [test["name"] for test in listed["tests"]]


def main():
    build, program = sys.argv[1], os.path.abspath(sys.argv[2]) if len(sys.argv) > 2 else None
    tests = tests_of(build)
    wrong = [f"{path.relative_to(ROOT)} {complaint}" for path in documents() for complaint in complaints(path, tests, program)]
    print("\n".join(wrong) or f"{len(documents())} documents, {len(tests)} tests: all that is named exists")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
