#!/usr/bin/python3
"""Training speed of ResNet-20 in PyTorch, the yardstick for `thinwire bench train`.

ResNet-20 for CIFAR (He et al. 2015, option A shortcuts), synthetic 3x32x32 images, one thread, SGD with momentum and
weight decay, in both memory layouts. Prints one JSON object; where torch is missing, {"skipped": why}.
"""
import argparse
import json
import os
import statistics
import sys
import time


def define(torch):
    nn, functional = torch.nn, torch.nn.functional

    class Block(nn.Module):
        def __init__(self, before, filters):
            super().__init__()
            self.stride = 1 if before == filters else 2
            self.padding = filters - before
            self.conv1 = nn.Conv2d(before, filters, 3, self.stride, 1, bias=False)
            self.bn1 = nn.BatchNorm2d(filters)
            self.conv2 = nn.Conv2d(filters, filters, 3, 1, 1, bias=False)
            self.bn2 = nn.BatchNorm2d(filters)

        def forward(self, images):
            branch = functional.relu(self.bn1(self.conv1(images)), inplace=True)
            branch = self.bn2(self.conv2(branch))
            if self.padding:
                images = functional.pad(images[:, :, ::2, ::2], (0, 0, 0, 0, 0, self.padding))
            return functional.relu(branch + images, inplace=True)

    layers = [nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU(inplace=True)]
    before = 16
    for filters in (16, 32, 64):
        for _ in range(3):
            layers.append(Block(before, filters))
            before = filters
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


def seconds_per_step(torch, layout, batch, steps):
    torch.manual_seed(1)
    model = define(torch).to(memory_format=layout)
    images = torch.randn(batch, 3, 32, 32).contiguous(memory_format=layout)
    labels = torch.randint(10, (batch,))
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    times = []
    for _ in range(steps + 2):  # the first two are warm-up
        start = time.perf_counter()
        optimiser.zero_grad(set_to_none=True)
        torch.nn.functional.cross_entropy(model(images), labels).backward()
        optimiser.step()
        times.append(time.perf_counter() - start)
    return statistics.median(times[2:])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--batch", type=int, default=128)
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # read when torch is loaded
    try:
        import torch
    except ImportError as error:
        print(json.dumps({"skipped": f"torch cannot be imported: {error}"}))
        return 0
    torch.set_num_threads(1)
    layouts = {"contiguous": torch.contiguous_format, "channels_last": torch.channels_last}
    rates = {
        name: options.batch / seconds_per_step(torch, layout, options.batch, options.steps)
        for name, layout in layouts.items()
    }
    best = max(rates, key=rates.get)
    print(
        json.dumps(
            {
                "images_per_second": rates[best],
                "layout": best,
                "layouts": rates,
                "batch": options.batch,
                "threads": torch.get_num_threads(),
                "torch": torch.__version__,
            }
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
