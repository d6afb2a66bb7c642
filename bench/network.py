#!/usr/bin/env python3
"""What exchanging gradients costs over real Ethernet links, in PyTorch as it is, with thinwire, and without Python.

    sudo bench/network.py --python venv/bin/python                  the whole report, below 25 minutes
    sudo bench/network.py --python venv/bin/python --quick          the same in short, below 5
    sudo bench/network.py --only exchange --rates 1 torch:dense thinwire:dgc:warmup_steps=0
    sudo bench/network.py --only exchange --optimizer adamw --rates 1,0.1 torch:powersgd=4 thinwire:dgc-adam:warmup_steps=0
    sudo bench/network.py --only train --cifar FOLDER torch:dense thinwire:dgc:density=0.01,warmup_steps=20

Each rank is a process in a network namespace of its own; the namespaces are joined by a bridge, and both ends of every
link have a token bucket of the given rate (bench/link.sh). That needs root. A WAY is

    torch:none        DistributedDataParallel without any exchange: what a step takes beside it
    torch:dense       DistributedDataParallel over Gloo, as it is
    torch:fp16        with torch's fp16 hook; torch:bf16 its like in bf16, since torch's own refuses Gloo
    torch:powersgd=R  with torch's PowerSGD hook of rank R, in one bucket (it hangs or aborts over Gloo with several)
    torch:postlocal   PostLocalSGD: weights are averaged in every fourth step, and gradients are not
    thinwire:SPEC     DistributedDataParallel with thinwire.torch.attach(ddp, SPEC), which compresses in any case
    auto:SPEC         the same, with the fallback to torch's own all-reduce where that was measured to be faster
    gossip:SPEC       thinwire.torch.GossipDataParallel; its step does not wait for the network
    mpi:SPEC          thinwire's C library without Python, over Open MPI (bench_exchange)
    tcp:SPEC          the same over thinwire's sockets

The exchange is measured with the gradients of ResNet-50's 161 parameters, made up, new in each step and on each rank. A
step is forward and backward, which compute next to nothing, on the slowest rank; the exchange is the median step less
the median step of torch:none. With --optimizer adamw a step ends with that of AdamW: torch's own, fused, also in
torch:none, or thinwire.torch.AdamW beside thinwire:SPEC, which leaves the moments to a scheme that has them. Ways take
turns, --rounds times. Training is end to end: an MLP with many weights for its work, until the loss and the accuracy on
held-out data are reached; the clock stands while they are looked at.

--out FOLDER has network.json and network.svg at the end, and the table goes to stdout. network.json:

    schema            2, of this form
    complete          false where the run was interrupted
    made              commit, date, command, and of the machine its processor, cores, system and torch
    ranks
    optimizer         of the exchange's steps: null, or adamw
    exchange          a list, one item a rate:
      gbit_per_second, parameters
      results         a list, one item a way:
        way
        error         why there is nothing else, where it failed
        steps         how many were measured
        step_ms, least_ms, most_ms    the median, the least and the most
        exchange_ms   step_ms less that of torch:none; of mpi and tcp the step itself
        faster_than_dense             the exchange_ms of torch:dense, in exchange_ms of this
        bytes_sent, bytes_received    a rank and step, headers included (mpi and tcp: without)
        python_ms     processor time of the hook in a step, without the library's calls (thinwire and auto)
        break_even_gbit  the rate above which torch:dense is faster; null: at every rate this is
        load          the load average before the run, the highest
    compared          what is said in the last lines of the table: name, value and what it means
    train             null, or
      gbit_per_second, task           what is trained, and what is to be reached
      results         a list, one item a way:
        way, error
        seconds, steps                until the target was seen to be reached; null where it was not
        loss, accuracy                the last ones
        faster_than_dense             seconds of torch:dense, in seconds of this
        curve         a list of step, seconds, loss, accuracy

break_even_gbit is computed from one rate: the bytes are taken to travel at the speed that torch:dense reached, and what
is left of exchange_ms is taken to be the same at every rate; torch:dense is taken to cost its bytes only.
"""
import argparse
import json
import os
import pathlib
import re
import signal
import statistics
import subprocess
import sys
import time

