#!/usr/bin/env python3
"""A pipeline that waits for no step beside one that does, and beside whole models with local updates, over slow lines.

    sudo bench/pipeline.py --text input.txt > pipeline.json

Each machine is a process of thinwire in a network namespace of its own (bench/link.sh), with one thread and a line of its
own. All train the same transformer, of whose width and tokens the options tell. Prints one JSON object: of each way and
number of machines the micro-batches a second that all of them have trained on; the share of the time in which a machine
waited for others, as a mean; and the seconds of processor time that each machine took for a micro-batch, with what it
computes before and after training. A synchronous pipeline is drained after each step: its gradients are those of one
machine. With --python PyTorch's is measured, too, which computes nothing twice.

Here all machines share the cores of one. So that each computes as fast as with a core of its own, all is slowed down:
with --slower 6 a machine has a sixth of a core (a control group's quota) and its line a sixth of the rate, and the
micro-batches of six seconds are told as those of one. Latency is not slowed down. Take as many as machines / cores and
more. Needs root, control groups for cpu, and what bench/link.sh needs."""
import argparse
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile

import link
from made import as_json, made

FIRST = "10.77.0.1"  # link.sh's first host
TORCH = "torch, synchronous, several"
CUTS = {2: "4+7", 4: "3+2+2+4", 8: "2+1+1+1+1+1+1+3"}  # of an embedding, eight blocks, a norm and a last product
TORCH_CUTS = {**CUTS, 2: "5+6"}  # whose first stages compute nothing twice
EVERY = 50
PERIOD = 10000  # microseconds, of quotas


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("machines", nargs="*", type=int, default=[1, 2, 4, 8], help=f"1, {', '.join(map(str, CUTS))}")
    parser.add_argument("--text", type=pathlib.Path, required=True)
    parser.add_argument("--thinwire", type=pathlib.Path, default=pathlib.Path("build/thinwire"))
    parser.add_argument("--python", help="with PyTorch 2.6 or later")
    parser.add_argument("--rate", type=float, default=0.1, help="of a line, Gbit/s")
    parser.add_argument("--slower", type=float, default=6, help="1: no quotas")
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--batch", type=int, default=5, help="of a micro-batch")
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--micro-batches", type=int, default=48, help="that a pipeline is timed with")
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
    if o.python:
        yield TORCH, o.micro_batches, o.micro_batches, []
    yield f"diloco:every={EVERY}", EVERY, EVERY * machines, ["--steps", EVERY, "--sync", f"diloco:every={EVERY}"]


def write_text(o, folder):
    """Long enough for all machines' steps, and with next to nothing to evaluate."""
    text = o.text.read_bytes()
    needed = max(o.micro_batches, EVERY * max(o.machines)) * 2 * o.batch * o.length
    text = (text * (needed // len(text) + 1))[:needed]
    for split, size in (("train", needed), ("valid", 4 * o.batch * o.length), ("test", 4 * o.batch * o.length)):
        (folder / f"ptb.{split}.txt").write_bytes(text[:size])


def torch_words(o, machines, folder, rank):
    return [o.python, pathlib.Path(__file__).with_name("pipeline_torch.py"), folder / "summary.json", f"tcp://{FIRST}:29721",
            rank, TORCH_CUTS[machines], o.accumulate, o.micro_batches, o.width, o.batch, o.length]


def thinwire_words(o, machines, folder, rank, words):
    meeting = ["--workers", machines, "--join", f"{FIRST}:29720", "--rank", rank] if machines > 1 else []
    return [o.thinwire, "train", "lm", "--data", folder, "--unit", "char", "--model", "transformer", "--layers", 8, "--hidden",
            o.width, "--heads", 4, "--batch", o.batch, "--bptt", o.length, "--schedule", "constant", "--out", "none", "--quiet",
            *meeting, *words, *(["--json", folder / "summary.json"] if rank == 0 else [])]


def make_quota(o, name):
    """A control group's folder, whose quota comes before what others want; None: everybody may have a whole core."""
    if o.slower <= 1:
        return None
    second = pathlib.Path("/sys/fs/cgroup/cgroup.controllers").exists()
    group = pathlib.Path("/sys/fs/cgroup" if second else "/sys/fs/cgroup/cpu", name)
    group.mkdir()
    quota = f"{PERIOD / o.slower:.0f}"
    limits = {"cpu.max": f"{quota} {PERIOD}", "cpu.weight": "1000"} if second else {
        "cpu.cfs_period_us": f"{PERIOD}", "cpu.cfs_quota_us": quota, "cpu.shares": "10240"}
    for file, words in limits.items():
        (group / file).write_text(words)
    return group


def start(o, rank, words):
    """In its machine's network, and in its quota."""
    name = f"{os.environ['LINK']}-{rank}"
    group = make_quota(o, name)
    job = subprocess.Popen([str(word) for word in ("ip", "netns", "exec", name, *words)],
                           preexec_fn=group and (lambda: (group / "cgroup.procs").write_text(str(os.getpid()))),
                           env={**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "eth0"})
    return job, group


def work(o, machines, folder):
    """One way, in the network that link.sh has made."""
    name, batches, together, words = next(way for way in ways_of(o, machines) if way[0] == o.way[0])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # link.sh's, and what was made is taken away
    jobs, used = [], []
    try:
        for rank in range(machines):
            jobs.append(start(o, rank, torch_words(o, machines, folder, rank) if name == TORCH
                              else thinwire_words(o, machines, folder, rank, words)))
        for job, _ in jobs:
            _, status, usage = os.wait4(job.pid, 0)
            job.returncode = os.waitstatus_to_exitcode(status)
            if status:
                raise SystemExit(f"{name} with {machines} machines: a process ended with {job.returncode}")
            used.append(round((usage.ru_utime + usage.ru_stime) / batches, 3))
    finally:
        for job, group in jobs:
            job.kill()
            job.wait()
            if group:
                group.rmdir()
    seconds = json.loads((folder / "summary.json").read_text())["seconds"]
    row = {"machines": machines, "way": name, "per_second": round(o.slower * together / seconds["training"], 3)}
    if "wait" in seconds:
        row.update(waited=round(seconds["wait"] / seconds["training"], 3), processor=used)
    print(json.dumps(row))


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
                rows.append(json.loads(link.run(str(machines), o.rate / o.slower, words, o.seconds)))
                print(rows[-1], file=sys.stderr, flush=True)
    print(as_json({"made": made(), "gbit": o.rate, "width": o.width, "tokens": o.batch * o.length, "accumulate": o.accumulate,
                   "slower": o.slower, "rows": rows}))


if __name__ == "__main__":
    main()
