#!/usr/bin/env python3
"""What local steps cost and save a model that is sharded inside sites: a small GPT, by FSDP2 alone and under OuterLoop.

    torchrun --standalone --nproc_per_node=4 bench/sharded.py --text shakespeare.txt > sharded.json

Half of the ranks are one site, half another. `fsdp2` shards inside a site and averages gradients between sites in every
step, as fully_shard does over a mesh of two dimensions. Each other way is the spec of an OuterLoop between the sites.
Prints one JSON object: of each way the loss on text that nobody trained on, in nats a character, what a rank sent to the
other site, and how many times less than fsdp2 that is."""

import small_gpt
import thinwire.torch
import torch
import torch.distributed as dist
from small_gpt import gpt
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

FSDP2, SITES = "fsdp2", 2
WAYS = (FSDP2, "diloco:every=20", "diloco:every=20,exchange=bf16")


def trained(o, way, symbols, learnt, unseen):
    mesh = init_device_mesh("cpu", (SITES, dist.get_world_size() // SITES), mesh_dim_names=("site", "rank"))
    torch.manual_seed(1)
    model = gpt.GPT(symbols, o.length, o.width, o.layers, 4)
    parameters = sum(p.numel() for p in model.parameters())
    for part in (*model.layers.layers, model):
        fully_shard(part, mesh=mesh if way == FSDP2 else mesh["rank"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=o.rate, weight_decay=0.1)
    outer = None if way == FSDP2 else thinwire.torch.OuterLoop(model, optimizer, way, group=mesh["site"].get_group(), banner=False)
    small_gpt.train(o, 1, model, optimizer, learnt)
    # An all-reduce of a rank's shard sends 2 (sites - 1) / sites of it.
    sent = dense = o.steps * 2 * (SITES - 1) / SITES * 4 * parameters * SITES / dist.get_world_size()
    if outer:
        outer.finish()
        sent = outer.stats()["bytes_sent"]
    loss = small_gpt.loss_on(unseen, model, o)
    small_gpt.say(f"{way}: {loss:.4f}")
    return {"way": way, "loss": loss, "bytes_sent": sent, "times_less": dense / sent, "parameters": parameters}


def main():
    parser = small_gpt.parser_of(__doc__, "ways", WAYS, steps=400, width=64, layers=2)
    parser.set_defaults(batch=8)
    o = parser.parse_args()
    small_gpt.run(o, "ways", lambda *text: [trained(o, way, *text) for way in o.ways])


if __name__ == "__main__":
    main()
