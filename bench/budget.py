#!/usr/bin/env python3
"""What a budget of memory costs, and whether the seconds that a run predicts for itself are those it takes.

    bench/budget.py --text input.txt > budget.json

Trains the same transformer without a budget, and with shares of the memory that its weights, gradients and state take.
Prints one JSON object: of each share the seconds of a pass as measured and as predicted, the groups, the most bytes that
were in memory by the run's own count, and the largest size of the process. Runs take turns, --rounds times: a machine
whose disk or processor is busy shows in how far they are apart. All must end with the same weights."""
import argparse
import json
import os
import pathlib
import subprocess
import tempfile

from made import as_json, made

ARRAYS = 4  # weights, gradients, and AdamW's two


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shares", nargs="*", type=int, default=[2, 4, 7], help="4: a quarter")
    parser.add_argument("--text", type=pathlib.Path, required=True)
    parser.add_argument("--thinwire", type=pathlib.Path, default=pathlib.Path("build/thinwire"))
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=2)
    return parser.parse_args()


def train(o, folder, *words):
    """A run's summary, and the largest size of its process."""
    told = folder / "summary.json"
    command = [o.thinwire, "train", "lm", "--data", folder, "--unit", "char", "--model", "transformer", "--layers", o.layers,
               "--hidden", o.width, "--heads", 8, "--batch", o.batch, "--bptt", o.length, "--steps", o.steps, "--quiet",
               "--out", "none", "--json", told, *words]
    job = subprocess.Popen([str(word) for word in command], cwd=folder, env={**os.environ, "OMP_NUM_THREADS": "1"})
    _, status, usage = os.wait4(job.pid, 0)
    if status:
        raise SystemExit(f"thinwire ended with {os.waitstatus_to_exitcode(status)}")
    return json.loads(told.read_text()), usage.ru_maxrss * 1024


def bytes_of(summary):
    return ARRAYS * 4 * summary["parameters"]


def row_of(o, folder, share, total):
    summary, size = train(o, folder, "--memory-budget", f"{total // share / 1000}kB")
    memory = summary["memory"]
    return {"share": share, "budget": memory["budget"], "seconds": memory["measured_seconds"],
            "predicted": memory["predicted_seconds"], "off": memory["predicted_seconds"] / memory["measured_seconds"] - 1,
            "groups": memory["groups"], "most_resident": memory["most_resident"], "process": size,
            "weights": summary["weights_crc32c"]}


def main():
    o = options()
    o.thinwire = o.thinwire.resolve()
    rows = []
    with tempfile.TemporaryDirectory(dir=".") as folder:
        folder = pathlib.Path(folder).resolve()
        text = o.text.read_bytes()
        for split, size in (("train", len(text)), ("valid", 4 * o.length * o.batch), ("test", 4 * o.length * o.batch)):
            (folder / f"ptb.{split}.txt").write_bytes(text[:size])
        for _ in range(o.rounds):
            summary, size = train(o, folder)
            rows.append({"seconds": summary["pass"]["seconds"], "process": size, "weights": summary["weights_crc32c"]})
            rows += [row_of(o, folder, share, bytes_of(summary)) for share in o.shares]
    if len({row["weights"] for row in rows}) != 1:
        raise SystemExit("runs ended with unlike weights")
    print(as_json({"made": made(), "parameters": summary["parameters"], "total": bytes_of(summary), "rows": rows}))


if __name__ == "__main__":
    main()
