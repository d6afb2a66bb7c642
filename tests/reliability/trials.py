"""What the scripts of seeded trials share: their options, the loop over trials, and what is kept of one that fails."""
import argparse
import collections
import json
import pathlib
import shutil
import subprocess
import tempfile


class Fault(Exception):
    """What a trial found."""


def options_parser():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    return parser


def make_shared(name):
    """The folder of all trials; run_trials removes it unless one fails."""
    return pathlib.Path(tempfile.mkdtemp(prefix=f"thinwire-{name}-"))


def run_trials(options, shared, begin):
    """begin(number, folder) gives a trial's description and what takes it, which returns the outcomes to be counted.
    Returns the program's exit code."""
    counts, failed = collections.Counter(), 0
    for number in range(options.first, options.first + options.trials):
        folder = pathlib.Path(tempfile.mkdtemp(prefix=f"trial-{number}-", dir=shared))
        description, take = begin(number, folder)
        try:
            counts.update(take())
            shutil.rmtree(folder)
        except (Fault, subprocess.TimeoutExpired) as fault:
            failed += 1
            print(f"trial {number}: {description}: {fault} (kept: {folder})", flush=True)
    print(json.dumps({"trials": options.trials, "failed": failed, "outcomes": dict(sorted(counts.items()))}))
    if not failed:
        shutil.rmtree(shared)
    return failed != 0