import chart
import link
from made import as_json, made

HERE = pathlib.Path(__file__).resolve().parent
WORKER = HERE / "network_torch.py"
RESNET50 = 25_557_032

TORCH_FAMILIES = ["thinwire", "torch", "gossip", "auto"]
FAMILIES = [*TORCH_FAMILIES, "mpi", "tcp"]
DENSE, NONE = "torch:dense", "torch:none"
SPARSE = ["thinwire:dgc:warmup_steps=0", "thinwire:scalecom:warmup_steps=0"]
LOW_RANK = [f"thinwire:powersgd:rank={rank},warmup_steps=0" for rank in (1, 2, 4)]
HOOKS = [f"torch:powersgd={rank}" for rank in (1, 2, 4)]
WAYS = [NONE, DENSE, "thinwire:allreduce", "torch:fp16", "torch:bf16", *HOOKS, "torch:postlocal", *SPARSE, *LOW_RANK,
        "thinwire:qsgd", "gossip:adpsgd-random", "mpi:allreduce", "mpi:dgc:warmup_steps=0", "tcp:allreduce",
        "tcp:dgc:warmup_steps=0"]
FEW = [NONE, DENSE, "torch:fp16", "torch:powersgd=1", *SPARSE, LOW_RANK[0], "auto:dgc:warmup_steps=0"]
QUICK = [NONE, DENSE, "thinwire:allreduce", "torch:powersgd=1", SPARSE[0], LOW_RANK[0], "mpi:dgc:warmup_steps=0"]
TRAINED_DGC = "thinwire:dgc:density=0.01,masking=off,warmup_steps=0"
TRAINED = [DENSE, "torch:fp16", "torch:powersgd=2", "torch:postlocal", TRAINED_DGC,
           "thinwire:scalecom:warmup_steps=0", LOW_RANK[1], "gossip:adpsgd-random"]
TRAINED_QUICK = [DENSE, "torch:powersgd=2", TRAINED_DGC]
BYTES_OF_A_GRADIENT = 4
SLOWEST_SHARE = 0.3  # of the line, that a run is given time for
SECONDS_TO_START = 90


# ---- the command line ------------------------------------------------------------------------------------------------

def parse_line():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ways", nargs="*", metavar="WAY", help="to measure, at each rate (default: see --quick)")
    parser.add_argument("--quick", action="store_true", help="few ways, one rate, one round, three trainings")
    parser.add_argument("--only", choices=["exchange", "train"])
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--rates", metavar="LIST", help="in Gbit/s; training takes the first (default 1,0.1,10)")
    parser.add_argument("--parameters", type=int, default=RESNET50, help="of the exchange (default ResNet-50's)")
    parser.add_argument("--rounds", type=int, help="in which the ways take turns (default 2 at the first rate, else 1)")
    parser.add_argument("--steps", type=int, default=6, help="measured in a round, at most (default 6)")
    parser.add_argument("--seconds", type=float, default=12, help="after which no more than 2 steps are (default 12)")
    parser.add_argument("--optimizer", choices=["adamw"], help="that ends a step of the exchange (default none)")
    parser.add_argument("--cifar", default="", metavar="FOLDER", help="train on CIFAR-10's binary files")
    parser.add_argument("--task", action="append", default=[], metavar="KEY=VALUE",
                        help="of the training: the fields of Task in bench/network_tasks.py")
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build"), metavar="FOLDER",
                        help="of the library and bench_exchange (default build)")
    parser.add_argument("--python", default=sys.executable, metavar="FILE", help="that has PyTorch (default this one)")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("."), metavar="FOLDER")
    options = parser.parse_args()
    options.rates = [float(rate) for rate in (options.rates or ("1" if options.quick else "1,0.1,10")).split(",")]
    options.task = task_of(parser, options)
    for way in options.ways:
        check_way(parser, way)
    return options


