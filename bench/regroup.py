#!/usr/bin/env python3
"""What taking a run over costs in accuracy: three epochs by 4, 2 and 8 workers, an epoch each, against three epochs by 4,
for some seeds. Usage: regroup.py THINWIRE [--seeds N] [--train ITEMS] [SYNC ...]"""
import argparse
import json
import pathlib
import subprocess
import tempfile


def train(words, sync, seed, workers, epochs, out, *options):
    done = subprocess.run([words.thinwire, "train", "image", "--quiet", "--json", "-", "--sync", sync, "--seed", str(seed),
                           "--workers", str(workers), "--epochs", str(epochs), "--schedule", "constant", "--out", out,
                           "--limit-train", str(words.train), *options],
                          check=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    return json.loads(done.stdout)["metric"]["value"]


def measure(words, sync, seed):
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder)
        whole = train(words, sync, seed, 4, 3, out / "whole")
        train(words, sync, seed, 4, 1, out / "cut")
        train(words, sync, seed, 2, 2, out / "cut", "--resume")
        return whole, train(words, sync, seed, 8, 3, out / "cut", "--resume")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("thinwire")
    parser.add_argument("sync", nargs="*", default=["dgc:density=0.01,warmup_steps=50", "choco"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--train", type=int, default=6400)
    words = parser.parse_args()
    print(f"{'sync':36} seed  4 workers  4, 2, 8")
    for sync in words.sync:
        for seed in range(1, words.seeds + 1):
            whole, cut = measure(words, sync, seed)
            print(f"{sync:36} {seed:4}  {whole:9.4f}  {cut:7.4f}", flush=True)


if __name__ == "__main__":
    main()
