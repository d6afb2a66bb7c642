#!/usr/bin/env python3
"""What AdamW learns beside each scheme: the same small GPT, batches and rates, exchanged by PyTorch and by thinwire.

    torchrun --standalone --nproc_per_node=2 bench/adamw.py --text shakespeare.txt > adamw.json
    sudo venv/bin/python bench/adamw.py --lines 1,0.1 --steps 200 torch:powersgd=4 dgc-adam --text shakespeare.txt > adamw.json

Without --text it reads the documents of this repository. Each scheme of the command line trains once with every seed,
after a run without thinwire, which is what its losses are put beside. torch:powersgd=R is torch's own hook of PowerSGD.
AdamW is fused where torch has that. Prints one JSON object: of each scheme the loss on text that nobody trained on, in nats
a character, its gap to dense, and how many times smaller messages are than fp32, which a hook of torch's does not tell.

With --lines each worker is a process in a network namespace of its own, behind a line of so many Gbit/s (bench/link.sh, and
what that needs). All schemes train at one rate after the other. Of each there is then the median step in the last quarter of
the run, behind every warm-up, with what a worker sent in one of these by the count of its network card; and the same of the
whole run, with its seconds. Needs a machine that does nothing else: the load before it is in the object."""

import json
import os
import statistics
import sys
import time

import link
import small_gpt
import torch
from made import as_json, made
from network_torch import Way, adamw_of
from small_gpt import gpt

SCHEMES = ("fp8", "qsgd", "powersgd:rank=16", "powersgd:rank=4", "topk:density=0.01", "onebit-adam", "dgc-adam",
           "dgc-adam:density=0.01,warmup_density=0.1", "dgc-adam:density=0.01,warmup_density=0.1,momentum=0.7")
DENSE = "torch:dense"
FIRST = "10.77.0.1"  # link.sh's first host
SECONDS = 1800  # that all schemes may take at one rate


def way_of(o, scheme):
    """By what name bench/network_torch.py has it, beta1, and whether it gives directions."""
    if scheme.startswith("torch:"):
        return scheme, 0.9, False
    beside = small_gpt.Beside(scheme, o.steps)
    return f"thinwire:{beside.spec}", beside.beta1, beside.gives_directions


def trained(o, scheme, seed, symbols, learnt, unseen):
    """The loss on unseen text, what the scheme sent, and how many parameters there are."""
    torch.manual_seed(seed)
    model = gpt.GPT(symbols, o.length, o.width, o.layers, 4)
    name, beta1, gives_directions = way_of(o, scheme)
    optimizer = adamw_of(name, model, lr=o.rate, betas=(beta1, 0.99), weight_decay=0.1)
    way, marks = Way(name, model, optimizer), []

    def with_gradient():
        marks.append((time.perf_counter(), link.bytes_of_device()[0]))
        if not gives_directions:
            torch.nn.utils.clip_grad_norm_(model.parameters(), small_gpt.CLIP)

    small_gpt.train(o, seed, way.module, optimizer, learnt, with_gradient)
    counts = way.plugged.stats() if way.plugged else dict.fromkeys(("ratio", "ratio_traffic"), 1.0 if scheme == DENSE else None)
    way.finish()
    found = {name: counts[name] for name in ("ratio", "ratio_traffic")}
    found.update(of_line(marks) if o.lines else {})
    return small_gpt.loss_on(unseen, model, o), found, sum(p.numel() for p in model.parameters())


def of_line(marks):
    """From when each step's gradient was there, and what the card had sent by then."""
    late = marks[-max(2, len(marks) // 4) - 1:]

    def sent(some):
        return (some[-1][1] - some[0][1]) / (len(some) - 1)

    return {"step_ms": 1e3 * statistics.median(after[0] - before[0] for before, after in zip(late, late[1:])),
            "sent_late": sent(late), "sent": sent(marks), "seconds": marks[-1][0] - marks[0][0]}


def row(o, scheme, dense, *text):
    begin, runs = time.perf_counter(), [trained(o, scheme, seed, *text) for seed in range(1, o.seeds + 1)]
    losses = [loss for loss, _, _ in runs]
    found = {"scheme": scheme, "loss": statistics.mean(losses), "losses": losses}
    if dense:
        found["gap"] = statistics.mean(mine - without for mine, without in zip(losses, dense["losses"]))
        found["deviation"] = statistics.stdev(losses) if o.seeds > 1 else None
    found.update({name: None if one is None else statistics.mean(counts[name] for _, counts, _ in runs) for name, one in runs[0][1].items()})
    small_gpt.say(f"{found['scheme']}: {found['loss']:.4f} after {time.perf_counter() - begin:.0f} s")
    return {**found, "parameters": runs[0][2]}


def over_lines(o):
    """Prints a row for each scheme: what it learnt, which no line changes, and what it took at each rate."""
    rows, load = {}, os.getloadavg()[0]
    os.environ.update(MASTER_ADDR=FIRST, MASTER_PORT="29702", GLOO_SOCKET_IFNAME="eth0", THINWIRE_BIND="eth0", OMP_NUM_THREADS="1")
    for gbit in o.lines:
        found = json.loads(link.run(str(o.workers), gbit, [sys.executable, "-B", __file__, *sys.argv[1:]], SECONDS))
        runs = found.pop("runs")
        dense = runs[0]["step_ms"]
        for run in runs:
            at = {name: run.pop(name) for name in ("step_ms", "seconds", "sent_late", "sent")}
            at["faster"] = dense / at["step_ms"]
            rows.setdefault(run["scheme"], {**run, "at": {}})["at"][f"{gbit:g} Gbit/s"] = at
    print(as_json({**found, "made": made(), "load": load, "rows": list(rows.values())}))


def main():
    parser = small_gpt.parser_of(__doc__, "schemes", SCHEMES, steps=500, seeds=1, width=128, layers=4)
    parser.add_argument("--lines", type=lambda text: [float(gbit) for gbit in text.split(",")], metavar="LIST", help="in Gbit/s")
    parser.add_argument("--workers", type=int, default=2, help="behind lines; torchrun tells it otherwise")
    o = parser.parse_args()
    if "torch:postlocal" in o.schemes:  # its weights are averaged behind steps, of which this bench tells nobody
        parser.error("torch:postlocal would train without its averages: bench/network.py measures it")
    if o.lines and "OMPI_COMM_WORLD_RANK" not in os.environ:
        return over_lines(o)
    if o.lines:
        os.environ.update({name: os.environ[f"OMPI_COMM_WORLD_{its}"] for name, its in (("RANK", "RANK"), ("WORLD_SIZE", "SIZE"))})

    def rows(*text):
        dense = row(o, DENSE, None, *text)
        return [dense, *(row(o, scheme, dense, *text) for scheme in o.schemes)]

    small_gpt.run(o, "schemes", rows)


if __name__ == "__main__":
    main()
