"""The steps that a program has taken and not shared."""

import os
import sys

from .._warned import place_outside, warn
from ._counts import counted


class Unshared:
    """`steps` are those since a round has last changed the weights. Whoever makes it has tell() called when the program ends."""

    def __init__(self) -> None:
        self.steps = 0
        self._process, self._place = os.getpid(), place_outside()

    @property
    def is_here(self) -> bool:
        """Whether this is no child that a fork has made."""
        return os.getpid() == self._process

    def tell(self) -> None:
        """Not behind an exception, which says itself why the program ends."""
        fails = getattr(sys, "last_type", None) is not None or sys.exc_info()[0] is not None
        if self.steps and not fails and self.is_here:
            warn(f"the {counted(self.steps)} behind the last round went to nobody, so that the workers' weights differ: call finish() of "
                 "this OuterLoop at the end, on all of them", self._place)
