"""Objects of the library that Python owns, and when they go."""

import contextlib
import functools
import os
import weakref
from ctypes import c_void_p
from typing import Any, Callable, Dict, Iterator, Optional, Sequence, Tuple, TypeVar

from . import errors
from ._told import Apart, is_of_python

Self = TypeVar("Self", bound="Closes")
Result = TypeVar("Result")
Users = Dict[object, Optional[Callable[[], object]]]  # what an object is needed for, and what ends that
ends = Apart("thinwire end")


def destroy(process: int, of_library: Callable, handle: int, place: object, made_from: "Sequence[Owned]") -> None:
    """A forked child has a copy of the handle, but none of its threads and none of its connections."""
    is_here = os.getpid() == process
    try:
        if is_here:
            of_library(handle)
    finally:  # Ctrl-C may come on the way out of it
        for owner in made_from:
            owner._let_go(place)


def destroy_unless_used(users: Users, *what: Any) -> None:
    """Python ends, and a thread that it leaves behind may be in a call. Garbage is collected on any thread, and one of the
    library's own is among those that end with what is destroyed."""
    if not users:
        destroy(*what) if is_of_python() else ends.do(functools.partial(destroy, *what))


class Closes:
    """What may stand in a ``with``, at whose end it is closed."""

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self: "Self") -> "Self":
        return self

    def __exit__(self, *what: object) -> None:
        self.close()


class Owned(Closes):
    """Something behind an address. It is destroyed by close(), when nobody has it any more, or when Python ends. While another
    thread is in a call on it, or something that was made from it is still there, it stays: the last of these destroys it."""

    _goes_on = False  # a thread of the library's works for it, and may wait for other ranks

    def _own(self, handle: c_void_p, of_library: Callable, *made_from: "Owned") -> None:
        """What it is made from outlives it: its finaliser holds them, and they close it before themselves. Where one of them was
        closed meanwhile, so is this."""
        self._address, self._closes, self._process = handle.value or 0, False, os.getpid()
        self._users: Users = {}  # a key goes in and out of it in one step, so that neither threads nor signals need a lock
        place, itself = object(), weakref.ref(self)
        self._end = weakref.finalize(self, destroy_unless_used, self._users, self._process, of_library, self._address, place, made_from)

        def close() -> None:
            there = itself()
            if there is not None:
                if there._goes_on:
                    for owner in made_from:
                        owner._end_waits()
                there.close()

        for owner in made_from:
            owner._users[place] = close
        if any(owner.closed for owner in made_from):
            self.close()

    @property
    def _handle(self) -> int:
        """For who uses it, by _used() or _call()."""
        if self.closed:
            raise errors.Error(f"this {type(self).__name__} was closed", 12, "TW_ERROR_ORDER")
        return self._address

    @property
    def closed(self) -> bool:
        return self._closes or not self._end.alive

    @contextlib.contextmanager
    def _used(self, end: Optional[Callable[[], object]] = None) -> Iterator[int]:
        """Its address, behind which it stays until then. `end` is for what may wait: close() calls it from another thread."""
        use = object()
        try:
            self._users[use] = end
            yield self._handle
        finally:
            self._let_go(use)

    def _call(self, function: Callable[..., Result], *arguments: Any) -> Result:
        """What a function of the library gives for this object."""
        with self._used() as handle:
            return function(handle, *arguments)

    def _end_waits(self) -> None:
        """Of whoever waits in it."""

    def _let_go(self, use: object) -> None:
        self._users.pop(use, None)
        what = self._end.detach() if self._closes and not self._users else None
        if what is not None:
            destroy(*what[2][1:])

    def _given_away(self) -> int:
        """The address, for a call that becomes its owner: this object is closed, and nothing was destroyed."""
        handle = self._handle
        if self._users:
            raise errors.Error(f"this {type(self).__name__} is in use", 12, "TW_ERROR_ORDER")
        self._end.detach()
        return handle

    def close(self) -> None:
        """Destroys it, and before it what was made from it. What was closed stays closed. Any thread may call it: where another
        one is in a call, the object is destroyed on the way out of it. A Comm, a Listener and Members end a wait in there, of what
        was made from them as well."""
        use = object()
        self._users[use] = None
        self._closes = True
        try:
            for end in self._users.copy().values():
                if end is not None:
                    end()
        finally:
            self._let_go(use)

    def __reduce__(self) -> Tuple[Any, ...]:
        raise errors.Error(f"a {type(self).__name__} lives in this process, and cannot be copied or pickled; its state can", 12,
                           "TW_ERROR_ORDER")
