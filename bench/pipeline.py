#!/usr/bin/env python3
"""A pipeline that waits for no step beside one that does, and beside whole models with local updates, over slow lines.

    sudo bench/pipeline.py --text input.txt > pipeline.json

Each machine is a process of thinwire in a network namespace of its own (bench/link.sh), with one thread and a line of its
own. All train the same transformer, of whose width and tokens the options tell. Prints one JSON object: of each way and
number of machines the micro-batches a second that all of them have trained on; the share of the time in which a machine
waited for others, as a mean; and the seconds of processor time that each machine took for a micro-batch, with what it
computes before and after training. Where machines share cores, the first is less than it would be with a core for each;
it cannot be above one by the largest of the third. A synchronous pipeline is drained after each step: its gradients are
those of one machine. Needs root and what bench/link.sh needs."""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import link

FIRST = "10.77.0.1:29720"  # link.sh's first host
CUTS = {2: "5+6", 4: "3+2+2+4", 8: "2+1+1+1+1+1+1+3"}  # of an embedding, eight blocks, a norm and a last product
EVERY = 50


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("machines", nargs="*", type=int, default=[1, 2, 4, 8], help=f"1, {', '.join(map(str, CUTS))}")
    parser.add_argument("--text", type=pathlib.Path, required=True)
    parser.add_argument("--thinwire", type=pathlib.Path, default=pathlib.Path("build/thinwire"))
    parser.add_argument("--rate", type=float, default=0.1, help="of a line, Gbit/s")
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--batch", type=int, default=10, help="of a micro-batch")
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--micro-batches", type=int, default=64, help="that a pipeline is timed with")
    parser.add_argument("--accumulate", type=int, default=8, help="micro-batches of a step, where it has several")
    parser.add_argument("--seconds", type=float, default=900, help="that one way may take")
    parser.add_argument("--way", nargs=3, help=argparse.SUPPRESS)
    return parser.parse_args()


def ways_of(o, machines):
    """The micro-batches of a machine's run, those that all train on together, and its options."""
    if machines == 1:
        yield "alone", o.micro_batches, o.micro_batches, ["--steps", o.micro_batches]
        return
    def piped(name, accumulate, more="", *words):
        steps = o.micro_batches // accumulate
        return name, o.micro_batches, o.micro_batches, [
            "--steps", steps, "--pipeline", f"stages={machines},cut={CUTS[machines]},accumulate={accumulate}{more}", *words]
    yield piped("asynchronous", 1)
    yield piped("asynchronous, fp16", 1, ",values=fp16")
    yield piped("asynchronous, several", o.accumulate)
    yield piped("synchronous, several", o.accumulate, "", "--checkpoint-every", 1)
    yield f"diloco:every={EVERY}", EVERY, EVERY * machines, ["--steps", EVERY, "--sync", f"diloco:every={EVERY}"]


def write_text(o, folder):
    """Long enough for all machines' steps, and with next to nothing to evaluate."""
    text = o.text.read_bytes()
    needed = max(o.micro_batches, EVERY * max(o.machines)) * 2 * o.batch * o.length
    text = (text * (needed // len(text) + 1))[:needed]
    for split, size in (("train", needed), ("valid", 4 * o.batch * o.length), ("test", 4 * o.batch * o.length)):
        (folder / f"ptb.{split}.txt").write_bytes(text[:size])


def work(o, machines, folder):
    """One way, in the network that link.sh has made."""
    name, batches, together, words = next(way for way in ways_of(o, machines) if way[0] == o.way[0])
    shape = ["train", "lm", "--data", folder, "--unit", "char", "--model", "transformer", "--layers", 8, "--hidden", o.width,
             "--heads", 4, "--batch", o.batch, "--bptt", o.length, "--schedule", "constant", "--out", "none", "--quiet", *words]
    meeting = ["--workers", machines, "--join", FIRST] if machines > 1 else []
    jobs = [subprocess.Popen([str(word) for word in (
        "ip", "netns", "exec", f"{os.environ['LINK']}-{rank}", o.thinwire, *shape, *meeting,
        *(["--rank", rank] if meeting else []), *(["--json", f"{folder}/summary.json"] if rank == 0 else []))],
        env={**os.environ, "OMP_NUM_THREADS": "1"}) for rank in range(machines)]
    used = []
    for job in jobs:
        _, status, usage = os.wait4(job.pid, 0)
        if status:
            raise SystemExit(f"{name} with {machines} machines: a process ended with {os.waitstatus_to_exitcode(status)}")
        used.append((usage.ru_utime + usage.ru_stime) / batches)
    summary = json.loads((folder / "summary.json").read_text())
    seconds = summary["seconds"]
    print(json.dumps({"machines": machines, "way": name, "per_second": round(together / seconds["training"], 3),
                      "waited": round(seconds["wait"] / seconds["training"], 3), "processor": [round(one, 3) for one in used],
                      "parameters": summary["parameters"]}))


def main():
    o = options()
    if o.way:
        return work(o, int(o.way[1]), pathlib.Path(o.way[2]))
    os.environ.update(MPI="no", BURST="32kb")  # more would pass a line unshaped
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        write_text(o, pathlib.Path(folder))
        for machines in o.machines:
            for name, *_ in ways_of(o, machines):
                words = [sys.executable, __file__, *sys.argv[1:], "--way", name, machines, folder]
                rows.append(json.loads(link.run(str(machines), o.rate, words, o.seconds)))
                print(rows[-1], file=sys.stderr, flush=True)
    print(json.dumps({"gbit": o.rate, "width": o.width, "tokens": o.batch * o.length, "accumulate": o.accumulate,
                      "cores": os.cpu_count(), "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
