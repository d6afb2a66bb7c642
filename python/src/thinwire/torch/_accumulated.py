"""Whether a backward pass adds its gradients to what a scheme gave in the place of gradients."""

import weakref
from typing import Any, Callable, Iterable, List, Set

import torch

from ..errors import Error
from . import _optimiser
from ._parameters import Row, local

LOOKED_AT = 4  # parts of a model, of each the smallest parameter: its hook is called in every pass


class Accumulated:
    """A scheme that applies momentum, has moments or gives signs gives a direction. If a backward pass adds a gradient to it
    before the optimizer has stepped, the scheme would take the sum for a gradient. Of the others such a sum is right.

    What is looked at is what a parameter has just before a pass adds to it: nothing and zeros begin anew, whoever made them.
    Before torch 2.0, which does not tell when an optimizer steps, nobody looks."""

    def __init__(self, rows: List[Row]):
        parts = [rows[len(rows) * i // LOOKED_AT:len(rows) * (i + 1) // LOOKED_AT] for i in range(LOOKED_AT)]
        looked_at = [min(reversed(part), key=lambda row: row.elements) for part in parts if part]
        self._parameters = [row.parameter for row in looked_at if _optimiser.registers_steps()]
        self._directed: Set[int] = set()  # which of them have a direction that no optimizer has stepped along
        self._added_to: Set[int] = set()
        weakly = weakref.WeakMethod(self._look)
        self._hooks = [one.register_hook(looking(weakly, i)) for i, one in enumerate(self._parameters)]

    def _look(self, index: int) -> None:
        if index not in self._directed:
            return
        gradient = self._parameters[index].grad
        if gradient is not None and bool(local(gradient).any()):
            self._added_to.add(index)
        else:
            self._directed.discard(index)
            self._added_to.discard(index)

    def look(self) -> None:
        """Of shards no hook is called, nor of what a pass did not use and an Exchange gives all the same."""
        for index in range(len(self._parameters)):
            self._look(index)

    def given(self, directions: bool) -> None:
        """All parameters have what the scheme gave: directions, or else gradients."""
        self._directed, self._added_to = set(range(len(self._parameters)) if directions else ()), set()

    def stepped(self, optimiser: torch.optim.Optimizer, known: Iterable[torch.optim.Optimizer]) -> None:
        """Along its parameters' directions, and those that no other known optimizer will step along."""
        others = {id(p) for one in known if one is not optimiser for group in one.param_groups for p in group["params"]}
        own = {id(p) for group in optimiser.param_groups for p in group["params"]}
        stepped = {index for index, one in enumerate(self._parameters) if id(one) in own or id(one) not in others}
        self._directed -= stepped
        self._added_to -= stepped

    def refuse(self, scheme: str) -> None:
        if self._added_to:
            raise Error(f"{scheme} has given a direction to step in, and another backward pass before optimizer.step() or zero_grad() "
                        "adds a gradient to it: put all passes of a step but the last into no_sync(), which with fully_shard is "
                        "set_requires_gradient_sync(False) and in Accelerate accumulate() without sync_each_batch")

    def close(self) -> None:
        for hook in self._hooks:
            hook.remove()


def looking(weakly: Any, index: int) -> Callable[[torch.Tensor], None]:
    """A parameter may outlive who looks at it, and must not hold it."""
    @torch.utils.hooks.unserializable_hook  # a model may be sent to another process, without what looks at it here
    def look(gradient: torch.Tensor) -> None:
        method = weakly()
        if method:
            method(index)

    return look
