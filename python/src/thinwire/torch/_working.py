"""The fp32 weights that the library works on: the parameters themselves, or copies where they are of another type, on
another device or scattered in memory."""

import ctypes
import zlib
from typing import Any, Dict, Iterable, Iterator, List, Optional, Tuple

import torch
from torch import nn

from ..errors import Error
from ._optimiser import innermost, kept_of
from ._parameters import Row, is_shard, laid, refuse_without_memory, table_of
from ._pinned import Pair, Pinned, is_on_host
from ._state import ABOUT

WIDE = {torch.float64: torch.float64}  # in which the difference of two values of a type is taken; else fp32
LOOKED_AT = 1 << 12  # elements of a tensor: enough to tell that it is another one


def is_by_rows(parameter: Any) -> bool:
    """As fully_shard shards over a mesh of one dimension."""
    return len(parameter.placements) == 1 and bool(parameter.placements[0].is_shard(0))


def rows_of(module: nn.Module, whose: str, shards: bool = False) -> List[Row]:
    """The parameters whose mean `whose` takes, or of which it takes that of this rank's `shards`."""
    for name, parameter in module.named_parameters():
        if parameter.requires_grad and is_shard(parameter) and not (shards and is_by_rows(parameter)):
            what = (f"placed as {parameter.placements}, and {whose} takes what fully_shard shards by rows, over a mesh of one "
                    "dimension") if shards else f"a shard of a parameter, and {whose} takes whole ones"
            raise Error(f"{name} is {what}; make it for a module that is not sharded" + " otherwise" * shards)
    rows, left_out = table_of(module, of_weights=True)
    for name, reason in left_out.items():
        if reason != "empty":
            raise Error(f"{name} is {reason.split(':')[0]}, of which {whose} takes no mean; freeze it with "
                        "requires_grad_(False)")
    refuse_without_memory(rows)
    return rows


def reached(row: Row) -> Optional[torch.Tensor]:
    """What the library can work on where it lies."""
    there = laid(row)
    return there if there.dtype == torch.float32 and is_on_host(there) and there.is_contiguous() else None


class Copy:
    """Of one parameter. A copy of a narrower type's parameter has the digits that this one lacks. What a rank's steps
    do to the parameter is added to it, so that rounding is never taken for a step. Ctrl-C may come anywhere in here: whatever was
    begun and is done once more comes to the same."""

    def __init__(self, row: Row, memory: Pinned):
        self.row = row
        there = laid(row)
        self.values = memory.room((row.name, "values"), there, torch.float32)
        self.seen = None if there.dtype == torch.float32 else memory.room((row.name, "seen"), there)
        self._memory, self._now = memory, self.values
        self._taken: Optional[Pair] = None  # what values and seen are about to become

    def comes(self) -> List[Pair]:
        """What is to be fetched before begin() and take()."""
        there = laid(self.row)
        if self.seen is not None:
            self._now = there if is_on_host(there) else self._memory.room((self.row.name, "now"), there)
        return [] if self._now is there else [(there, self._now)]

    def begin(self) -> None:
        if self.seen is not None:
            self.values.copy_(self._now)
            self.seen.copy_(self._now)

    def take(self) -> None:
        if self.seen is not None:
            wide = WIDE.get(self.seen.dtype, torch.float32)
            moved = (self._now.to(wide) - self.seen.to(wide)).to(torch.float32)
            self._taken = moved.add_(self.values), self._now.clone()
            self.end_take()

    def end_take(self) -> None:
        """Of a take() that may have been interrupted: what it adds is in the values once."""
        if self.seen is not None and self._taken is not None:
            self.values.copy_(self._taken[0])
            self.seen.copy_(self._taken[1])
            self._taken = None

    def take_from(self, master: torch.Tensor) -> None:
        """In place of take(): it has all digits of what the steps did."""
        if self.seen is not None:
            self._taken = laid(self.row, master).to("cpu", copy=True), self._now.clone()
            self.end_take()

    def is_rounded(self, master: torch.Tensor) -> bool:
        """Whether the parameter is what that one is, in fewer digits."""
        there = laid(self.row)
        return torch.allclose(laid(self.row, master).to(there.dtype), there, rtol=0, atol=0, equal_nan=True)

    def is_all_of(self, master: torch.Tensor) -> bool:
        return torch.equal(laid(self.row, master), laid(self.row).to(master.dtype))

    def goes(self) -> Pair:
        """What is to be given after the library has changed the values."""
        if self.seen is not None:
            self.seen.copy_(self.values)
        return laid(self.row), self.values if self.seen is None else self.seen


