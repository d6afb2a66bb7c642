"""Objects of the library that Python owns, and when they go."""

import os
import weakref
from ctypes import c_void_p
from typing import Any, Callable, Tuple, TypeVar

from . import errors

Self = TypeVar("Self", bound="Closes")


def destroy_in(process: int, destroy: Callable, handle: int, *outlive: Any) -> None:
    """A forked child has a copy of the handle, but none of its threads and none of its connections."""
    if os.getpid() == process:
        destroy(handle)


class Closes:
    """What may stand in a ``with``, at whose end it is closed."""

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self: "Self") -> "Self":
        return self

    def __exit__(self, *what: object) -> None:
        self.close()


class Owned(Closes):
    """Something behind an address. It is destroyed by close(), when nobody has it any more, or when Python ends."""

    def _own(self, handle: c_void_p, destroy: Callable, *made_from: "Owned") -> None:
        """What it is made from outlives it: its finaliser holds them, and they close it before themselves."""
        self._address = handle.value or 0
        self._end = weakref.finalize(self, destroy_in, os.getpid(), destroy, self._address, *made_from)
        self._made_of_it: "weakref.WeakSet[Owned]" = weakref.WeakSet()
        for owner in made_from:
            owner._made_of_it.add(self)

    @property
    def _handle(self) -> int:
        if not self._end.alive:
            raise errors.Error(f"this {type(self).__name__} was closed", 12, "TW_ERROR_ORDER")
        return self._address

    @property
    def closed(self) -> bool:
        return not self._end.alive

    def _given_away(self) -> int:
        """The address, for a call that becomes its owner: this object is closed, and nothing was destroyed."""
        handle = self._handle
        if not all(made.closed for made in self._made_of_it):
            raise errors.Error(f"this {type(self).__name__} is in use", 12, "TW_ERROR_ORDER")
        self._end.detach()
        return handle

    def close(self) -> None:
        """Destroys it, and before it what was made from it. What was closed stays closed."""
        for made in list(self._made_of_it):
            made.close()
        self._end()

    def __reduce__(self) -> Tuple[Any, ...]:
        raise errors.Error(f"a {type(self).__name__} lives in this process, and cannot be copied or pickled; its state can", 12,
                           "TW_ERROR_ORDER")
