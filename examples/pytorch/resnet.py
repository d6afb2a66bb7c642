#!/usr/bin/env python3
"""ResNet-20 learns CIFAR-10 on several workers.

    torchrun --standalone --nproc_per_node=2 examples/pytorch/resnet.py --data cifar-10-batches-bin --out runs/resnet

--data is the folder of CIFAR-10's binary version, with data_batch_1.bin to data_batch_5.bin and test_batch.bin. Without
it the pictures are made up, for a first try: noise around a pattern for each class. The last line says the accuracy on
the test set, and how much was sent. Started again with the same --out it goes on where it stopped."""

import argparse
import math
from pathlib import Path
from typing import List, Optional, Tuple

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy, pad, relu
from torch.nn.parallel import DistributedDataParallel

import checkpoints
import gpt
import thinwire.torch

Pictures = Tuple[torch.Tensor, torch.Tensor]  # N x 3 x 32 x 32 bytes, and classes


def options(words: Optional[List[str]] = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="CIFAR-10's folder; made-up pictures without it")
    parser.add_argument("--scheme", default="dgc", help="what thinwire does; none leaves PyTorch alone")
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--batch", type=int, default=32, help="pictures a worker and step")
    parser.add_argument("--width", type=int, default=16, help="channels of the first stage")
    parser.add_argument("--rate", type=float, default=0.1)
    parser.add_argument("--momentum", type=float, default=0.9)
    parser.add_argument("--decay", type=float, default=1e-4)
    parser.add_argument("--device", default=gpt.device(), help="where the model is (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, help="a folder for checkpoints, one an epoch")
    return parser.parse_args(words)


class Block(nn.Module):
    """Two convolutions beside a way around them, which drops every other pixel and fills up with channels of zero."""

    def __init__(self, inputs: int, outputs: int):
        super().__init__()
        self.stride, self.more = outputs // inputs, outputs - inputs
        self.conv1 = nn.Conv2d(inputs, outputs, 3, self.stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm2(self.conv2(relu(self.norm1(self.conv1(x)))))
        around = pad(x[:, :, ::self.stride, ::self.stride], (0, 0, 0, 0, 0, self.more))
        return relu(y + around)


def resnet20(width: int) -> nn.Module:
    widths = [width] * 4 + [2 * width] * 3 + [4 * width] * 3
    blocks = [Block(*pair) for pair in zip(widths, widths[1:])]
    return nn.Sequential(nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(), *blocks,
                         nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4 * width, 10))


def read(paths: List[Path]) -> Pictures:
    """Of each picture a byte for the class and 3,072 for the colours."""
    parts = [torch.frombuffer(bytearray(path.read_bytes()), dtype=torch.uint8).reshape(-1, 3073) for path in paths]
    rows = torch.cat(parts)
    return rows[:, 1:].reshape(-1, 3, 32, 32), rows[:, 0].long()


def made_up(count: int, seed: int) -> Pictures:
    patterns = torch.randint(0, 256, (10, 3, 32, 32), generator=torch.Generator().manual_seed(0))
    generator = torch.Generator().manual_seed(seed)
    classes = torch.randint(0, 10, (count,), generator=generator)
    noise = torch.randint(0, 256, (count, 3, 32, 32), generator=generator)
    return ((patterns[classes] + 3 * noise) // 4).to(torch.uint8), classes


def pictures(folder: Optional[Path]) -> Tuple[Pictures, Pictures]:
    if folder is None:
        return made_up(2560, 1), made_up(512, 2)
    return read(sorted(folder.glob("data_batch_*.bin"))), read([folder / "test_batch.bin"])


def scaled(x: torch.Tensor) -> torch.Tensor:
    return (x.float() - 120) / 64


def varied(x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """All of a batch moved by the same few pixels, and every other one in the mirror."""
    right, down = torch.randint(-4, 5, (2,), generator=generator).tolist()
    moved = torch.roll(pad(x, (4, 4, 4, 4)), (down, right), (2, 3))[:, :, 4:-4, 4:-4]
    mirrored = torch.rand(len(x), 1, 1, 1, generator=generator) < 0.5
    return torch.where(mirrored, moved.flip(3), moved)


@torch.no_grad()
def accuracy(model: nn.Module, tested: Pictures, batch: int = 256) -> float:
    """Each worker looks at its share of the pictures, with the statistics of rank 0, as DDP takes them in training."""
    rank, size = dist.get_rank(), dist.get_world_size()
    for buffer in model.buffers():
        dist.broadcast(buffer, 0)
    model.eval()
    right, here = torch.zeros(1), next(model.parameters()).device
    for x, y in zip(tested[0][rank::size].split(batch), tested[1][rank::size].split(batch)):
        right += (model(scaled(x).to(here)).argmax(1).cpu() == y).sum()
    model.train()
    dist.all_reduce(right)
    return float(right) / len(tested[1])


def exchange(ddp: nn.Module, o: argparse.Namespace, steps: int) -> Tuple[torch.optim.Optimizer, Optional[thinwire.torch.Compressor]]:
    """thinwire's SGD is PyTorch's, but for a scheme that applies the momentum itself: it leaves it to the scheme."""
    optimizer = thinwire.torch.SGD(ddp.parameters(), o.rate, momentum=o.momentum, weight_decay=o.decay)
    if o.scheme == "none":
        return optimizer, None
    return optimizer, thinwire.torch.attach(ddp, thinwire.for_run(o.scheme, steps), optimizer=optimizer)


def main(words: Optional[List[str]] = None) -> Tuple[nn.Module, List[float]]:
    """The model, and the loss of every step."""
    o = options(words)
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    (images, classes), tested = pictures(o.data)
    torch.manual_seed(o.seed)
    model = resnet20(o.width).to(o.device)
    ddp = DistributedDataParallel(model, gradient_as_bucket_view=True)
    each = len(images) // (o.batch * size)  # steps an epoch
    optimizer, compressor = exchange(ddp, o, o.epochs * each)

    parts = {"model": model, "optimizer": optimizer, "compressor": compressor}
    begin, losses = checkpoints.resume(o.out, **parts) // each if o.out else 0, []
    for epoch in range(begin, o.epochs):
        order = torch.randperm(len(images), generator=torch.Generator().manual_seed(o.seed + epoch))
        generator = torch.Generator().manual_seed((o.seed * 1000 + epoch) * 1000 + rank)
        for step, rows in enumerate(order[:each * size * o.batch].reshape(each, size, o.batch)[:, rank]):
            for group in optimizer.param_groups:
                group["lr"] = o.rate * (0.5 + 0.5 * math.cos(math.pi * (epoch + step / each) / o.epochs))
            loss = cross_entropy(ddp(scaled(varied(images[rows], generator)).to(o.device)), classes[rows].to(o.device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        if o.out:
            checkpoints.save(o.out, (epoch + 1) * each, **parts)
        right = accuracy(model, tested)
        if rank == 0:
            print(f"epoch {epoch + 1}: loss {losses[-1]:.3f}, accuracy {right:.2%}", flush=True)
    right = accuracy(model, tested)
    if rank == 0:
        print(f"accuracy {right:.2%} on {'CIFAR-10' if o.data else 'made-up pictures'} after {o.epochs} epochs; "
              f"{compressor.summary() if compressor else 'DDP alone'}", flush=True)
    if compressor:
        compressor.close()
    del ddp  # before its group: as the last to hold that, it may wait for ever for a thread of Gloo's, which waits for Python
    dist.destroy_process_group()
    return model, losses


if __name__ == "__main__":
    main()
