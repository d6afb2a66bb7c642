#!/usr/bin/env python3
"""The accuracy table: what each scheme reaches and sends, beside dense training, over several seeds. Of other tasks it
shows their own figure of merit: a word error rate, a perplexity.

    bench/accuracy.py                                  all that compress, at their defaults: Fashion-MNIST, 4 workers,
                                                       5 epochs. Gossip has to be named
    bench/accuracy.py dgc:density=0.001,values=fp16    these specs only, beside dense
    bench/accuracy.py --cifar cifar-10-batches-bin     ResNet-20 on CIFAR-10
    bench/accuracy.py --train "--lr 0.05 --batch 32"   with other options of thinwire train
    bench/accuracy.py "adpsgd-random --lr 0.02"        of one spec alone
    bench/accuracy.py --task asr --data recordings     speech, or text with lm; the recipe goes into --train

Each run's summary is kept in --results and not made again, so an interrupted table goes on where it was, and a failed
run is tried once more; after a change to the library, begin with an empty folder. Prints Markdown; --json writes the
same as JSON.
"""
import argparse
import json
import os
import pathlib
import shlex
import shutil
import statistics
import subprocess
import sys
import zlib

from made import as_json, made

DENSE = "allreduce"
RATIOS = ("compressed", "message", "traffic")
PLAIN = ("perplexity",)  # metrics that are not shares, shown as %


def list_schemes(program):
    """Those that compress gradients: the first of the lists that end in an empty line."""
    text = subprocess.run([program, "schemes"], check=True, capture_output=True, text=True).stdout
    return [line.split()[0] for line in text.split("\n\n")[0].splitlines() if line.startswith("  ")]


