#!/usr/bin/env python3
"""A small GPT that learns to write text, character by character, on several workers.

    torchrun --standalone --nproc_per_node=2 examples/pytorch/gpt.py --out runs/gpt
    torchrun --standalone --nproc_per_node=2 examples/pytorch/gpt.py --text shakespeare.txt --scheme powersgd:rank=16

Without --text it reads the documents of this repository. The last line says how well it predicts text it has not seen, in
bits a character, and how much it sent. Started again with the same --out it goes on where it stopped."""

import argparse
import math
import os
from pathlib import Path
from typing import List, Optional, Tuple

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

import checkpoints
import thinwire.torch

DOCUMENTS = Path(__file__).resolve().parents[2] / "docs"


def device() -> str:
    """This worker's GPU, or the processor where there is none."""
    gpus = torch.cuda.device_count()
    return f"cuda:{int(os.environ.get('LOCAL_RANK', 0)) % gpus}" if gpus else "cpu"


def options(words: Optional[List[str]] = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=Path, nargs="*", default=sorted(DOCUMENTS.glob("*.md")), help="files in UTF-8")
    parser.add_argument("--scheme", default="powersgd:rank=16", help="what thinwire does; none leaves PyTorch alone")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--batch", type=int, default=16, help="sequences a worker and step")
    parser.add_argument("--length", type=int, default=128, help="characters a sequence")
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--device", default=device(), help="where the model is (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--every", type=int, default=100, help="steps between lines and checkpoints")
    parser.add_argument("--out", type=Path, help="a folder for checkpoints")
    return parser.parse_args(words)


class GPT(nn.Module):
    def __init__(self, symbols: int, length: int, width: int, layers: int, heads: int):
        super().__init__()
        self.symbols, self.places = nn.Embedding(symbols, width), nn.Embedding(length, width)
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=0.0, activation="gelu", batch_first=True,
                                           norm_first=True)
        self.layers = nn.TransformerEncoder(layer, layers, nn.LayerNorm(width), enable_nested_tensor=False)
        self.register_buffer("future", torch.full((length, length), -math.inf).triu(1), persistent=False)
        self.out = nn.Linear(width, symbols, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        length = x.shape[1]
        here = self.symbols(x) + self.places.weight[:length]
        return self.out(self.layers(here, mask=self.future[:length, :length]))


def read(paths: List[Path]) -> Tuple[List[str], torch.Tensor]:
    """The alphabet, and the text in it."""
    text = "\n".join(path.read_text(encoding="utf-8") for path in paths)
    alphabet = sorted(set(text))
    number = {symbol: i for i, symbol in enumerate(alphabet)}
    return alphabet, torch.tensor([number[symbol] for symbol in text])


def drawn(text: torch.Tensor, generator: torch.Generator, batch: int, length: int) -> Tuple[torch.Tensor, torch.Tensor]:
    begin = torch.randint(len(text) - length - 1, (batch, 1), generator=generator)
    rows = text[begin + torch.arange(length + 1)]
    return rows[:, :-1], rows[:, 1:]


def loss_of(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    here = next(model.parameters()).device
    return cross_entropy(model(x.to(here)).flatten(0, 1), y.to(here).flatten())


@torch.no_grad()
def bits(model: nn.Module, text: torch.Tensor, batch: int, length: int, batches: int = 8) -> float:
    """A character of text that it has not seen: the same batches every time, on every worker."""
    generator = torch.Generator().manual_seed(0)
    losses = [loss_of(model, *drawn(text, generator, batch, length)) for _ in range(batches)]
    return float(sum(losses)) / batches / math.log(2)


def rate_at(step: int, o: argparse.Namespace) -> float:
    """Up over the first twentieth, then down to a tenth along a cosine."""
    up = max(1, o.steps // 20)
    if step < up:
        return o.rate * (step + 1) / up
    return o.rate * (0.55 + 0.45 * math.cos(math.pi * (step - up) / max(1, o.steps - up)))


def main(words: Optional[List[str]] = None) -> Tuple[nn.Module, List[float]]:
    """The model, and the loss of every step."""
    o = options(words)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    alphabet, text = read(o.text)
    learnt, unseen = text[:len(text) * 9 // 10], text[len(text) * 9 // 10:]
    torch.manual_seed(o.seed)
    model = GPT(len(alphabet), o.length, o.width, o.layers, o.heads).to(o.device)
    ddp = DistributedDataParallel(model, gradient_as_bucket_view=True)
    optimizer = torch.optim.AdamW(ddp.parameters(), lr=o.rate, weight_decay=0.01)
    compressor = None if o.scheme == "none" else thinwire.torch.attach(ddp, o.scheme, optimizer=optimizer)

    parts = {"model": model, "optimizer": optimizer, "compressor": compressor}
    begin, losses = checkpoints.resume(o.out, **parts) if o.out else 0, []
    for step in range(begin, o.steps):
        for group in optimizer.param_groups:
            group["lr"] = rate_at(step, o)
        generator = torch.Generator().manual_seed((o.seed * 1_000_000 + step) * 1000 + rank)
        loss = loss_of(ddp, *drawn(learnt, generator, o.batch, o.length))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if (step + 1) % o.every == 0:
            if rank == 0:
                print(f"step {step + 1}: loss {losses[-1]:.3f}", flush=True)
            if o.out:
                checkpoints.save(o.out, step + 1, **parts)
    if rank == 0:
        print(f"{bits(model, unseen, o.batch, o.length):.3f} bits a character after {o.steps} steps; "
              f"{compressor.summary() if compressor else 'DDP alone'}", flush=True)
    if compressor:
        compressor.close()
    del ddp  # before its group: as the last to hold that, it may wait for ever for a thread of Gloo's, which waits for Python
    dist.destroy_process_group()
    return model, losses


if __name__ == "__main__":
    main()
