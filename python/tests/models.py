"""Small models, and what a run of steps leaves. A test that imports this is skipped where there is no torch; and
what is loaded with it, no rank has to load."""

import os

import ranks

ranks.skip_without_torch()
os.environ.setdefault("THINWIRE_FALLBACK", "off")  # which exchange is faster on this machine is chance, and two runs are compared

import thinwire.torch  # noqa: E402
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402


def small(seed=0):
    """A convolution, a norm, and linear layers, so that there are tensors of four, two and one dimension."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 36, 32),
                         nn.ReLU(), nn.Linear(32, 10))


def batch(rank, step, rows=8):
    """The same on every run, another on each rank and in each step."""
    generator = torch.Generator().manual_seed(1000 * step + rank)
    return torch.randn(rows, 3, 8, 8, generator=generator), torch.randint(0, 10, (rows,), generator=generator)


def backward(ddp, rank, step, factor=1.0):
    """With a loss so many times as large."""
    x, y = batch(rank, step)
    loss = nn.functional.cross_entropy(ddp(x), y)
    (loss * factor).backward()
    return float(loss.detach())


class Broken(torch.autograd.Function):
    """In its backward pass somebody's own code fails."""

    @staticmethod
    def forward(ctx, values):
        return values.view_as(values)

    @staticmethod
    def backward(ctx, gradient):
        raise ValueError("somebody's own")


def broken_off(loss):
    """A backward pass that comes to where it fails."""
    try:
        loss.backward()
    except ValueError:
        return
    raise AssertionError("it went through")


def kind_of_gradients(module):
    sums = [float(gradient.abs().sum()) for gradient in gradients(module).values()]
    return "nan" if all(one != one for one in sums) else "numbers" if any(sums) else "zero"


def gradients(module):
    return {name: p.grad.detach().clone() for name, p in module.named_parameters() if p.grad is not None}


def weights(module):
    return {name: p.detach().clone() for name, p in module.named_parameters()}


def train(ddp, optimiser, rank, steps):
    for step in steps:
        optimiser.zero_grad()
        backward(ddp, rank, step)
        optimiser.step()


def wrapped(model, **more):
    return DistributedDataParallel(model, gradient_as_bucket_view=more.pop("gradient_as_bucket_view", True), **more)


def local_updates(workers, every, steps, takes=lambda step, number: True):
    """By hand: the shared weights before the first step and after each round, of which the last one ends early. A
    worker is a module, its optimiser and what computes its loss; all begin alike. `takes`: whether it takes the
    step."""
    shared = [nn.utils.parameters_to_vector(workers[0][0].parameters()).detach()]
    for step in range(1, steps + 1):
        for number, (module, optimiser, loss) in enumerate(workers):
            optimiser.zero_grad()
            loss().backward()
            if takes(step, number):
                optimiser.step()
        if step % every == 0 or step == steps:
            shared.append(sum(nn.utils.parameters_to_vector(one.parameters()).detach() for one, *_ in workers) / len(workers))
            for module, *_ in workers:
                nn.utils.vector_to_parameters(shared[-1].clone(), module.parameters())
    return shared


def attached(model, spec, ddp_more=None, **more):
    """In a DistributedDataParallel, and its compressor."""
    ddp = wrapped(model, **(ddp_more or {}))
    return ddp, thinwire.torch.attach(ddp, spec, **{"banner": False, "timeout": ranks.SECONDS, **more})


def same_everywhere(module):
    """Whether all ranks have the same bits."""
    flat = torch.cat([p.detach().double().reshape(-1) for p in module.parameters()])
    low, high = flat.clone(), flat.clone()
    dist.all_reduce(low, dist.ReduceOp.MIN)
    dist.all_reduce(high, dist.ReduceOp.MAX)
    return bool((low == high).all())
