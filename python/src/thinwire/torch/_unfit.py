"""Steps of an optimizer that take gradients which the ranks have not agreed on."""

import weakref
from typing import List

import torch

from ..errors import Error
from . import _optimiser, _parameters, _passes
from ._parameters import Row


class Unfit:
    """Refuses them, from torch 2.0 on, until close(). `rows` are all parameters of the module that somebody agrees on."""

    def __init__(self, module: torch.nn.Module, rows: List[Row], whose: str):
        self._module, self._rows, self._whose = weakref.ref(module), rows, whose
        self._stop = _optimiser.at_each_step(self._look)

    def _look(self, optimiser: torch.optim.Optimizer) -> None:
        """It is about to step. A pass may call no hook, where all that has one is frozen by now: so this is asked here."""
        module = self._module()
        if module is None:
            return
        if _passes.is_under_way() and _optimiser.steps_any_of(optimiser, [row.parameter for row in self._rows]):
            raise Error(f"{type(optimiser).__name__} steps inside of the backward pass, where gradients are a rank's own and not yet "
                        "the mean: step behind backward(), or take an OuterLoop, which exchanges no gradients")
        _parameters.refuse_newly_stepped(optimiser, module, self._rows, self._whose)

    def close(self) -> None:
        self._stop()
