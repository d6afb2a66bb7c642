"""Steps that an optimizer takes and nobody counts, which would be undone."""

from typing import Any, List, Set

import torch

from .._warned import warn
from ..errors import Error
from . import _optimiser
from ._parameters import Row

UNCOUNTED = 8  # steps in a row, with which it is told: a part of a model may take some before the whole does


class Strays:
    """`may` are the optimizers that take a step each for each that is counted. `lost`: what becomes of others; `right`: what
    would be right."""

    def __init__(self, rows: List[Row], may: List[Any], lost: str, right: str):
        self._parameters, self._may = [row.parameter for row in rows], may
        self._lost, self._right = lost, right
        self._stepped: Set[int] = set()  # the optimizers that have stepped since a step was counted
        self._stray, self._strays = "", 0  # the one whose steps are not, and how many such there were

    def notice(self, optimiser: torch.optim.Optimizer) -> None:
        """It is about to step."""
        if not _optimiser.steps_any_of(optimiser, self._parameters):
            return
        if id(optimiser) in self._stepped or not any(_optimiser.innermost(one) is optimiser for one in self._may):
            self._stray = type(optimiser).__name__
            self._strays += 1
            if self._strays == UNCOUNTED:
                warn(f"{self._stray} has taken {UNCOUNTED} steps in a row that were not counted, and without counted ones "
                     f"{self._lost}: {self._right}")
        self._stepped.add(id(optimiser))

    def counted(self) -> None:
        self._stepped, self._stray = set(), ""
        if self._strays < UNCOUNTED:  # else it has been told, once
            self._strays = 0

    def refuse(self, whose: str) -> None:
        if self._stray:
            raise Error(f"{self._stray} has taken steps that were not counted, and {whose} would undo them: {self._right}")

    def refuse_changed(self, name: str, whose: str) -> None:
        raise Error(f"{name} has changed and no step was counted, so that {whose} would undo it: {self._right}")
