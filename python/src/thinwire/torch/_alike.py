"""Whether two workers read the same data in the same order, of which two learn no more than one."""

import ctypes
import zlib
from typing import Iterable, Optional

import torch

from .._warned import warn
from ..comm import Comm
from . import _transport


def checksum(tensors: Iterable[Optional[torch.Tensor]]) -> int:
    """0 where there are none."""
    total = 0
    for one in tensors:
        if one is not None:
            dense = one.detach().to_dense() if one.layout != torch.strided else one.detach()
            there = dense.to("cpu", torch.float32).contiguous()
            total = zlib.crc32((ctypes.c_char * (4 * there.numel())).from_address(there.data_ptr()), total)
    return total


def tell_repeats(comm: Comm, mine: int) -> None:
    """A collective, which workers make whose weights are the same: `mine` is the checksum of this one's first gradient, or
    0 where it has none of its own."""
    first = _transport.gathered(comm, mine).index(mine)
    if mine and first < comm.rank:
        warn(f"rank {comm.rank} has had the first batch of rank {first}, and the two learn no more than one: give each worker "
             "data or a seed of its own, by options of the script or by OuterLoop.shard(dataset)")
