"""The fp32 weights that the library works on: the parameters themselves, or copies where they are of another type, on
another device or scattered in memory."""

import ctypes
import zlib
from typing import Any, Dict, List, Optional

import torch

from ..errors import Error
from ._parameters import Row
from ._state import ABOUT

WIDE = {torch.float64: torch.float64}  # in which the difference of two values of a type is taken; else fp32
LOOKED_AT = 1 << 12  # elements of a tensor: enough to tell that it is another one


def laid(row: Row) -> torch.Tensor:
    """The parameter's values in the order of memory."""
    return row.parameter.detach().permute(row.order)


def is_reached(row: Row) -> bool:
    """Whether the library can work on it where it lies."""
    there = row.parameter
    return there.dtype == torch.float32 and there.device.type == "cpu" and laid(row).is_contiguous()


class Copy:
    """Of one parameter. A copy of a narrower type's parameter has the digits that this one lacks. What a rank's steps
    do to the parameter is added to it, so that rounding is never taken for a step."""

    def __init__(self, row: Row):
        self.row = row
        self.values = torch.empty(row.shape, dtype=torch.float32)
        self.seen = None if row.parameter.dtype == torch.float32 else torch.empty(row.shape, dtype=row.parameter.dtype)

    def begin(self) -> None:
        now = laid(self.row)
        self.values.copy_(now)
        if self.seen is not None:
            self.seen.copy_(now)

    def take(self) -> None:
        if self.seen is None:
            self.values.copy_(laid(self.row))
            return
        now, wide = laid(self.row).to("cpu"), WIDE.get(self.seen.dtype, torch.float32)
        self.values.add_((now.to(wide) - self.seen.to(wide)).to(torch.float32))
        self.seen.copy_(now)

    def give(self) -> None:
        laid(self.row).copy_(self.values)
        if self.seen is not None:
            self.seen.copy_(laid(self.row))


class Working:
    def __init__(self, rows: List[Row]):
        self.rows = rows
        self._copies: List[Optional[Copy]] = [None if is_reached(row) else Copy(row) for row in rows]

    @property
    def copies(self) -> List[Copy]:
        return [copy for copy in self._copies if copy]

    def addresses(self) -> List[int]:
        return [copy.values.data_ptr() if copy else row.parameter.data_ptr()
                for row, copy in zip(self.rows, self._copies)]

    def begin(self) -> None:
        for copy in self.copies:
            copy.begin()

    def take(self) -> None:
        """Before the library looks at the weights."""
        for row, copy in zip(self.rows, self._copies):
            if copy is None and not is_reached(row):
                raise Error(f"{row.name} is {row.parameter.dtype} on {row.parameter.device} with the strides "
                            f"{row.parameter.stride()}, and when the OuterLoop was made it was float32 in the host's memory, its "
                            f"dimensions in the order {row.order}; make an OuterLoop for the model as it is trained")
        for copy in self.copies:
            copy.take()

    def give(self) -> None:
        """After the library has changed them all."""
        for copy in self.copies:
            copy.give()

    def before(self) -> List[torch.Tensor]:
        return [copy.values.clone() for copy in self.copies]

    def give_changed(self, before: List[torch.Tensor]) -> None:
        """After the library has changed some."""
        for copy, was in zip(self.copies, before):
            if not torch.equal(copy.values, was):
                copy.give()

    # ---- what a checkpoint of the model lacks ----

    def state(self) -> Dict[str, Any]:
        kept = [copy for copy in self.copies if copy.seen is not None]
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