def task_of(parser, options):
    pairs = dict(word.partition("=")[::2] for word in options.task)
    try:
        numbers = {key: float(value) if "." in value else int(value) for key, value in pairs.items()}
    except ValueError as error:
        parser.error(f"--task takes KEY=NUMBER: {error}")
    return {**numbers, "folder": str(pathlib.Path(options.cifar).resolve()) if options.cifar else ""}


def check_way(parser, way):
    family, _, spec = way.partition(":")
    scheme = spec.partition("=")[0]
    if family not in FAMILIES or not spec:
        parser.error(f"{way!r} is no way; one is torch:dense, or SPEC after thinwire:, auto:, gossip:, mpi: or tcp:")
    if family == "torch" and scheme not in ("none", "dense", "fp16", "bf16", "powersgd", "postlocal"):
        parser.error(f"{way!r} is no way; torch has none, dense, fp16, bf16, powersgd=RANK and postlocal")


def exchanges(options):
    """(rate, rounds, ways): the first rate has all of them."""
    for i, rate in enumerate(options.rates):
        default = QUICK if options.quick else WAYS if i == 0 else FEW
        ways = [NONE, *(way for way in options.ways if way != NONE)] if options.ways else default
        yield rate, options.rounds or (1 if options.quick or i else 2), ways


def trainings(options):
    default = TRAINED_QUICK if options.quick else TRAINED
    ways = [way for way in options.ways if way.split(":")[0] in TORCH_FAMILIES and way != NONE]
    return ways if options.ways else default


# ---- runs ------------------------------------------------------------------------------------------------------------

def words_of(options, way, mode, *more):
    """What link.sh runs for a way."""
    family, _, spec = way.partition(":")
    if is_native(way):
        return ["-x", f"STEPS={options.steps}", "-x", "THINWIRE_JOIN=10.77.0.1:29400",
                options.build.resolve() / "bench_exchange", family, spec]
    library = options.build.resolve() / "libthinwire.so"
    ours = ["-x", f"THINWIRE_LIBRARY={library}", "-x", f"PYTHONPATH={HERE.parent / 'python' / 'src'}"]
    ours = ours if library.exists() else []  # else the wheel that is installed
    return ["-x", "JOIN=10.77.0.1:29500", *ours, options.python, "-B", WORKER, mode, way, *more]


def longest(options, rate):
    """Seconds until an exchange is given up: to start, and for all steps at a small part of the line's rate."""
    step = 2 * options.parameters * BYTES_OF_A_GRADIENT * 8 / (rate * 1e9 * SLOWEST_SHARE)
    return SECONDS_TO_START + 6 * step + 2 * options.seconds


def told_by(output):
    """The object in the last line of what a run printed."""
    lines = output.splitlines()
    if not lines:
        raise link.Failed("it ended well, and printed nothing")
    return json.loads(lines[-1])


def measure(options, rate, way):
    more = ["--parameters", options.parameters, "--steps", options.steps, "--seconds", options.seconds]
    more += ["--optimizer", options.optimizer] if options.optimizer else []
    load = os.getloadavg()[0]
    output = link.run(str(options.ranks), rate, words_of(options, way, "exchange", *more), longest(options, rate))
    return {**told_by(output), "load": load}


def train(options, rate, way):
    more = ["--task", json.dumps(options.task)]
    output = link.run(str(options.ranks), rate, words_of(options, way, "train", *more),
                      SECONDS_TO_START + 3 * options.task.get("seconds", 150))
    return told_by(output)


