#!/usr/bin/env python3
"""What AdamW learns beside each scheme: the same small GPT, batches and rates, exchanged by PyTorch and by thinwire.

    torchrun --standalone --nproc_per_node=2 bench/adamw.py --text shakespeare.txt > adamw.json

Without --text it reads the documents of this repository. Each scheme of the command line trains once with every seed,
after a run without thinwire, which is what its losses are put beside. Prints one JSON object: of each scheme the loss on
text that nobody trained on, in nats a character, its gap to dense, and how many times smaller messages are than fp32."""

import argparse
import json
import statistics
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples" / "pytorch"))
import gpt  # noqa: E402
import thinwire.torch  # noqa: E402
from thinwire.spec import defaults_of, name_of, options_of, with_option  # noqa: E402

SCHEMES = ("fp8", "qsgd", "powersgd:rank=16", "powersgd:rank=4", "topk:density=0.01", "onebit-adam", "dgc-adam",
           "dgc-adam:density=0.01,warmup_density=0.1", "dgc-adam:density=0.01,warmup_density=0.1,momentum=0.7")
CLIP = 1.0  # of the gradient's norm
HELD_OUT = 16  # batches


def options(words=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("schemes", nargs="*", default=SCHEMES)
    parser.add_argument("--text", type=Path, nargs="*", default=sorted(gpt.DOCUMENTS.glob("*.md")), help="files in UTF-8")
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--seeds", type=int, default=1, help="how many")
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--batch", type=int, default=12, help="sequences a worker and step")
    return parser.parse_args(words)


def trained(o, scheme, seed, symbols, text):
    """The loss on unseen text, what the scheme sent, and how many parameters there are. None: no scheme."""
    rank, (learnt, unseen) = dist.get_rank(), text
    torch.manual_seed(seed)
    model = gpt.GPT(symbols, o.length, o.width, o.layers, 4)
    ddp = DistributedDataParallel(model, gradient_as_bucket_view=True)
    spec = scheme and thinwire.for_run(scheme, o.steps)
    own = options_of(spec) if spec else {}
    optimizer = thinwire.torch.AdamW(ddp.parameters(), lr=o.rate, betas=(float(own.get("momentum", 0.9)), 0.99), weight_decay=0.1)
    if spec and "beta2" in defaults_of(name_of(spec)) and "clip" in defaults_of(name_of(spec)):
        spec = with_option(spec, "clip", str(CLIP))  # what comes out is no gradient to clip
    compressor = spec and thinwire.torch.attach(ddp, spec, optimizer=optimizer, fallback=False, banner=False)
    for step in range(o.steps):
        for group in optimizer.param_groups:
            group["lr"] = gpt.rate_at(step, o)
        generator = torch.Generator().manual_seed((seed * 1_000_000 + step) * 1000 + rank)
        optimizer.zero_grad()
        gpt.loss_of(ddp, *gpt.drawn(learnt, generator, o.batch, o.length)).backward()
        if not optimizer.takes_directions:
            torch.nn.utils.clip_grad_norm_(ddp.parameters(), CLIP)
        optimizer.step()
    counts = compressor.stats() if compressor else {"ratio": 1.0, "ratio_traffic": 1.0}
    if compressor:
        compressor.close()
    with torch.no_grad():
        generator = torch.Generator().manual_seed(0)
        losses = [gpt.loss_of(model, *gpt.drawn(unseen, generator, o.batch, o.length)).item() for _ in range(HELD_OUT)]
    return statistics.mean(losses), counts, sum(p.numel() for p in model.parameters())


def row(o, scheme, dense, *text):
    begin, runs = time.perf_counter(), [trained(o, scheme, seed, *text) for seed in range(1, o.seeds + 1)]
    losses = [loss for loss, _, _ in runs]
    found = {"scheme": scheme or "none", "loss": statistics.mean(losses), "losses": losses}
    if dense:
        found["gap"] = statistics.mean(mine - without for mine, without in zip(losses, dense["losses"]))
        found["deviation"] = statistics.stdev(losses) if o.seeds > 1 else None
    found.update({name: statistics.mean(counts[name] for _, counts, _ in runs) for name in ("ratio", "ratio_traffic")})
    if dist.get_rank() == 0:
        print(f"{found['scheme']}: {found['loss']:.4f} after {time.perf_counter() - begin:.0f} s", file=sys.stderr, flush=True)
    return {**found, "parameters": runs[0][2]}


def main(words=None):
    o = options(words)
    dist.init_process_group("gloo")
    alphabet, whole = gpt.read(o.text)
    text = len(alphabet), (whole[:len(whole) * 9 // 10], whole[len(whole) * 9 // 10:])
    rows = [row(o, None, None, *text)]
    rows += [row(o, scheme, rows[0], *text) for scheme in o.schemes]
    if dist.get_rank() == 0:
        told = {name: value for name, value in vars(o).items() if name not in ("text", "schemes")}
        print(json.dumps({"torch": torch.__version__, "workers": dist.get_world_size(), **told, "runs": rows}, indent=1))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
