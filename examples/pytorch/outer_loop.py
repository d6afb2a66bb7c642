#!/usr/bin/env python3
"""The small GPT of gpt.py, with AdamW, on machines that exchange once in many steps.

    torchrun --standalone --nproc_per_node=2 examples/pytorch/outer_loop.py --out runs/outer
    torchrun --standalone --nproc_per_node=2 examples/pytorch/outer_loop.py --text shakespeare.txt --spec local:every=16

Each worker trains by itself, on text that it draws. Once in as many steps as the spec says, all go on from shared
weights. These are what it evaluates, and what is in the model at the end. Started again with the same --out it goes on where it
stopped."""

import argparse
from pathlib import Path
from typing import List, Optional

import torch
import torch.distributed as dist

import checkpoints
import gpt
import thinwire.torch


def options(words: Optional[List[str]] = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
                                     epilog="--text, --steps, --rate and the others of gpt.py --help go with it.")
    parser.add_argument("--spec", default="diloco:every=50", help="the method of local updates")
    mine, rest = parser.parse_known_args(words)
    return argparse.Namespace(**{**vars(gpt.options(rest)), **vars(mine)})


def main(words: Optional[List[str]] = None) -> None:
    o = options(words)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    alphabet, text = gpt.read(o.text)
    learnt, unseen = text[:len(text) * 9 // 10], text[len(text) * 9 // 10:]
    torch.manual_seed(o.seed)
    model = gpt.GPT(len(alphabet), o.length, o.width, o.layers, o.heads).to(o.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=o.rate, weight_decay=0.01)
    outer = thinwire.torch.OuterLoop(model, optimizer, o.spec, hook=False)

    def tell(when: str) -> None:
        with outer.averaged():
            if rank == 0:
                bits = gpt.bits(model, unseen, o.batch, o.length)
                print(f"{when}: {bits:.3f} bits a character, with weights {outer.hash}", flush=True)

    parts = {"model": model, "optimizer": optimizer, "outer": outer}
    begin = checkpoints.resume(o.out, **parts) if o.out else 0
    tell("start")
    for step in range(begin, o.steps):
        for group in optimizer.param_groups:
            group["lr"] = gpt.rate_at(step, o)
        generator = torch.Generator().manual_seed((o.seed * 1_000_000 + step) * 1000 + rank)
        loss = gpt.loss_of(model, *gpt.drawn(learnt, generator, o.batch, o.length))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        outer.step()  # not needed where a hook counts: from PyTorch 2.0 on, without hook=False
        if (step + 1) % o.every == 0:
            tell(f"step {step + 1}")
            if o.out:
                checkpoints.save(o.out, step + 1, **parts)
    outer.finish()
    tell("end")
    if rank == 0:
        print(outer.summary(), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
