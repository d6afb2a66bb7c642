"""Steps of an optimizer that take gradients which the ranks have not agreed on."""

import weakref
from typing import Iterable, List

import torch

from ..errors import Error
from . import _optimiser, _parameters, _passes


class Unfit:
    """Refuses them, from torch 2.0 on, until close(). The ranks agree on the gradients of these parameters of the module, and not on
    those of `left`, as the user wishes."""

    def __init__(self, module: torch.nn.Module, parameters: List[torch.Tensor], whose: str, remedy: str = "",
                 left: Iterable[torch.Tensor] = ()):
        self._module, self._parameters, self._whose, self._remedy = weakref.ref(module), parameters, whose, remedy
        self._known = {id(one) for one in [*parameters, *left]}
        self.close = _optimiser.at_each_step(self._look)

    def _look(self, optimiser: torch.optim.Optimizer) -> None:
        """It is about to step. A pass may call no hook, where all that has one is frozen by now: so this is asked here."""
        module = self._module()
        if module is None:
            return
        if _passes.is_under_way() and _optimiser.steps_any_of(optimiser, self._parameters):
            raise Error(f"{type(optimiser).__name__} steps inside of the backward pass, where gradients are a rank's own and not yet "
                        "the mean: step behind backward(), or take an OuterLoop, which exchanges no gradients")
        _parameters.refuse_newly_stepped(optimiser, module, self._known, self._whose, self._remedy)