def train_words(options, spec, seed):
    """The options of `thinwire train TASK`, which are also what tells one run from another."""
    sync, *own = shlex.split(spec)
    words = ["--workers", options.workers, "--epochs", options.epochs, "--seed", seed, "--sync", sync]
    if options.data:
        words += ["--data", options.data]
    if options.cifar:  # 128 images a step, however many workers share them
        words += ["--data", options.cifar, "--model", "resnet20", "--batch", max(1, 128 // options.workers), "--lr", 0.1,
                  "--schedule", "cosine", "--weight-decay", 1e-4, "--crop", 4, "--flip"]
    return [str(word) for word in words] + shlex.split(options.train) + own


def result_path(options, spec, seed, words):
    task = "" if options.task == "image" else f"{options.task}-"
    name = task + "".join(letter if letter.isalnum() or letter in "=.-" else "_" for letter in spec)[:80]
    return options.results / f"{name}-seed{seed}-{zlib.crc32(' '.join(words).encode()):08x}.json"


def figure(summary):
    """The metric as it is shown: a share in %."""
    metric = summary["metric"]
    return metric["value"] * (1 if metric["name"] in PLAIN else 100)


def tell(text):
    print(text, file=sys.stderr, flush=True)


def train(options, spec, seed):
    """The run's summary, from the results folder if it is there; {"failed": why} is not kept."""
    words = train_words(options, spec, seed)
    path = result_path(options, spec, seed, words)
    if path.exists():
        return json.loads(path.read_text())
    unfinished = path.with_suffix(".unfinished")
    done = subprocess.run([options.thinwire, "train", options.task, "--quiet", "--out", "none", "--json", unfinished, *words],
                          stderr=subprocess.PIPE, text=True, env={"OMP_NUM_THREADS": "1", **os.environ})
    if done.returncode != 0:
        unfinished.unlink(missing_ok=True)
        why = done.stderr.strip() or f"exit code {done.returncode}"
        tell(f"{spec}, seed {seed}: {why}")
        return {"failed": why}
    unfinished.rename(path)
    summary = json.loads(path.read_text())
    name, seconds = summary["metric"]["name"], summary["seconds"]["wall"]
    tell(f"{spec}, seed {seed}: {name} {figure(summary):.2f} in {seconds:.0f} s")
    return summary


def train_all(options, specs):
    """{spec: {seed: summary}}, of the runs that did not fail, and how many did."""
    runs = [(spec, seed) for seed in options.seeds for spec in specs]
    summaries = [train(options, *run) for run in runs]
    found = {spec: {} for spec in specs}
    for (spec, seed), summary in zip(runs, summaries):
        if "failed" not in summary:
            found[spec][seed] = summary
    return found, sum("failed" in summary for summary in summaries)


def mean(values):
    values = list(values)
    return statistics.fmean(values) if values and None not in values else None


def percent_more(loss, than):
    return None if loss is None or than is None else 100 * (loss / than - 1)


def make_row(spec, summaries, dense):
    """One spec's line; what it has more or less than dense is taken seed by seed."""
    points = {seed: figure(summary) for seed, summary in summaries.items()}
    losses = {seed: summary["loss"] for seed, summary in summaries.items()}
    return {
        "sync": spec,
        "seeds": sorted(points),
        "losses": [losses[seed] for seed in sorted(points)],
        "loss": mean(losses.values()),
        "loss_difference": mean(percent_more(loss, dense[seed]["loss"]) for seed, loss in losses.items() if seed in dense),
        "metric": mean(points.values()),
        "spread": statistics.stdev(points.values()) if len(points) > 1 else None,
        "difference": mean(points[seed] - figure(dense[seed]) for seed in points if seed in dense),
        "ratio": {name: mean(summary["ratio"][name] for summary in summaries.values()) for name in RATIOS},
        "wall": mean(summary["seconds"]["wall"] for summary in summaries.values()),
    }


def text(value, form):
    return "-" if value is None else format(value, form)


def print_table(options, rows, metric):
    data = options.cifar or options.data or "Fashion-MNIST"
    shown, unit = (metric, "") if metric in PLAIN else (f"{metric} %", ", points")
    print(f"{data}, {options.workers} workers, {options.epochs} epochs, seeds "
          f"{', '.join(map(str, options.seeds))}; {metric}: mean ± standard deviation over the seeds.\n")
    print(f"| sync | {shown} | to dense{unit} | ratio, compressed tensors | ratio, message | ratio, traffic | wall s |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for row in rows:
        missing = "" if len(row["seeds"]) == len(options.seeds) else f" ({len(row['seeds'])} of {len(options.seeds)})"
        ratios = " | ".join(text(row["ratio"][name], ",.4g") for name in RATIOS)
        print(f"| `{row['sync']}` | {text(row['metric'], '.2f')} ± {text(row['spread'], '.2f')}{missing} | "
              f"{text(row['difference'], '+.2f')} | {ratios} | {text(row['wall'], '.0f')} |")


def parse_line():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("specs", nargs="*", metavar="SPEC", help="what --sync takes, and options of its own after a blank; "
                        "without any, every scheme")
    parser.add_argument("--thinwire", default="build/thinwire", help="the program (default build/thinwire)")
    parser.add_argument("--results", type=pathlib.Path, default=pathlib.Path("runs/accuracy"),
                        help="folder of the runs' summaries (default runs/accuracy)")
    parser.add_argument("--task", default="image", choices=["image", "asr", "lm"], help="default image")
    parser.add_argument("--data", help="another data set of thinwire train; asr and lm need one")
    parser.add_argument("--cifar", metavar="DIR", help="CIFAR-10's binary files; trains resnet20 with its recipe")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--seeds", type=lambda words: [int(word) for word in words.split(",")], default=[1, 2, 3],
                        metavar="LIST", help="default 1,2,3")
    parser.add_argument("--train", default="", metavar="OPTIONS", help="more options of thinwire train, in one word")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE")
    options = parser.parse_args()
    if options.task != "image" and (options.cifar or not options.data):
        parser.error(f"--task {options.task} needs --data, and --cifar is for image")
    if not shutil.which(options.thinwire):
        parser.error(f"--thinwire {options.thinwire}: no program there; build it with make, or name where it is")
    return options


def main():
    options = parse_line()
    options.results.mkdir(parents=True, exist_ok=True)
    specs = options.specs or list_schemes(options.thinwire)
    specs = [DENSE, *(spec for spec in specs if spec != DENSE)]
    found, failures = train_all(options, specs)
    rows = [make_row(spec, found[spec], found[DENSE]) for spec in specs]
    metrics = [summary["metric"]["name"] for runs in found.values() for summary in runs.values()]
    print_table(options, rows, metrics[0] if metrics else "accuracy")
    if options.json:
        options.json.write_text(as_json({"made": made(), "workers": options.workers, "rows": rows}) + "\n")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
