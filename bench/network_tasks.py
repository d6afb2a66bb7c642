"""What bench/network.py exchanges and trains: gradients that are given, and a network that is large for its work."""
import dataclasses
import math
import pathlib

import torch
from torch import nn

RESNET50 = 25_557_032
SHIFT = 16  # values between two sets of gradients, as in bench_exchange


def bottlenecks():
    """The shapes of ResNet-50's parameters."""
    def convolution(filters, channels, kernel):
        return [(filters, channels, kernel, kernel), (filters,), (filters,)]

    found, channels = convolution(64, 3, 7), 64
    for planes, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for block in range(blocks):
            found += convolution(planes, channels, 1) + convolution(planes, planes, 3)
            found += convolution(4 * planes, planes, 1)
            found += convolution(4 * planes, channels, 1) if block == 0 else []
            channels = 4 * planes
    return found + [(1000, 2048), (1000,)]


def shapes(parameters):
    """ResNet-50's, or matrices of some other number of parameters."""
    if parameters == RESNET50:
        return bottlenecks()
    side = max(1, math.isqrt(parameters // 4))
    return [(side, side)] * 4


class Given(torch.autograd.Function):
    """Nothing is computed: the gradient of the parameter is the one that is given."""

    @staticmethod
    def forward(context, parameter, gradient):
        context.gradient = gradient
        return parameter.new_zeros(())

    @staticmethod
    def backward(context, of_output):
        return context.gradient, None


class Table(nn.Module):
    """Parameters of these shapes."""

    def __init__(self, shapes_of_parameters):
        super().__init__()
        self.table = nn.ParameterList([nn.Parameter(torch.zeros(shape)) for shape in shapes_of_parameters])

    def forward(self, gradients):
        return torch.stack([Given.apply(*pair) for pair in zip(self.table, gradients)]).sum()


class Gradients:
    """Made up, with tails as heavy as gradients have: windows on one row of values, of each rank and step another."""

    def __init__(self, module, rank, ranks, sets):
        self.shapes = [parameter.shape for parameter in module.parameters()]
        self.rank, self.ranks, self.sets = rank, ranks, sets
        count = sum(shape.numel() for shape in self.shapes)
        draw = torch.rand(count + SHIFT * ranks * sets, generator=torch.Generator().manual_seed(1)).sub_(0.5)
        self.values = draw.sign().mul_(draw.abs_().mul_(-2).log1p_().clamp_(min=-30)).neg_()

    def of_step(self, step):
        at = SHIFT * ((step % self.sets) * self.ranks + self.rank)
        found = []
        for shape in self.shapes:
            found.append(self.values[at:at + shape.numel()].view(shape))
            at += shape.numel()
        return found


@dataclasses.dataclass
class Task:
    """A classification that an MLP learns, and how it is trained. All of it is in the report."""

    folder: str = ""         # of CIFAR-10's binary files; empty: data made up here
    width: int = 3072        # of the hidden layers
    layers: int = 2
    batch: int = 16          # of a rank
    rate: float = 0.03
    momentum: float = 0.9
    look_every: int = 5      # steps between two looks at the held-out data
    loss: float = 0.4        # the target
    accuracy: float = 0.85
    seconds: float = 150     # to give up after
    seed: int = 1


@dataclasses.dataclass
class Data:
    inputs: torch.Tensor
    labels: torch.Tensor
    held_out: torch.Tensor
    held_labels: torch.Tensor


MADE_UP, HELD_OUT, SIDE, CLASSES, CLUSTERS = 20000, 1000, 1024, 20, 4


def data_of(task):
    return cifar10(pathlib.Path(task.folder)) if task.folder else made_up(task.seed)


def made_up(seed):
    """Each class is a few clusters, far from each other: no plane divides it from the others."""
    random = torch.Generator().manual_seed(seed)
    centres = torch.randn(CLASSES * CLUSTERS, SIDE, generator=random)
    chosen = torch.randint(len(centres), (MADE_UP + HELD_OUT,), generator=random)
    inputs = centres[chosen] * 0.3 + torch.randn(len(chosen), SIDE, generator=random)
    labels = chosen % CLASSES
    return Data(inputs[HELD_OUT:], labels[HELD_OUT:], inputs[:HELD_OUT], labels[:HELD_OUT])


def cifar10(folder):
    """The official binary layout: a byte of the class, then 3,072 of the picture."""
    def read(names):
        values = b"".join((folder / name).read_bytes() for name in names)
        rows = torch.frombuffer(bytearray(values), dtype=torch.uint8).view(-1, 3073)
        return rows[:, 1:].float().div_(255).sub_(0.5).div_(0.25), rows[:, 0].long()

    inputs, labels = read([f"data_batch_{i}.bin" for i in range(1, 6)])
    held_out, held_labels = read(["test_batch.bin"])
    return Data(inputs, labels, held_out[:HELD_OUT], held_labels[:HELD_OUT])


def network_of(task):
    inputs, classes = (3072, 10) if task.folder else (SIDE, CLASSES)
    widths = [inputs] + [task.width] * task.layers
    hidden = [part for pair in zip(widths, widths[1:]) for part in (nn.Linear(*pair), nn.ReLU())]
    return nn.Sequential(*hidden, nn.Linear(task.width, classes))