def reason(text):
    """The line of what a run wrote that says the most: that of an exception, rather than mpirun's about the rest."""
    lines = [re.sub(r"^\[rank\d+\]: ", "", line) for line in text.splitlines() if line.strip("- ")]
    lines = lines or ["it said nothing"]
    told = [line for line in lines if re.match(r"[\w.]*(Error|Exception|Failed|Interrupt)\b|terminate called", line)]
    return (told or lines)[-1][:200]


class Progress:
    """A line on stderr for each run."""

    def __init__(self, total):
        self.total, self.done = total, 0

    def run(self, what, act):
        """What act() gives, or {"error": ...}."""
        self.done += 1
        print(f"[{self.done}/{self.total}] {what} ...", end=" ", file=sys.stderr, flush=True)
        start = time.monotonic()
        try:
            found = act()
        except (link.Failed, ValueError) as failure:
            found = {"error": str(failure)}
        outcome = reason(found["error"]) if "error" in found else "done"
        print(f"{outcome} ({time.monotonic() - start:.0f} s)", file=sys.stderr, flush=True)
        return found


# ---- figures ---------------------------------------------------------------------------------------------------------

def summarise(way, runs):
    good = [run for run in runs if "error" not in run]
    if not good:
        return {"way": way, "error": runs[0]["error"]}
    steps = [step for run in good for step in run["step_ms"]]
    python = [run["python_ms"] for run in good if run.get("python_ms")]
    return {"way": way, "steps": len(steps), "step_ms": statistics.median(steps), "least_ms": min(steps),
            "most_ms": max(steps), "bytes_sent": statistics.median(run["bytes_sent"] for run in good),
            "bytes_received": statistics.median(run["bytes_received"] for run in good),
            "python_ms": min(python) if python else None, "load": max(run["load"] for run in good)}


def is_native(way):
    return way.split(":")[0] not in TORCH_FAMILIES


def add_exchange(results, rate):
    """What a step has beside torch:none's, and how it compares with torch:dense's."""
    by_way = {result["way"]: result for result in results if "error" not in result}
    if NONE not in by_way:
        return
    for way, result in by_way.items():
        beside = 0 if is_native(way) else by_way[NONE]["step_ms"]
        result["exchange_ms"] = result["step_ms"] - beside
    dense = by_way.get(DENSE)
    for way, result in by_way.items():
        if dense and way != NONE and result["exchange_ms"] > 0:
            result["faster_than_dense"] = dense["exchange_ms"] / result["exchange_ms"]
            result["break_even_gbit"] = None if way == DENSE else break_even(result, dense, rate)


def wire_bytes(result):
    return max(result["bytes_sent"], result["bytes_received"])


def break_even(result, dense, rate):
    """The rate in Gbit/s from which on dense is as fast; None: there is none; 0: it is at every rate."""
    saved = (wire_bytes(dense) - wire_bytes(result)) * 8
    share = wire_bytes(dense) * 8 / (rate * 1e9) / (dense["exchange_ms"] / 1e3)
    beside = result["exchange_ms"] / 1e3 - wire_bytes(result) * 8 / (rate * 1e9 * share)
    if beside <= 0:
        return None if saved > 0 else 0.0
    return max(0.0, saved / (share * beside) / 1e9)


def compare(results):
    """The ratios that a reader asks for first: of the best of ours to the best of theirs."""
    found = {result["way"]: result for result in results if "exchange_ms" in result}

    def least(ways):
        return min((found[way]["exchange_ms"] for way in ways if way in found), default=None)

    sparse, hook = least(SPARSE[:1]), least(HOOKS)
    rows = [("dgc_to_dense", least([DENSE]), sparse, "times faster is dgc's exchange than DDP's own"),
            ("dgc_to_powersgd_hook", hook, sparse, "times faster is dgc's exchange than torch's best PowerSGD hook"),
            ("powersgd_to_powersgd_hook", hook, least(LOW_RANK[:1]),
             "times faster is thinwire's powersgd of rank 1 than torch's best PowerSGD hook")]
    rows = [{"name": name, "value": above / below, "means": means} for name, above, below, means in rows
            if above and below and below > 0]
    if DENSE in found and "thinwire:allreduce" in found:
        rows.append({"name": "dense_through_thinwire",
                     "means": "of a plain DDP step takes a dense one through the plug-in",
                     "value": found["thinwire:allreduce"]["step_ms"] / found[DENSE]["step_ms"]})
    if found.get(SPARSE[0], {}).get("python_ms"):
        rows.append({"name": "python_ms", "value": found[SPARSE[0]]["python_ms"],
                     "means": "ms of processor time of a step of dgc are Python's"})
    return rows


