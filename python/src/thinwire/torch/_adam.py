"""AdamW's moments, into a scheme that owns them and out of it."""

import contextlib
import io
from typing import Any, Iterator, List, NamedTuple, Optional

import torch

from ..comm import Comm
from ..errors import Error
from ..reducer import Reducer, moments_of_state, state_of_moments
from ..table import Entries
from . import _state, _transport
from ._parameters import Row, laid, local

NAMES = ("exp_avg", "exp_avg_sq")  # as torch's AdamW calls them


class Moments(NamedTuple):
    """Of the rows of a table, in fp32 and in the order in which they lie in memory."""

    steps: int
    first: List[torch.Tensor]
    second: List[torch.Tensor]


def has_moments(optimiser: Any, rows: List[Row]) -> bool:
    """An AdamW that has left them to a scheme has some where it has loaded another's state since, or had stepped before."""
    if not hasattr(optimiser, "own_moments") or not optimiser.state:
        return False
    return any(optimiser.state.get(row.parameter) for row in rows)


def of_row(optimiser: Any, row: Row, name: str) -> torch.Tensor:
    state = optimiser.state.get(row.parameter)
    if not state:
        return torch.zeros(row.shape)
    if not isinstance(state.get(name), torch.Tensor):
        raise Error(f"the optimizer has no {name} of {row.name}, and a scheme with Adam's moments goes on from AdamW's state")
    return laid(row, state[name]).to("cpu", torch.float32).contiguous()


def steps_of(optimiser: Any, rows: List[Row]) -> int:
    """That its moments have seen; -1: it has none."""
    if not has_moments(optimiser, rows):
        return -1
    return max(int(optimiser.state[row.parameter].get("step", 0)) for row in rows if optimiser.state.get(row.parameter))


def move_in(optimiser: Any, rows: List[Row], reducer: Reducer, comm: Comm) -> None:
    """The optimiser's, if it has any, become the scheme's, with nothing held back: on all ranks, or on none. A collective."""
    steps = steps_of(optimiser, rows)
    all_steps = [int(one) for one in comm.allgather(str(steps).encode())]
    for rank, its in enumerate(all_steps):
        if its != all_steps[0]:
            has, other = ("none" if one < 0 else f"some of {one} steps" for one in (its, all_steps[0]))
            raise Error(f"the optimizer of rank {rank} has {has} of AdamW's moments, and that of rank 0 {other}: load the same state "
                        "on all ranks")
    if steps < 0:
        return
    first, second = ([of_row(optimiser, row, name) for row in rows] for name in NAMES)
    reducer.load_state(state_of_moments(reducer.spec, reducer.tensors, steps, [one.data_ptr() for one in first],
                                        [one.data_ptr() for one in second], comm.rank, comm.size))
    for row in rows:
        optimiser.state.pop(row.parameter, None)


def moments_of(reducer: Reducer, group: Any) -> Moments:
    """What the schemes of all ranks have, together: a collective, for which a rank needs room for one state at a time."""
    packed = io.BytesIO()
    torch.save(_state.to_dict(reducer.state(), {}), packed)
    mine = packed.getvalue()
    sizes = _transport.gathered(group, len(mine))

    def of_rank(rank: int) -> Entries:
        data = mine if rank == _transport.rank_of(group) else bytes(sizes[rank])
        whole = torch.frombuffer(bytearray(data), dtype=torch.uint8).to(_transport.device_of(group))
        _transport.broadcast_first(whole, group, rank)
        data = _state.from_tensor(whole, "uint8").data
        return _state.from_dict(torch.load(io.BytesIO(data), map_location="cpu", weights_only=True))

    first, second = ([torch.zeros(shape) for _, shape in reducer.tensors] for _ in NAMES)
    steps = moments_of_state(reducer.spec, reducer.tensors, of_rank, len(sizes), [one.data_ptr() for one in first],
                             [one.data_ptr() for one in second])
    return Moments(steps, first, second)


def like(parameter: Any, values: torch.Tensor) -> Any:
    """These values of a parameter, as an optimiser keeps them."""
    values = values.to(parameter.dtype)
    if not hasattr(parameter, "to_local"):
        return values.to(parameter.device)
    return type(parameter.data).from_local(values.to(local(parameter).device), parameter.device_mesh, parameter.placements,
                                           run_check=False, shape=parameter.shape, stride=parameter.stride())


@contextlib.contextmanager
def lent(optimiser: Any, rows: List[Row], moments: Moments) -> Iterator[None]:
    """The optimiser has them for as long as this takes."""
    for i, row in enumerate(rows):
        back = sorted(range(len(row.order)), key=row.order.__getitem__)
        optimiser.state[row.parameter] = {"step": torch.tensor(float(moments.steps)), **{
            name: like(row.parameter, values[i].permute(back)) for name, values in zip(NAMES, moments[1:])}}
    try:
        yield
    finally:
        for row in rows:
            optimiser.state.pop(row.parameter, None)


def refuse_late(optimiser: Any, rows: List[Row], scheme: str) -> None:
    if has_moments(optimiser, rows):
        raise Error(f"this {type(optimiser).__name__} has moments, and {scheme} has begun without them: give attach() optimizer=")


def owner(optimiser: Optional[Any]) -> Any:
    if optimiser is None:
        raise Error("no optimizer is known yet: give attach() optimizer=")
    return optimiser


def adamw(optimiser: Optional[Any], scheme: str) -> Any:
    """The one that can have the scheme's moments."""
    if not hasattr(owner(optimiser), "own_moments"):
        raise Error(f"{scheme} has AdamW's moments, and {type(optimiser).__name__} has no place for them: write thinwire.torch.AdamW")
    return optimiser
