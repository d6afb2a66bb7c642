#!/usr/bin/env python3
"""Fine-tunes the GPT of gpt.py with LoRA on several workers: what is trained is small, and only that is sent.

    torchrun --standalone --nproc_per_node=2 examples/pytorch/gpt.py --text shakespeare.txt --out runs/gpt
    torchrun --standalone --nproc_per_node=2 examples/pytorch/lora.py --base runs/gpt --alphabet shakespeare.txt \
        --text letters.txt --out runs/lora

Beside every matrix of the base, which is frozen, stands a product of two thin ones, which is trained (Hu et al., 2021).
--base is the --out of gpt.py, and --alphabet its --text; without --base the base is random, which shows what is sent and
nothing else. Symbols that the base does not know are left out of the text."""

import argparse
from pathlib import Path
from typing import List, Optional, Tuple

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import parametrize

import checkpoints
import gpt
import thinwire.torch


def options(words: Optional[List[str]] = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", type=Path, help="the folder that gpt.py left")
    parser.add_argument("--alphabet", type=Path, nargs="*", default=sorted(gpt.DOCUMENTS.glob("*.md")), help="gpt.py's --text")
    parser.add_argument("--text", type=Path, nargs="*", default=sorted(gpt.DOCUMENTS.glob("*.md")), help="what is learnt now")
    parser.add_argument("--rank", type=int, default=8, help="columns of the thin matrices")
    parser.add_argument("--scheme", default="bf16", help="what thinwire does; none leaves PyTorch alone")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch", type=int, default=16, help="sequences a worker and step")
    parser.add_argument("--length", type=int, default=128, help="characters a sequence; as the base has it")
    parser.add_argument("--width", type=int, default=128, help="as the base has it")
    parser.add_argument("--layers", type=int, default=4, help="as the base has it")
    parser.add_argument("--heads", type=int, default=4, help="as the base has it")
    parser.add_argument("--rate", type=float, default=3e-3)
    parser.add_argument("--device", default=gpt.device(), help="where the model is (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--every", type=int, default=100, help="steps between checkpoints")
    parser.add_argument("--out", type=Path, help="a folder for checkpoints")
    return parser.parse_args(words)


class LowRank(nn.Module):
    """Adds to a weight the product of two thin matrices. The product is zero until the first step."""

    def __init__(self, weight: torch.Tensor, rank: int):
        super().__init__()
        self.up = nn.Parameter(torch.zeros(weight.shape[0], rank))
        self.down = nn.Parameter(torch.randn(rank, weight.shape[1]) / weight.shape[1] ** 0.5)

    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        return weight + self.up @ self.down


def adapt(model: nn.Module, rank: int) -> List[nn.Parameter]:
    """Freezes the model, and gives all of its linear layers adapters. What is trained then."""
    model.requires_grad_(False)
    for layer in [module for module in model.modules() if isinstance(module, nn.Linear)]:
        parametrize.register_parametrization(layer, "weight", LowRank(layer.weight, rank))
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def text_in(alphabet: List[str], paths: List[Path]) -> torch.Tensor:
    number = {symbol: i for i, symbol in enumerate(alphabet)}
    text = "\n".join(path.read_text(encoding="utf-8") for path in paths)
    return torch.tensor([number[symbol] for symbol in text if symbol in number])


def main(words: Optional[List[str]] = None) -> Tuple[nn.Module, List[float]]:
    """The model, and the loss of every step."""
    o = options(words)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    alphabet, _ = gpt.read(o.alphabet)
    text = text_in(alphabet, o.text)
    torch.manual_seed(o.seed)
    model = gpt.GPT(len(alphabet), o.length, o.width, o.layers, o.heads)
    if o.base:
        checkpoints.resume(o.base, model=model)
    trained = adapt(model, o.rank)
    model.to(o.device)
    ddp = DistributedDataParallel(model, gradient_as_bucket_view=True)
    optimizer = torch.optim.AdamW(trained, lr=o.rate)
    compressor = None if o.scheme == "none" else thinwire.torch.attach(ddp, o.scheme, optimizer=optimizer)
    if rank == 0:
        everything, part = (sum(p.numel() for p in parameters) for parameters in (model.parameters(), trained))
        print(f"{part:,} of {everything:,} parameters are trained: {4 * part / 1000:,.0f} kB a step as fp32", flush=True)

    parts = {"model": model, "optimizer": optimizer, "compressor": compressor}
    begin, losses = checkpoints.resume(o.out, **parts) if o.out else 0, []
    for step in range(begin, o.steps):
        generator = torch.Generator().manual_seed((o.seed * 1_000_000 + step) * 1000 + rank)
        loss = gpt.loss_of(ddp, *gpt.drawn(text, generator, o.batch, o.length))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if o.out and (step + 1) % o.every == 0:
            checkpoints.save(o.out, step + 1, **parts)
    if rank == 0:
        print(f"loss {losses[-1] if losses else float('nan'):.3f} after {o.steps} steps; "
              f"{compressor.summary() if compressor else 'DDP alone'}", flush=True)
    if compressor:
        compressor.close()
    del ddp  # before its group: as the last to hold that, it may wait for ever for a thread of Gloo's, which waits for Python
    dist.destroy_process_group()
    return model, losses


if __name__ == "__main__":
    main()
