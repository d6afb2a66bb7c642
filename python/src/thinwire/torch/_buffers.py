"""Buffers that are part of the model, such as the statistics of batch norms, and their mean over the ranks."""

from typing import Any, Dict, List

import torch
from torch import nn

from ..errors import Error
from ..table import Entries
from . import _state, _transport
from ._transport import device_of


def floating(module: nn.Module) -> Dict[str, torch.Tensor]:
    """Those that a checkpoint has and that have a mean, each once, by name. What a module computes for itself, such as a
    mask, is no part of the model."""
    found: Dict[str, torch.Tensor] = {}
    for prefix, part in module.named_modules():
        for name, buffer in part._buffers.items():
            if buffer is None or name in part._non_persistent_buffers_set or not buffer.is_floating_point():
                continue
            if buffer.numel() and not any(buffer is other for other in found.values()):
                found[f"{prefix}.{name}" if prefix else name] = buffer
    return dict(sorted(found.items()))


def described(module: nn.Module) -> List[str]:
    return [f"the buffer {name} of {tuple(one.shape)}, {one.dtype}" for name, one in floating(module).items()]


def spread(module: nn.Module, group: Any) -> None:
    """Gives all ranks those of rank 0."""
    for buffer in floating(module).values():
        _transport.spread(buffer, group)


def means(module: nn.Module, group: Any) -> List[torch.Tensor]:
    """A collective, unless there are none. Summed in fp64 and in the order of ranks: what is the same on all ranks
    stays as it is, and all have the same bits."""
    buffers = list(floating(module).values())
    if not buffers:
        return []
    there = device_of(group)  # they may be on several devices, of which some have no fp64
    flat = torch.cat([buffer.detach().to(there).reshape(-1).double() for buffer in buffers])
    rows = _transport.rows_of_all(flat, group)
    total = rows[0]
    for row in rows[1:]:
        total = total + row
    parts = (total / len(rows)).split([buffer.numel() for buffer in buffers])
    return [part.reshape(buffer.shape).to(buffer.dtype) for part, buffer in zip(parts, buffers)]


def average(module: nn.Module, group: Any) -> None:
    """A collective: all ranks have the means."""
    for buffer, mean in zip(floating(module).values(), means(module, group)):
        put(buffer, mean)


def entries(module: nn.Module) -> Entries:
    return {name: _state.from_tensor(one, str(one.dtype).split(".")[1]) for name, one in floating(module).items()}


def take(module: nn.Module, given: Entries) -> None:
    """What entries() has made of another's."""
    for name, buffer in floating(module).items():
        if name not in given or given[name].shape != tuple(buffer.shape):
            raise Error(f"the buffer {name} of {tuple(buffer.shape)} is not among those that a newcomer is given", 6, "TW_ERROR_PACKET")
        put(buffer, _state.to_tensor(given[name]))


def put(buffer: torch.Tensor, values: torch.Tensor) -> None:
    buffer.detach().copy_(values)
