#!/usr/bin/env python3
"""What local steps cost and save a model that is sharded inside sites: a small GPT, by FSDP2 alone and under OuterLoop.

    torchrun --standalone --nproc_per_node=4 bench/sharded.py --text shakespeare.txt > sharded.json

Half of the ranks are one site, half another. `fsdp2` shards inside a site and averages gradients between sites in every
step, as fully_shard does over a mesh of two dimensions. Each other way is the spec of an OuterLoop between the sites.
Prints one JSON object: of each way the loss on text that nobody trained on, in nats a character, what a rank sent to the
other site, and how many times less than fsdp2 that is."""

import argparse
import json
import statistics
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples" / "pytorch"))
import gpt  # noqa: E402
import thinwire.torch  # noqa: E402

FSDP2, SITES, HELD_OUT = "fsdp2", 2, 16


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ways", nargs="*", default=(FSDP2, "diloco:every=20", "diloco:every=20,exchange=bf16"))
    parser.add_argument("--text", type=Path, nargs="*", default=sorted(gpt.DOCUMENTS.glob("*.md")), help="files in UTF-8")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--batch", type=int, default=8, help="sequences a worker and step")
    return parser.parse_args()


def trained(o, way, symbols, learnt, unseen):
    mesh = init_device_mesh("cpu", (SITES, dist.get_world_size() // SITES), mesh_dim_names=("site", "rank"))
    torch.manual_seed(1)
    model = gpt.GPT(symbols, o.length, o.width, o.layers, 4)
    parameters = sum(p.numel() for p in model.parameters())
    for part in (*model.layers.layers, model):
        fully_shard(part, mesh=mesh if way == FSDP2 else mesh["rank"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=o.rate, weight_decay=0.1)
    outer = None if way == FSDP2 else thinwire.torch.OuterLoop(model, optimizer, way, group=mesh["site"].get_group(), banner=False)
    for step in range(o.steps):
        for group in optimizer.param_groups:
            group["lr"] = gpt.rate_at(step, o)
        generator = torch.Generator().manual_seed((1_000_000 + step) * 1000 + dist.get_rank())
        optimizer.zero_grad()
        gpt.loss_of(model, *gpt.drawn(learnt, generator, o.batch, o.length)).backward()
        optimizer.step()
    # An all-reduce of a rank's shard sends 2 (sites - 1) / sites of it.
    sent = dense = o.steps * 2 * (SITES - 1) / SITES * 4 * parameters * SITES / dist.get_world_size()
    if outer:
        outer.finish()
        sent = outer.stats()["bytes_sent"]
    with torch.no_grad():
        generator = torch.Generator().manual_seed(0)
        losses = [gpt.loss_of(model, *gpt.drawn(unseen, generator, o.batch, o.length)).item() for _ in range(HELD_OUT)]
    return {"way": way, "loss": statistics.mean(losses), "bytes_sent": sent, "times_less": dense / sent, "parameters": parameters}


def main():
    o = options()
    dist.init_process_group("gloo")
    alphabet, text = gpt.read(o.text)
    parts = len(alphabet), text[:len(text) * 9 // 10], text[len(text) * 9 // 10:]
    runs = []
    for way in o.ways:
        runs.append(trained(o, way, *parts))
        if dist.get_rank() == 0:
            print(f"{way}: {runs[-1]['loss']:.4f}", file=sys.stderr, flush=True)
    if dist.get_rank() == 0:
        told = {name: value for name, value in vars(o).items() if name not in ("text", "ways")}
        print(json.dumps({"torch": torch.__version__, "workers": dist.get_world_size(), **told, "runs": runs}, indent=1))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
