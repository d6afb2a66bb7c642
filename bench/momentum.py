#!/usr/bin/env python3
"""Which outer momentum local updates want: a small transformer from nothing, and adapters beside a trained one, in 6 to 200
rounds of as many steps in all, each with the best inner rate of three.

    bench/momentum.py build/thinwire --text shakespeare.txt --then ptb.train.txt > momentum.json

The whole network learns the first text. The adapters learn the second one, without the characters that the first lacks,
beside a network that has learned the first. Prints one JSON object. Its "runs" have the test loss in nats a character of each
task, number of rounds and arm, with the inner rate that was best, and the cosine, gain and energy of the last round. Its "arms"
say by how many per cent that is above dense training, whose rate is the best of three as well."""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

from made import as_json, made

STEPS = 600
ROUNDS = (6, 20, 50, 200)
ARMS = ((1, 0), (1, 0.5), (0.7, 0.5), (0.7, 0.9))  # outer rate and momentum
RATES = {"whole": (0.003, 0.006, 0.012), "adapters": (0.005, 0.01, 0.02)}
CHARACTERS = 1_200_000  # of each text


def run(program, out, *options):
    words = [program, "train", "lm", "--workers", 2, "--batch", 8, "--steps", STEPS, "--warmup", 40, "--quiet", "--out", out, *options]
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, words))}: {done.stderr}")
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    last = [line for line in lines if line["kind"] == "step"][-1]
    return {"loss": json.loads((out / "summary.json").read_text())["loss"],
            **{name: last[name] for name in ("cosine", "gain", "energy") if name in last}}


def best(program, folder, task, sync, seed):
    """Of the inner rates."""
    tried = []
    for rate in RATES[task]:
        with tempfile.TemporaryDirectory() as out:
            options = ("--init-from", folder / "base", "--lora", "rank=8") if task == "adapters" else sizes()
            text = folder / ("then.txt" if task == "adapters" else "first.txt")
            tried.append({**run(program, pathlib.Path(out) / "run", "--data", text, *options, "--lr", rate, "--sync", sync,
                                "--seed", seed), "rate": rate})
    found = min(tried, key=lambda one: one["loss"])
    print(f"{task}, {sync}: {found['loss']:.3f}", file=sys.stderr, flush=True)
    return found


def arms(runs):
    """A row of a table for each task and arm."""
    rows = []
    for task in RATES:
        dense = next(run["loss"] for run in runs if run["task"] == task and run["sync"] == "allreduce")
        for rate, momentum in ARMS:
            found = {run["rounds"]: run["loss"] for run in runs
                     if run["task"] == task and (run.get("outer_lr"), run.get("outer_momentum")) == (rate, momentum)}
            rows.append({"task": task, "outer_lr": rate, "outer_momentum": momentum,
                         **{f"above_in_{rounds}": 100 * (found[rounds] / dense - 1) for rounds in ROUNDS}})
    return rows


def sizes():
    return "--model", "transformer", "--unit", "char", "--hidden", 48, "--layers", 2, "--bptt", 48


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--text", type=pathlib.Path, required=True)
    parser.add_argument("--then", type=pathlib.Path, required=True)
    parser.add_argument("--seed", type=int, default=1)
    o = parser.parse_args()
    runs = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        first = o.text.read_text()[:CHARACTERS]
        known = set(first)
        (folder / "first.txt").write_text(first)
        (folder / "then.txt").write_text("".join(c for c in o.then.read_text()[:CHARACTERS] if c in known))
        run(o.program, folder / "base", "--data", folder / "first.txt", *sizes(), "--lr", 0.006, "--seed", o.seed)
        for task in RATES:
            runs.append({"task": task, "sync": "allreduce", **best(o.program, folder, task, "allreduce", o.seed)})
            for rounds in ROUNDS:
                for rate, momentum in ARMS:
                    sync = f"diloco:every={STEPS // rounds},outer_lr={rate},outer_momentum={momentum}"
                    runs.append({"task": task, "rounds": rounds, "outer_lr": rate, "outer_momentum": momentum, "sync": sync,
                                 **best(o.program, folder, task, sync, o.seed)})
    print(as_json({"made": made(o.program), "steps": STEPS, "seed": o.seed, "rates": RATES, "runs": runs, "arms": arms(runs)}))


if __name__ == "__main__":
    main()