class Working:
    """`optimisers` may keep fp32 copies of the parameters in their states, and write these over the parameters in each step."""

    def __init__(self, rows: List[Row], optimisers: Iterable[Any] = ()):
        self.rows, self._memory, self._optimisers = rows, Pinned(), [innermost(one) for one in optimisers]
        self._masters: List[Tuple[int, str]] = []  # of which optimiser, and under which name: at the last look
        self._copies: List[Optional[Copy]] = [Copy(row, self._memory) if reached(row) is None else None for row in rows]

    @property
    def copies(self) -> List[Copy]:
        return [copy for copy in self._copies if copy]

    def addresses(self) -> List[int]:
        """Where the library reads and writes the weights, and nothing else does until give()."""
        self._memory.wait()  # what was given may not be there yet
        found = []
        for row, copy in zip(self.rows, self._copies):
            values = copy.values if copy else reached(row)
            if values is None:
                raise Error(f"{row.name} is {row.parameter.dtype} on {row.parameter.device} with the strides "
                            f"{row.parameter.stride()}, and when it was first seen it was float32 in the host's memory, its "
                            f"dimensions in the order {row.order}; make what averages the weights for the model as it is trained")
            found.append(values.data_ptr())
        return found

    def begin(self) -> None:
        self._fetch()
        for copy in self.copies:
            copy.begin()

    def take(self) -> None:
        """Before the library looks at the weights."""
        for copy in self.copies:
            copy.end_take()
        self._fetch()
        self.look(stepped=True)
        masters = dict(self._kept(self._masters))
        for copy in self.copies:
            if copy in masters:
                copy.take_from(masters[copy])
            else:
                copy.take()

    def _kept(self, names: Iterable[Tuple[int, str]]) -> Iterator[Tuple[Copy, torch.Tensor]]:
        """What the optimisers have under these names, of parameters that have fewer digits."""
        for number, name in names:
            for copy in self.copies:
                one = kept_of(self._optimisers[number], copy.row.parameter).get(name) if copy.seen is not None else None
                if isinstance(one, torch.Tensor) and one.dtype == torch.float32 and one.shape == copy.row.parameter.shape:
                    yield copy, one

    def look(self, stepped: bool = False) -> None:
        """Before the weights become others: a name is that of such copies if all parameters of which the optimiser has something are
        what it has there, in fewer digits. What begins as a copy, such as an average, is that, too, until a step has changed it."""
        self._masters = []
        rounded = [copy.row.parameter for copy in self.copies if copy.seen is not None]
        for number, optimiser in enumerate(self._optimisers):
            states = [state for state in (kept_of(optimiser, one) for one in rounded) if state]
            for name in states[0] if states else ():
                kept = list(self._kept([(number, name)]))
                if len(kept) == len(states) and all(copy.is_rounded(one) for copy, one in kept) and not (
                        stepped and all(copy.is_all_of(one) for copy, one in kept)):
                    self._masters.append((number, name))

    def _give_masters(self) -> None:
        for copy, master in self._kept(self._masters):
            laid(copy.row, master).copy_(copy.values)

    def _fetch(self) -> None:
        """All of them, and then one wait."""
        self._memory.fetch([pair for copy in self.copies for pair in copy.comes()])
        self._memory.wait()

    def give(self) -> None:
        """After the library has changed them all."""
        self._memory.give([copy.goes() for copy in self.copies])
        self._give_masters()

    def before(self) -> List[torch.Tensor]:
        return [copy.values.clone() for copy in self.copies]

    def give_changed(self, before: List[torch.Tensor]) -> None:
        """After the library has changed some."""
        self._memory.give([copy.goes() for copy, was in zip(self.copies, before) if not torch.equal(copy.values, was)])
        self._give_masters()

    # ---- what a checkpoint of the model lacks ----

    def state(self) -> Dict[str, Any]:
        kept = [copy for copy in self.copies if copy.seen is not None]
        for one in kept:
            one.end_take()
        return {"working": {copy.row.name: copy.values.clone() for copy in kept},
                "seen": {copy.row.name: copy.seen.clone() for copy in kept if copy.seen is not None},
                "weights": self.digests()}

    def refuse_others(self, state: Dict[str, Any]) -> None:
        """What is not what state() gave."""
        for key, one in state.items():
            if not isinstance(one, dict):
                raise Error(f"{ABOUT}{key} is a {type(one).__name__} in this state, and a dict is wanted", 9, "TW_ERROR_STATE")
        for copy in self.copies:
            if copy.seen is not None:
                refuse_other(copy.values, state["working"].get(copy.row.name), copy.row.name)
                refuse_other(copy.seen, state["seen"].get(copy.row.name), copy.row.name)

    def load(self, state: Dict[str, Any]) -> None:
        for copy in self.copies:
            if copy.seen is not None:
                copy.values.copy_(state["working"][copy.row.name])
                copy.seen.copy_(state["seen"][copy.row.name])

    def digests(self) -> Dict[str, int]:
        """By which the weights of this rank are known again."""
        return {row.name: digest(laid(row)) for row in self.rows}

    def first_unlike(self, digests: Dict[str, int]) -> Optional[str]:
        return next((name for name, one in self.digests().items() if digests.get(name) != one), None)


def refuse_other(there: torch.Tensor, saved: Any, name: str) -> None:
    if not isinstance(saved, torch.Tensor) or saved.shape != there.shape or saved.dtype != there.dtype:
        raise Error(f"{name} is {there.dtype} of {tuple(there.shape)} here, and was not in the run that saved this "
                    "state", 9, "TW_ERROR_STATE")


def digest(values: torch.Tensor) -> int:
    part = values.reshape(-1)[:LOOKED_AT].to("cpu").to(torch.float64)
    return zlib.crc32(ctypes.string_at(part.data_ptr(), 8 * part.numel()))
