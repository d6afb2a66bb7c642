"""Clusters: one mean of models that groups of ranks have cut in unlike ways."""

import math
import re
from typing import Any, Dict, List, NamedTuple, Tuple, Union

import torch

from .. import clusters as core
from .._owned import Closes
from ..comm import Comm
from ..errors import Error
from ..tcp import Tcp
from . import _transport
from ._parameters import DTYPES, Row, local, refuse_without_memory, reshard, sharded_in
from ._working import Working


class Clusters(Closes):
    """The ranks of a cluster have one model between them: as the stages of a pipeline, or sharded by `fully_shard`.
    Each cluster trains by itself. Once in a while average() makes all their models the mean:

        clusters = thinwire.torch.Clusters(model, cluster)     # the number of this rank's cluster: 0, 1, ...
        ...
            optimizer.step()
            if step % 100 == 99:
                clusters.average()

    A collective: every rank of `group` makes one, the ranks of all clusters together. The clusters may have as many ranks as
    they like, and cut as they like. `model` is what this rank has of it, and parameters are known by their names, which
    are the same in all clusters. Each parameter that requires a gradient has to be there once in each cluster. Buffers
    and the optimiser's state stay where they are.

    The other arguments are those of `attach`."""

    def __init__(self, model: torch.nn.Module, cluster: int, *, group: Any = None, transport: Union[str, Tcp, Comm] = "tcp",
                 timeout: float = 60.0, patience: float = 1800.0):
        self._parts: List[Part] = []
        self._working: Working
        self._sharded = sharded_in(model)

        def mine() -> Dict[str, List[int]]:
            if not isinstance(cluster, int) or not 0 <= cluster < _transport.size_of(group):
                raise Error(f"cluster={cluster!r}: want the number of this rank's cluster, from 0 to "
                            f"{_transport.size_of(group) - 1}")
            reshard(self._sharded)
            parameters = [(name, one) for name, one in model.named_parameters() if one.requires_grad]
            self._parts = [part for part in (part_of(name, one) for name, one in parameters) if part.row.elements]
            self._working = Working([part.row for part in self._parts])
            return {name: list(one.shape) for name, one in parameters}

        firsts, elements = numbered(_transport.gathered_by_all(group, mine))
        ranges = [(firsts[part.row.name] + part.first, part.row.elements) for part in self._parts]

        def made(comm: Comm) -> core.Clusters:
            self._comm = comm
            try:
                return core.Clusters(comm, cluster, elements, ranges)
            except Error as error:
                raise error.saying(with_name(str(error), firsts)) from None

        self._clusters = _transport.with_comm(transport, group, _transport.Limits(timeout, patience), made)
        self._owns_comm = self._comm is not transport

    def average(self) -> None:
        """A collective: the parameters become the mean of the clusters', in fp32, added up in the order of their
        numbers. It is rounded to what the parameters are."""
        reshard(self._sharded)
        self._working.begin()
        self._clusters.average(self._working.addresses())
        self._working.give()

    def traffic(self) -> Dict[str, int]:
        """Bytes and messages of this rank, as the transport counted them."""
        return self._comm.traffic()

    def close(self) -> None:
        """Leaves the other ranks."""
        self._clusters.close()
        if self._owns_comm:
            self._comm.close()


class Part(NamedTuple):
    """The elements of a parameter that this rank has, from `first` on: numbered in the order of its shape."""

    row: Row
    first: int


def part_of(name: str, parameter: Any) -> Part:
    """Of a sharded parameter some of its rows: torch gives each rank as many, and the last ones fewer or none."""
    first = 0
    placements = getattr(parameter, "placements", ())
    if placements:
        if len(placements) > 1 or not placements[0].is_shard(0):
            raise Error(f"{name}: it is placed as {placements}; Clusters takes parameters that are sharded once, by rows")
        mesh = parameter.device_mesh
        rows = -(-parameter.shape[0] // mesh.size())
        first = min(rows * mesh.get_local_rank(), parameter.shape[0]) * math.prod(parameter.shape[1:])
    here = local(parameter)
    if here.dtype not in DTYPES:
        raise Error(f"{name}: its values are {here.dtype}; Clusters averages floating-point numbers of 16, 32 and 64 bits")
    row = Row(name, parameter, tuple(range(here.dim())), tuple(here.shape))
    refuse_without_memory([row])
    return Part(row, first)


def numbered(told: List[Dict[str, List[int]]]) -> Tuple[Dict[str, int], int]:
    """The number of each parameter's first element, and how many elements there are: by names in their order."""
    shapes: Dict[str, List[int]] = {}
    for rank, parameters in enumerate(told):
        for name, shape in parameters.items():
            if shapes.setdefault(name, shape) != shape:
                raise Error(f"{name} has the shape {shape} on rank {rank}, and {shapes[name]} on one before it")
    firsts, elements = {}, 0
    for name in sorted(shapes):
        firsts[name] = elements
        elements += math.prod(shapes[name])
    return firsts, elements


def with_name(text: str, firsts: Dict[str, int]) -> str:
    """C knows elements by their numbers, and a person knows parameters by their names."""
    number = re.search(r"elements? (\d+)", text)
    if not number:
        return text
    name = max((first, name) for name, first in firsts.items() if first <= int(number[1]))[1]
    return f"{text}; element {number[1]} is in {name}"
