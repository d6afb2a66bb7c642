#!/usr/bin/env python3
"""Which outer momentum local updates want: a small transformer from nothing, and adapters beside a trained one, in 6 to 200
rounds of as many steps in all.

    bench/momentum.py build/thinwire --text shakespeare.txt --then ptb.train.txt > momentum.json

The whole network learns the first text. The adapters learn the second one, without the characters that the first lacks,
beside a network that has learned the first. Each arm takes the inner rate, of five, that had the least validation loss with
another seed. Prints one JSON object. Its "runs" have the test losses, in nats a character, of each task, number of rounds and
arm, with that rate, and the cosine, gain and energy of the last round. Its "arms" say by how many per cent the mean of the
losses is above that of dense training, whose rate is chosen likewise."""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

from made import as_json, made

STEPS = 600
ROUNDS = (6, 20, 50, 200)
ARMS = ((1, 0), (1, 0.5), (0.7, 0.5), (0.7, 0.9))  # outer rate and momentum
RATES = {"whole": (0.0015, 0.003, 0.006, 0.012, 0.024), "adapters": (0.0025, 0.005, 0.01, 0.02, 0.04)}
TUNING_SEED = 100
CHARACTERS = 1_200_000  # of each text


def run(program, out, *options):
    words = [program, "train", "lm", "--workers", 2, "--batch", 8, "--steps", STEPS, "--warmup", 40, "--quiet", "--out", out, *options]
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, words))}: {done.stderr}")
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    last = [line for line in lines if line["kind"] == "step"][-1]
    summary = json.loads((out / "summary.json").read_text())
    return {"loss": summary["loss"], "validation": (summary["validation"] or summary)["loss"],
            **{name: last[name] for name in ("cosine", "gain", "energy") if name in last}}


def tuned(program, folder, task, sync, seeds):
    """The losses with these seeds at the best of the inner rates."""
    text = folder / ("then.txt" if task == "adapters" else "first.txt")
    shape = ("--init-from", folder / "base", "--lora", "rank=8") if task == "adapters" else sizes()

    def at(rate, seed):
        with tempfile.TemporaryDirectory() as out:
            return run(program, pathlib.Path(out) / "run", "--data", text, *shape, "--lr", rate, "--sync", sync, "--seed", seed)

    rate = min(RATES[task], key=lambda rate: at(rate, TUNING_SEED)["validation"])
    found = [at(rate, seed) for seed in seeds]
    losses = [one["loss"] for one in found]
    print(f"{task}, {sync}: {losses} at {rate}", file=sys.stderr, flush=True)
    return {"losses": losses, "loss": statistics.mean(losses), "rate": rate,
            **{name: [one[name] for one in found] for name in ("cosine", "gain", "energy") if name in found[0]}}


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
    parser.add_argument("--seeds", type=lambda text: [int(one) for one in text.split(",")], default=[1, 2, 3], metavar="SEED,...")
    o = parser.parse_args()
    runs = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        first = o.text.read_text()[:CHARACTERS]
        known = set(first)
        (folder / "first.txt").write_text(first)
        (folder / "then.txt").write_text("".join(c for c in o.then.read_text()[:CHARACTERS] if c in known))
        run(o.program, folder / "base", "--data", folder / "first.txt", *sizes(), "--lr", 0.006, "--seed", TUNING_SEED)
        for task in RATES:
            runs.append({"task": task, "sync": "allreduce", **tuned(o.program, folder, task, "allreduce", o.seeds)})
            for rounds in ROUNDS:
                for rate, momentum in ARMS:
                    sync = f"diloco:every={STEPS // rounds},outer_lr={rate},outer_momentum={momentum}"
                    runs.append({"task": task, "rounds": rounds, "outer_lr": rate, "outer_momentum": momentum, "sync": sync,
                                 **tuned(o.program, folder, task, sync, o.seeds)})
    print(as_json({"made": made(o.program), "steps": STEPS, "seeds": o.seeds, "rates": RATES, "runs": runs, "arms": arms(runs)}))


if __name__ == "__main__":
    main()
