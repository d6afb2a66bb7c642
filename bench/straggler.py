#!/usr/bin/env python3
"""What a slow worker costs each scheme: seconds until the training loss has fallen to a level, one worker slowed down.

    bench/straggler.py                                       allreduce and adpsgd-random, rank 3 of 4 ten times slower
    bench/straggler.py --loss 0.5 --slow 3:10 allreduce adpsgd-random adpsgd-fixed dpsgd
    bench/straggler.py --train "--model cnn --lr 0.03"       with other options of thinwire train image

The loss is rank 0's, a mean over the last --window recorded steps, each of its own batch; the clock begins with the
first step. A run is interrupted as soon as it is there. Prints a table.
"""
import argparse
import collections
import json
import pathlib
import shlex
import signal
import subprocess
import sys
import tempfile


def lines_of(path, process):
    """The lines of a growing file, until the process that writes it has ended."""
    while not path.exists() and process.poll() is None:
        try:
            process.wait(0.05)
        except subprocess.TimeoutExpired:
            pass
    if not path.exists():
        return
    with path.open() as file:
        while True:
            line = file.readline()
            if line.endswith("\n"):
                yield json.loads(line)
            elif process.poll() is not None:
                return
            else:
                try:
                    process.wait(0.05)
                except subprocess.TimeoutExpired:
                    pass


def time_to_loss(options, spec, folder):
    """{"seconds", "steps"} when the loss was reached, or the lowest loss seen."""
    words = [options.thinwire, "train", "image", "--quiet", "--workers", options.workers, "--sync", spec, "--out", folder,
             "--seed", options.seed, "--epochs", options.epochs]
    words += ["--slow", options.slow] if options.slow else []
    process = subprocess.Popen([str(word) for word in words] + shlex.split(options.train))
    recent, begin, lowest = collections.deque(maxlen=options.window), None, float("inf")
    try:
        for line in lines_of(folder / "metrics.jsonl", process):
            if line.get("kind") != "step":
                continue
            begin = line["seconds"] if begin is None else begin
            recent.append(line["loss"])
            mean = sum(recent) / len(recent)
            if len(recent) == options.window:
                lowest = min(lowest, mean)
                if mean <= options.loss:
                    return {"sync": spec, "seconds": line["seconds"] - begin, "steps": line["step"]}
        return {"sync": spec, "seconds": None, "lowest": lowest}
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


def parse_line():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("specs", nargs="*", default=["allreduce", "adpsgd-random"], metavar="SPEC")
    parser.add_argument("--thinwire", default="build/thinwire", help="the program (default build/thinwire)")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--slow", default="3:10", help="as --slow of thinwire train; '' slows nobody (default 3:10)")
    parser.add_argument("--loss", type=float, default=0.45, help="the level (default 0.45)")
    parser.add_argument("--window", type=int, default=10, help="recorded steps, every tenth, in a mean (default 10)")
    parser.add_argument("--epochs", type=int, default=3, help="to give up after (default 3)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--train", default="", metavar="OPTIONS", help="more options of thinwire train, in one word")
    return parser.parse_args()


def main():
    options = parse_line()
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for i, spec in enumerate(options.specs):
            results.append(time_to_loss(options, spec, pathlib.Path(folder) / str(i)))
    first = results[0]["seconds"]
    print(f"{options.workers} workers, --slow {options.slow or 'nobody'}, to a training loss of {options.loss}\n")
    print("| sync | seconds | rank 0's steps | of the first |\n|---|---:|---:|---:|")
    for result in results:
        if result["seconds"] is None:
            print(f"| `{result['sync']}` | never: {result['lowest']:.3f} was the lowest | - | - |")
        else:
            ratio = f"{result['seconds'] / first:.2f}" if first else "-"
            print(f"| `{result['sync']}` | {result['seconds']:.1f} | {result['steps']} | {ratio} |")
    return 0 if all(result["seconds"] is not None for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
