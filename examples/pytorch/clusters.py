#!/usr/bin/env python3
"""The small GPT of gpt.py in two groups of unlike size, each of which has sharded a model of its own with FSDP2.

    torchrun --standalone --nproc_per_node=5 examples/pytorch/clusters.py --sizes 2 3

A group trains by itself, on text that it draws. Once in --average steps the groups' weights become their mean: a rank
exchanges what it holds, straight with those ranks of the other groups that hold the same. It needs PyTorch 2.6 or later."""

import argparse
import hashlib
from typing import List, Optional

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard

import gpt
import thinwire.torch


def options(words: Optional[List[str]] = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
                                     epilog="--text, --steps, --rate and the others of gpt.py --help go with it.")
    parser.add_argument("--sizes", type=int, nargs="+", default=[2, 3], help="ranks of each group")
    parser.add_argument("--average", type=int, default=20, help="steps between two averages")
    mine, rest = parser.parse_known_args(words)
    return argparse.Namespace(**{**vars(gpt.options(rest)), **vars(mine)})


def digest(model: torch.nn.Module) -> str:
    """By which a group's weights are known again."""
    values = torch.cat([p.full_tensor().detach().reshape(-1) for p in model.parameters()])
    return hashlib.sha256(bytes(values.view(torch.uint8).tolist())).hexdigest()[:12]


def main(words: Optional[List[str]] = None) -> None:
    o = options(words)
    dist.init_process_group("gloo")
    rank, groups, first = dist.get_rank(), [], 0
    if sum(o.sizes) != dist.get_world_size():
        raise SystemExit(f"--sizes {o.sizes} are {sum(o.sizes)} ranks, and there are {dist.get_world_size()}")
    for size in o.sizes:
        groups.append(dist.new_group(list(range(first, first + size))))
        first += size
    cluster = next(number for number, size in enumerate(o.sizes) if rank < sum(o.sizes[:number + 1]))
    leads = dist.get_rank(groups[cluster]) == 0

    alphabet, text = gpt.read(o.text)
    learnt, unseen = text[:len(text) * 9 // 10], text[len(text) * 9 // 10:]
    torch.manual_seed(o.seed)  # all groups begin alike
    model = gpt.GPT(len(alphabet), o.length, o.width, o.layers, o.heads)
    fully_shard(model, mesh=DeviceMesh.from_group(groups[cluster], "cpu"))
    optimizer = torch.optim.AdamW(model.parameters(), lr=o.rate, weight_decay=0.01)
    clusters = thinwire.torch.Clusters(model, cluster)
    for step in range(o.steps):
        generator = torch.Generator().manual_seed((o.seed * 1_000_000 + step) * 1000 + rank)
        loss = gpt.loss_of(model, *gpt.drawn(learnt, generator, o.batch, o.length))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if (step + 1) % o.average == 0:
            clusters.average()
    clusters.average()
    weights, bits = digest(model), gpt.bits(model, unseen, o.batch, o.length)
    if leads:
        print(f"group {cluster} of {o.sizes[cluster]}: {bits:.3f} bits a character, with weights {weights}; "
              f"its first rank sent {clusters.traffic()['bytes_sent'] / 1e6:.2f} MB", flush=True)
    clusters.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
