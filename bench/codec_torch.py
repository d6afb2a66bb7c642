#!/usr/bin/python3
"""Gradient compression as it is usually written in PyTorch, the yardstick for `thinwire bench codec`.

    codec_torch.py COUNT DENSITY

Each function is one worker's step on the CPU: from a gradient to what would be sent, the residual left behind. What is
sent is not coded into bytes, which thinwire's figures include. Prints one JSON object; without torch, {"skipped": why}.
"""
import json
import math
import os
import statistics
import sys
import time

os.environ["OMP_NUM_THREADS"] = "1"  # read when torch is loaded
try:
    import torch
except ImportError as missing:
    print(json.dumps({"skipped": f"torch cannot be imported: {missing}"}))
    sys.exit()


class Steps:
    """The steps and what they remember between calls."""

    def __init__(self, count, density):
        self.k = math.ceil(count * density)
        self.momentum, self.residual = torch.zeros(count), torch.zeros(count)

    def correct_momentum(self, gradient):
        self.momentum.mul_(0.9).add_(gradient)
        self.residual.add_(self.momentum)

    def sampled_threshold(self):
        sample = self.residual[::100].abs()
        return torch.topk(sample, max(1, self.k // 100), sorted=False).values.min()

    def dgc_masked(self, gradient):
        self.correct_momentum(gradient)
        mask = self.residual.abs() > self.sampled_threshold()
        index = mask.nonzero().view(-1)
        values = self.residual[index]
        self.residual.masked_fill_(mask, 0)
        self.momentum.masked_fill_(mask, 0)
        return index, values

    def dgc_topk(self, gradient):
        self.correct_momentum(gradient)
        index = torch.topk(self.residual.abs(), self.k, sorted=False).indices
        values = self.residual[index]
        self.residual[index] = 0
        self.momentum[index] = 0
        return index, values

    def topk(self, gradient):
        self.residual.add_(gradient)
        index = torch.topk(self.residual.abs(), self.k, sorted=False).indices
        values = self.residual[index]
        self.residual[index] = 0
        return index, values

    def sign(self, gradient):
        self.residual.add_(gradient)
        sent = self.residual.sign().mul_(self.residual.abs().mean())
        self.residual.sub_(sent)
        return sent

    def onebit(self, gradient):
        """A mean for each side of zero (Seide et al. 2014)."""
        self.residual.add_(gradient)
        positive = self.residual >= 0
        total, above = self.residual.sum(), self.residual.clamp(min=0).sum()
        ups = positive.sum()
        sent = torch.where(positive, above / ups, (total - above) / (positive.numel() - ups))
        self.residual.sub_(sent)
        return sent

    def fp16(self, gradient):
        return gradient.half()

    def bf16(self, gradient):
        return gradient.bfloat16()

    def qsgd(self, gradient):
        """Stochastic rounding to 127 levels of the norm (Alistarh et al. 2017)."""
        level = gradient.abs().mul_(127 / gradient.norm())
        lower = level.floor()
        lower.add_(torch.rand_like(level) < level.sub_(lower))
        return lower.mul_(gradient.sign()).to(torch.int8)

    def terngrad(self, gradient):
        chance = gradient.abs().div_(gradient.abs().max())
        return gradient.sign().mul_(torch.rand_like(chance) < chance).to(torch.int8)


# (thinwire's scheme, the step it is compared with, what that step is)
COMPARED = [
    ("dgc", "dgc_masked", "masked update, sampled threshold"),
    ("dgc", "dgc_topk", "momentum, torch.topk"),
    ("topk", "topk", "torch.topk"),
    ("sign", "sign", "sign and mean"),
    ("onebit", "onebit", "two means"),
    ("fp16", "fp16", "half()"),
    ("bf16", "bf16", "bfloat16()"),
    ("qsgd", "qsgd", "127 levels, rand"),
    ("terngrad", "terngrad", "three levels, rand"),
]


REPETITIONS = 5


def median_ms(step, gradients):
    times = []
    for i in range(REPETITIONS + 2):  # the first two are warm-up
        gradient = gradients[i % len(gradients)]
        start = time.perf_counter()
        step(gradient)
        times.append(1e3 * (time.perf_counter() - start))
    return statistics.median(times[2:])


def main(count, density):
    torch.set_num_threads(1)
    torch.manual_seed(1)
    values = torch.distributions.Laplace(0, 1).sample((count + 1024,))
    gradients = [values[shift:shift + count] for shift in (0, 592, 160, 752, 320)]
    results = [{"codec": codec, "step": what, "encode_ms": median_ms(getattr(Steps(count, density), name), gradients)}
               for codec, name, what in COMPARED]
    print(json.dumps({"torch": torch.__version__, "results": results}))


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
