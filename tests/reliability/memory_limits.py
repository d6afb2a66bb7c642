#!/usr/bin/env python3
"""memory_limits.py PROGRAM [--runs N --seed S]: trains under limits of address space, as `ulimit -v` sets them.

Under each the run ends well, with the bits of a run without a limit, or with one line and exit code 2: never by a
signal. Limits are drawn at random between the least under which the program starts at all and one that is ample."""
import argparse
import collections
import json
import pathlib
import random
import resource
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "cli"))
from support import PROGRAM, write_data  # noqa: E402

SKIPPED = 77
MIB = 1 << 20
AMPLE = 400


def run(words, mib):
    def limit():
        if mib:
            resource.setrlimit(resource.RLIMIT_AS, (mib * MIB, mib * MIB))
    return subprocess.run([str(PROGRAM), *map(str, words)], capture_output=True, text=True, timeout=240,
                          preexec_fn=limit)


def least_to_start():
    """The loader and what runs before main() have words and codes of their own."""
    return next((mib for mib in range(16, AMPLE, 2) if run(["--version"], mib).returncode == 0), None)


def check(done, wanted):
    """What became of the run: its one line, or "done"."""
    told = done.stderr.splitlines()
    if done.returncode == 0:
        assert not told and json.loads(done.stdout)["weights_crc32c"] == wanted, (told, done.stdout)
        return "done"
    assert done.returncode == 2 and len(told) == 1, (done.returncode, told)
    return told[0]


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--runs", type=int, default=24)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    generator, least, ends = random.Random(given.seed), least_to_start(), collections.Counter()
    if least is None:
        print("the program does not start under a limit: a sanitizer needs all addresses")
        sys.exit(SKIPPED)
    with tempfile.TemporaryDirectory(prefix="thinwire-limits-") as folder:
        data = write_data(pathlib.Path(folder) / "data")
        for workers in (1, 2):
            words = ["train", "image", "--data", data, "--batch", 8, "--steps", 2, "--workers", workers, "--quiet",
                     "--json", "-", "--out", "none"]
            wanted = json.loads(run(words, 0).stdout)["weights_crc32c"]
            for _ in range(given.runs // 2):
                mib = generator.randint(least, AMPLE)
                try:
                    ends[check(run(words, mib), wanted)] += 1
                except AssertionError as failure:
                    raise SystemExit(f"seed {given.seed}, {workers} workers, {mib} MiB: {failure}")
    for end, count in ends.most_common():
        print(f"{count:6} {end}")


main()
