#!/usr/bin/env python3
"""Accelerate with thinwire: one call after prepare().

    torchrun --standalone --nproc_per_node=2 examples/pytorch/with_accelerate.py --out runs/accelerate

Started again with the same --out it goes on where it stopped, with what thinwire kept for later steps."""

import argparse
from pathlib import Path
from typing import List, Optional, Tuple

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn

import thinwire.torch.accelerate


def options(words: Optional[List[str]] = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scheme", default="powersgd:rank=16", help="none: without thinwire")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--every", type=int, default=50, help="steps between checkpoints")
    parser.add_argument("--out", type=Path, default=Path("runs/accelerate"))
    return parser.parse_args(words)


def batch(step: int, rank: int, teacher: torch.Tensor) -> Tuple[torch.Tensor, torch.Tensor]:
    x = torch.randn(32, 64, generator=torch.Generator().manual_seed(1000 * step + rank))
    return x, (x @ teacher).argmax(1)


def main(words: Optional[List[str]] = None) -> Tuple[nn.Module, List[float]]:
    o = options(words)
    accelerator = Accelerator(cpu=True)
    set_seed(1)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    teacher = torch.randn(64, 10, generator=torch.Generator().manual_seed(1))
    model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=1e-2))
    compressor = None
    if o.scheme != "none":
        compressor = thinwire.torch.accelerate.attach(accelerator, model, o.scheme, optimizer=optimizer)

    saved = [int(path.name[5:]) for path in o.out.glob("step-*")]
    begin, losses = max(saved, default=0), []
    if saved:
        accelerator.load_state(str(o.out / f"step-{begin}"))
    for step in range(begin, o.steps):
        x, y = batch(step, accelerator.process_index, teacher)
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
        losses.append(loss.item())
        if (step + 1) % o.every == 0:
            accelerator.save_state(str(o.out / f"step-{step + 1}"))
    accelerator.print(f"loss {sum(losses[-10:]) / 10:.3f} after {o.steps} steps")
    if compressor:
        accelerator.print(compressor.summary())
        compressor.close()
    model = accelerator.unwrap_model(model)
    accelerator.end_training()
    return model, losses


if __name__ == "__main__":
    main()
