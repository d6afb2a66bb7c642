#!/usr/bin/env python3
"""The network of with_accelerate.py on machines that know one address: each runs this line by itself, without torchrun.

    python examples/pytorch/joined_accelerate.py --join 10.0.0.5:7000 --workers 2 --machine 0    # and --machine 1 on the other

Without --workers they come and go, and --machine is any number that no other has. Ctrl-C leaves, and the others go on."""

import argparse
from typing import List, Optional

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn

from thinwire.torch.accelerate import LocalSGD
from with_accelerate import batch


def options(words: Optional[List[str]] = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--join", required=True, help="HOST:PORT")
    parser.add_argument("--workers", type=int, help="how many machines there are; without it they come and go")
    parser.add_argument("--quorum", type=int, default=0, help="without --workers, how many have to be there for those to go on; 1: one")
    parser.add_argument("--machine", type=int, default=0, help="by which it draws its examples")
    parser.add_argument("--spec", default="local", help="the method of local updates")
    parser.add_argument("--steps", type=int, default=192)
    return parser.parse_args(words)


def main(words: Optional[List[str]] = None) -> None:
    o = options(words)
    accelerator = Accelerator(cpu=True)
    set_seed(1)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    teacher = torch.randn(64, 10, generator=torch.Generator().manual_seed(1))
    model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=1e-2))
    losses = []
    with LocalSGD(accelerator=accelerator, model=model, local_sgd_steps=16, spec=o.spec, join=o.join, workers=o.workers, quorum=o.quorum) as local_sgd:
        for step in range(o.steps):
            x, y = batch(step, o.machine, teacher)
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()
            local_sgd.step()
            losses.append(loss.item())
    print(f"loss {sum(losses[-10:]) / 10:.3f} after {o.steps} steps", flush=True)


if __name__ == "__main__":
    main()
