"""Which parameters a scheme takes, under which names and in which order of dimensions."""

import math
from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Optional, Set, Tuple, TypeVar

import torch
from torch import nn

from ..errors import Error
from . import _transport

DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)  # exchanged as fp32; others are left to torch
Made = TypeVar("Made")


class Row(NamedTuple):
    """A parameter of the table. `order` has the dimensions as they lie in memory, which with channels_last is another order
    than that of the shape: a bucket holds the gradient as it lies in memory. `shape` is in that order, and of a shard where
    this rank has no more than a shard of the parameter."""

    name: str
    parameter: torch.Tensor
    order: Tuple[int, ...]
    shape: Tuple[int, ...]

    @property
    def elements(self) -> int:
        return math.prod(self.shape)


def local(values: Any) -> torch.Tensor:
    """This rank's piece of it, where it lies."""
    if not hasattr(values, "to_local"):
        return values
    with torch.no_grad():
        return values.to_local()


def is_shard(parameter: Any) -> bool:
    return hasattr(parameter, "placements")


def sharded_in(module: nn.Module) -> List[Any]:
    """The parts of it that fully_shard has sharded."""
    return [part for part in module.modules() if hasattr(part, "_get_fsdp_state")]


def reshard(parts: List[Any]) -> None:
    """A forward pass without a backward pass leaves FSDP with whole parameters, which the next one would go on with."""
    for part in parts:
        part.reshard()


def laid(row: Row, values: Optional[torch.Tensor] = None) -> torch.Tensor:
    """The parameter's values, or others of its shape, in the order of memory."""
    return local(row.parameter if values is None else values).detach().permute(row.order)


def row_of(name: str, parameter: torch.Tensor) -> Row:
    here = local(parameter)
    order = order_in_memory(here)
    return Row(name, parameter, order, tuple(here.shape[i] for i in order))


def order_in_memory(tensor: torch.Tensor) -> Tuple[int, ...]:
    dimensions = range(tensor.dim())
    if tensor.is_contiguous():
        return tuple(dimensions)
    return tuple(sorted(dimensions, key=lambda i: (-tensor.stride(i), i)))


def with_sparse_gradients(module: nn.Module) -> Iterable[int]:
    embeddings = (m for m in module.modules() if isinstance(m, (nn.Embedding, nn.EmbeddingBag)))
    return {id(m.weight) for m in embeddings if m.sparse}


def why_left_out(parameter: torch.Tensor, sparse: Iterable[int]) -> str:
    if local(parameter).numel() == 0:
        return "empty"
    if id(parameter) in sparse:
        return "sparse gradients: torch's own all-reduce"
    if parameter.dtype not in DTYPES:
        return f"{str(parameter.dtype).split('.')[1]}: torch's own all-reduce"
    return ""


def table_of(module: nn.Module, ignored: Iterable[str] = (), of_weights: bool = False) -> Tuple[List[Row], Dict[str, str]]:
    """The rows of the table, of gradients or of weights, and of what is left out the reason. Parameters with several
    names have the first."""
    sparse = () if of_weights else with_sparse_gradients(module)
    rows, left_out = [], {}
    for name, parameter in module.named_parameters():
        if not parameter.requires_grad or name in ignored:
            continue
        if nn.parameter.is_lazy(parameter):
            raise Error(f"{name} has no shape before the first forward pass, as in lazy modules: let a batch through the model first, "
                        "on all ranks, and make its optimizer behind that")
        reason = why_left_out(parameter, sparse)
        if reason:
            left_out[name] = reason
        else:
            rows.append(row_of(name, parameter))
    if not rows:
        raise Error("the module has no parameter to compress: all are frozen, empty, sparse or left out")
    return rows, left_out


def refuse_without_memory(rows: List[Row]) -> None:
    """Of its own, for each element."""
    for row in rows:
        there = laid(row)
        if there.is_meta:
            raise Error(f"{row.name} is on the meta device and has no values; give the model memory first, as "
                        "model.to_empty(device=\"cpu\") does, and weights")
        if any(stride == 0 and size > 1 for stride, size in zip(there.stride(), there.shape)):
            raise Error(f"{row.name} is expanded, and several of its elements are one in memory; give the model a clone of it")


def orders_of(rows: List[Row]) -> Dict[str, List[int]]:
    """Of those that lie otherwise than their shape says, how."""
    return {row.name: list(row.order) for row in rows if list(row.order) != sorted(row.order)}


def refuse_newly_trained(module: nn.Module, rows: Iterable[Row], whose: str, among: Optional[Set[int]] = None, remedy: str = "") -> None:
    """What was frozen, or no part of the module, when the rows were listed: nobody exchanges it."""
    known = {id(row.parameter) for row in rows}
    for name, parameter in module.named_parameters():
        if among is not None and id(parameter) not in among:
            continue
        if parameter.requires_grad and id(parameter) not in known and local(parameter).numel():
            raise Error(f"{name} is trained now and was not when the {whose} was made, so the ranks would have it differently; "
                        f"{remedy or f'close() it and make another {whose}'} for the model as it is")


def refuse_newly_stepped(optimiser: torch.optim.Optimizer, module: nn.Module, known: Set[int], whose: str, remedy: str = "") -> None:
    """Before each step. What the optimiser has is listed in a tenth of the time that a module's parameters take: those are not listed
    again for what is found to be another module's, which then is known, too."""
    others = {id(p) for group in optimiser.param_groups for p in group["params"] if p.grad is not None and id(p) not in known}
    if others:
        refuse_newly_trained(module, (), whose, others, remedy)
        known |= others


def looked_by_all(group: Any, look: Callable[[], Made], tell: Callable[[], Any] = str) -> Made:
    """What look() gives here, where it refuses nothing on any rank, and all tell the same."""
    found: List[Made] = []

    def told() -> Any:
        found.append(look())
        return tell()

    refuse_unlike(_transport.gathered_by_all(group, told))
    return found[0]


def start_alike(module: nn.Module, group: Any, look: Callable[[], Made]) -> Made:
    """Gives all ranks the parameters and buffers of rank 0, where all have the same ones and look() refuses nothing on any. Gives
    what it gave here."""
    tensors: List[torch.Tensor] = []

    def tell() -> List[str]:
        named = [(name, one) for name, one in [*module.named_parameters(), *module.named_buffers()] if one.numel()]
        tensors.extend(one for _, one in named)
        return [f"the tensor {name} of {tuple(one.shape)} in {one.dtype}" for name, one in named]

    found = looked_by_all(group, look, tell)
    for tensor in tensors:
        _transport.spread(tensor, group)
    return found


def refuse_unlike(lists: List[List[str]]) -> None:
    """What each rank has. All see the same lists, and so all refuse."""
    for rank, there in enumerate(lists):
        for mine, first in zip([*there, "nothing more"], [*lists[0], "nothing more"]):
            if mine != first:
                raise Error(f"rank {rank} has {mine} where rank 0 has {first}: give all ranks the same spec and the same model, "
                            "with the same parameters frozen")