def summarise_training(way, found, task):
    if "error" in found:
        return {"way": way, "error": found["error"]}
    last = found["curve"][-1]
    return {"way": way, "seconds": last["seconds"] if found["reached"] else None,
            "steps": last["step"] if found["reached"] else None, "loss": last["loss"], "accuracy": last["accuracy"],
            "curve": found["curve"]}


def add_speedup(results):
    dense = next((result.get("seconds") for result in results if result["way"] == DENSE), None)
    for result in results:
        if dense and result.get("seconds"):
            result["faster_than_dense"] = dense / result["seconds"]


# ---- the report ------------------------------------------------------------------------------------------------------

def number(value, form):
    return "-".rjust(int(form.split(".")[0])) if value is None else f"{value:{form}}"


def show_rows(results, width, row):
    """A line for each way: its name, and its figures or why there are none."""
    for result in results:
        print(f"{result['way']:<{width}}", f"failed: {reason(result['error'])}" if "error" in result else row(result))


def show_exchange(ranks, part):
    print(f"\n{ranks} ranks, {part['gbit_per_second']:g} Gbit/s, {part['parameters']:,} gradients: slowest rank's ms")
    print(f"{'way':<40} {'step':>8} {'exchange':>9} {'x dense':>8} {'MB sent':>8} {'break-even':>10} {'load':>5}")
    show_rows(part["results"], 40, lambda result: (
        f"{result['step_ms']:8.1f} {number(result.get('exchange_ms'), '9.1f')} "
        f"{number(result.get('faster_than_dense'), '8.2f')} {result['bytes_sent'] / 1e6:8.2f} "
        f"{number(result.get('break_even_gbit'), '10.2f')} {result['load']:5.1f}"))
    for row in part["compared"]:
        print(f"  {row['value']:.2f} {row['means']}")


def show_training(ranks, part):
    print(f"\nTraining, {ranks} ranks, {part['gbit_per_second']:g} Gbit/s, to a loss of {part['task']['loss']:g} and "
          f"an accuracy of {part['task']['accuracy']:g}; {part['task']['parameters']:,} parameters")
    print(f"{'way':<44} {'seconds':>8} {'steps':>6} {'x dense':>8} {'loss':>7} {'accuracy':>9}")
    show_rows(part["results"], 44, lambda result: (
        f"{number(result['seconds'], '8.1f')} {number(result['steps'], '6.0f')} "
        f"{number(result.get('faster_than_dense'), '8.2f')} {result['loss']:7.3f} {result['accuracy']:9.3f}"))


def colour_of(way):
    return chart.COLOURS[FAMILIES.index(way.split(":")[0])]


def draw(report, path):
    page = chart.Page()
    for part in report["exchange"]:
        rows = [(result["way"], result["exchange_ms"], colour_of(result["way"])) for result in part["results"]
                if result["way"] != NONE and result.get("exchange_ms", 0) > 0]
        if rows:
            chart.bars(page, f"Exchange of {part['parameters']:,} gradients, {report['ranks']} ranks, "
                       f"{part['gbit_per_second']:g} Gbit/s", sorted(rows, key=lambda row: row[1]), "ms")
    curves = [(result["way"], [(point["seconds"], point["loss"]) for point in result["curve"]])
              for result in (report["train"] or {"results": []})["results"] if "curve" in result]
    if curves:
        chart.curves(page, f"Training at {report['train']['gbit_per_second']:g} Gbit/s", curves, "s",
                     "loss on held-out data", report["train"]["task"]["loss"])
    page.write(path)


