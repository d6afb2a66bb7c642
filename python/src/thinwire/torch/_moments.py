"""The optimiser's moments, of which an OuterLoop with first_moment=N or second_moment=N takes the workers' mean."""

from typing import Any, List, Optional

import torch

from ..errors import Error
from ..spec import number, settings_of
from ._optimiser import innermost, kept_of
from ._parameters import Row, laid, local
from ._pinned import Pinned

MOMENTS = ("first_moment", "second_moment")
NAMES = (("exp_avg", "momentum_buffer", "z"), ("exp_avg_sq",))  # as torch's optimisers call them; schedulefree's have z


def forget_unfinite(optimisers: List[Any], rows: List[Row]) -> None:
    """The moments of a parameter begin anew, its count of steps among them, where one of them holds NaN or infinity."""
    for optimiser in map(innermost, optimisers):
        for row in rows:
            state = kept_of(optimiser, row.parameter)
            there = [local(one) for one in state.values() if isinstance(one, torch.Tensor) and one.is_floating_point()]
            if all(torch.isfinite(one).all() for one in there):
                continue
            if "z" in state:  # weights, and no moment: schedulefree's optimizers make them anew
                state.clear()
            for one in there:
                one.zero_()


def lacking(moment: int, optimiser: Any, row: Row) -> Error:
    return Error(f"{MOMENTS[moment]}: {type(optimiser).__name__} keeps none of {row.name}; leave it out of the spec, or "
                 "take an optimizer that does, such as AdamW")


class Moments:
    """Copies of them in the host's memory, in fp32, where the spec asks for their mean."""

    def __init__(self, rows: List[Row], optimisers: List[Any], spec: str):
        settings = settings_of(spec)
        self._rows, self._optimisers = rows, [innermost(one) for one in optimisers]
        self._memory = Pinned()
        self._copies: List[Optional[List[torch.Tensor]]] = [
            [self._room(what, row) for row in rows] if number(settings[what]) > 0 else None for what in MOMENTS]
        stepped = {id(p) for one in self._optimisers for group in one.param_groups for p in group["params"]}
        for row in rows if any(self._copies) else ():
            if id(row.parameter) not in stepped:
                raise Error(f"first_moment and second_moment: {row.name} is a shard, or is not the parameter that the "
                            "optimizer steps, and its moments are not reached; leave them out of the spec")

    def _room(self, moment: str, row: Row) -> torch.Tensor:
        return self._memory.room((moment, row.name), laid(row), torch.float32).zero_()

    def addresses(self) -> List[Optional[List[int]]]:
        return [copies and [one.data_ptr() for one in copies] for copies in self._copies]

    def take(self, stepped: bool) -> None:
        """Before a round. An optimizer that has stepped, and has nothing of any parameter, keeps no such moment."""
        for moment, copies in enumerate(self._copies):
            there = [self._of(moment, row) for row in self._rows] if copies else []
            if copies and stepped and all(one is None for one in there):
                raise lacking(moment, self._optimisers[-1], self._rows[0])
            pairs = list(zip(there, copies or ()))
            self._memory.fetch([(one, copy) for one, copy in pairs if one is not None])
            for copy in [copy for one, copy in pairs if one is None]:
                copy.zero_()
        self._memory.wait()

    def give(self) -> None:
        """After it."""
        for moment, copies in enumerate(self._copies):
            pairs = [(self._of(moment, row), copy) for row, copy in zip(self._rows, copies or ())]
            self._memory.give([(there, copy) for there, copy in pairs if there is not None])

    def _of(self, moment: int, row: Row) -> Optional[torch.Tensor]:
        """In the order of memory. None: the optimizer has not stepped yet, which is as if it were zeros."""
        for optimiser in self._optimisers:
            state = kept_of(optimiser, row.parameter)
            for name in NAMES[moment]:
                if isinstance(state.get(name), torch.Tensor):
                    return laid(row, state[name])
            if state:
                raise lacking(moment, optimiser, row)
        return None
