#!/usr/bin/env python3
"""What ways to exchange cost a fine-tuning with LoRA, in steps more than an exact exchange takes (docs/planning.md).

    bench/adapters.py --base-text shakespeare.txt --text letters.txt > adapters.json

The workers are those of bench/apart.py: each has adapters (peft) beside a small Llama, and a part of the text that no other
has. Here they are processes of this machine, whose line says nothing, and all is about what they learn. PyTorch's own
DistributedDataParallel trains for several lengths, each with the schedule of its own; every other way trains for the last
of them. What a way ends with lies on the straight line between two lengths of dense: after so many steps dense had it.
Prints one JSON object: of each way the loss on text that nobody trained on, in nats a byte, of every seed and their mean;
these steps of dense; and the steps more, in percent. Needs torch, transformers and peft."""

import argparse
import multiprocessing
import os
import statistics
import sys
import tempfile

import apart
import compare
from made import as_json

DENSE = "ddp"
WAYS = ["bf16", "fp8", "qsgd", "dgc-adam", "dgc-adam:density=0.01,warmup_density=0.1", "diloco:every=20", "diloco:every=50",
        "sparseloco:every=20,k=256,agg=senders"]


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    apart.add_problem(parser)
    parser.add_argument("ways", nargs="*", default=WAYS, help="specs of attach's or OuterLoop's")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--lengths", type=int, nargs="+", default=[150, 200, 250, 300], help="of dense, in steps")
    parser.add_argument("--seeds", type=int, default=3)
    return parser.parse_args()


def learn(o, way, seed, steps, folder, rank, losses):
    """One worker, from the base to the loss."""
    import thinwire.torch
    import torch
    model, optimizer, part, unseen, generator = apart.problem(o, folder, seed, rank, o.workers)
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/{way}-{seed}-{steps}", rank=rank, world_size=o.workers)
    trained, loop = model, None
    if way.partition(":")[0] in dict(thinwire.outers()):
        loop = thinwire.torch.OuterLoop(model, optimizer, way, banner=False)
        loop.begin()
    else:
        trained = torch.nn.parallel.DistributedDataParallel(model)
    if not loop and way != DENSE:
        optimizer = thinwire.torch.AdamW(optimizer.param_groups[0]["params"], lr=o.lr)
        thinwire.torch.attach(trained, thinwire.for_run(way, steps), optimizer=optimizer, fallback=False, banner=False)
    apart.train(trained, optimizer, part, generator, steps, o)
    if loop:
        loop.finish()
    if rank == 0:
        losses.put(apart.loss_of(model, unseen, o))
    torch.distributed.barrier()  # whoever is done first holds the others' connections until then
    os._exit(0)


def of_forks(o, target, arguments, count):
    """Of processes that need not load torch again; autograd's threads would not outlive a fork of one that has trained."""
    jobs = [multiprocessing.Process(target=target, args=arguments(rank)) for rank in range(count)]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join(o.seconds)
    late = [job for job in jobs if job.exitcode != 0]
    for job in jobs:
        job.kill()
    if late:
        sys.exit(f"{late[0].name} has not ended within {o.seconds:g} seconds, or has failed")


def dense_steps(loss, dense):
    """After how many steps dense had this loss, by its losses at several; at the last of them where it never was as good."""
    lengths = sorted(dense)
    for before, after in zip(lengths, lengths[1:]):
        if dense[after] <= loss <= dense[before]:
            return before + (after - before) * (dense[before] - loss) / (dense[before] - dense[after])
    if loss > dense[lengths[0]]:
        sys.exit(f"a loss of {loss} is above that of {lengths[0]} dense steps; give --lengths a shorter one")
    return lengths[-1]


def main():
    o = options()
    multiprocessing.set_start_method("fork")
    import peft, torch, transformers  # noqa: E401, F401: for the forks
    losses = multiprocessing.SimpleQueue()
    runs = [(DENSE, steps) for steps in sorted(o.lengths)] + [(way, max(o.lengths)) for way in o.ways]
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        of_forks(o, apart.train_base, lambda rank: (o, folder), 1)
        for way, steps in runs:
            found = []
            for seed in range(1, o.seeds + 1):
                of_forks(o, learn, lambda rank: (o, way, seed, steps, folder, rank, losses), o.workers)
                found.append(losses.get())
            rows.append({"spec": "allreduce" if way == DENSE else way, "steps": steps, "losses": found, "loss": statistics.mean(found)})
            print(rows[-1], file=sys.stderr, flush=True)
    dense = {row["steps"]: row["loss"] for row in rows if row["spec"] == "allreduce"}
    for row in rows:
        after = None if row["spec"] == "allreduce" else dense_steps(row["loss"], dense)
        row.update(after=after, more=after and 100 * (row["steps"] / after - 1))
    print(as_json({"made": compare.made(), "workers": o.workers, "rows": rows}))


if __name__ == "__main__":
    main()