class Report:
    def __init__(self, options):
        self.options = options
        self.found = {"schema": 2, "complete": False, "made": made(), "ranks": options.ranks,
                      "optimizer": options.optimizer, "exchange": [], "train": None}

    def run(self):
        options = self.options
        planned = list(exchanges(options)) if options.only != "train" else []
        trained = trainings(options) if options.only != "exchange" else []
        progress = Progress(sum(rounds * (len(ways) + 1) for _, rounds, ways in planned) + len(trained))
        for rate, rounds, ways in planned:
            self.exchange(progress, rate, rounds, ways)
        if trained:
            self.train(progress, options.rates[0], trained)
        self.found["complete"] = True

    def exchange(self, progress, rate, rounds, ways):
        runs = {way: [] for way in ways}
        part = {"gbit_per_second": rate, "parameters": self.options.parameters, "results": [], "compared": []}
        self.found["exchange"].append(part)
        for _ in range(rounds):
            for way in [*ways, NONE]:  # what is taken off of all the others is measured twice
                runs[way].append(progress.run(f"{rate:g} Gbit/s, {way}", lambda: measure(self.options, rate, way)))
                self.note_torch(runs[way][-1])
        part["results"] = [summarise(way, found) for way, found in runs.items()]
        add_exchange(part["results"], rate)
        part["compared"] = compare(part["results"])

    def train(self, progress, rate, ways):
        part = self.found["train"] = {"gbit_per_second": rate, "task": {}, "results": []}
        for way in ways:
            found = progress.run(f"{rate:g} Gbit/s, training, {way}", lambda: train(self.options, rate, way))
            self.note_torch(found)
            part["task"] = found.get("task", part["task"])
            part["results"].append(summarise_training(way, found, part["task"]))
        add_speedup(part["results"])

    def note_torch(self, found):
        if "torch" in found:
            self.found["made"]["machine"]["torch"] = found["torch"]

    def write(self):
        self.options.out.mkdir(parents=True, exist_ok=True)
        for part in self.found["exchange"]:
            show_exchange(self.found["ranks"], part)
        if self.found["train"] and self.found["train"]["task"]:
            show_training(self.found["ranks"], self.found["train"])
        (self.options.out / "network.json").write_text(as_json(self.found) + "\n")
        draw(self.found, self.options.out / "network.svg")
        print(f"\n{self.options.out / 'network.json'} and network.svg are written")


def cannot(why):
    print(f"network.py: {why}", file=sys.stderr)
    sys.exit(77)


def check(options):
    """What would fail in every run, told once."""
    if os.getuid():
        cannot("only root may make network namespaces; run it with sudo")
    has_torch = "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)"
    if subprocess.run([options.python, "-c", has_torch], check=False).returncode:
        cannot(f"{options.python} has no PyTorch; --python names one that has")
    ways = [way for _, _, some in exchanges(options) for way in some]
    if any(map(is_native, ways)) and options.only != "train" and not (options.build / "bench_exchange").exists():
        cannot(f"there is no bench_exchange in {options.build}; "
               f"cmake --build {options.build} --target bench_exchange makes it")
    try:
        link.run("1", 1, ["true"], SECONDS_TO_START)
    except (link.Missing, link.Failed) as why:
        cannot(why)


def main():
    options = parse_line()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    report, status = Report(options), 0
    try:
        check(options)
        report.run()
    except KeyboardInterrupt:
        print("\ninterrupted; the namespaces are removed", file=sys.stderr)
        status = 130
    report.write()
    failed = [result for part in [*report.found["exchange"], report.found["train"] or {"results": []}]
              for result in part["results"] if "error" in result]
    return status or (1 if failed else 0)


if __name__ == "__main__":
    sys.exit(main())
