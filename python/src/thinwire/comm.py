"""Who takes part: a group of ranks."""

import ctypes
from typing import Dict, List

from ._library import Traffic, library
from ._owned import Owned


class Comm(Owned):
    """One rank's membership of a group. Whoever closes it leaves the group, and the others are told."""

    def __init__(self, handle: ctypes.c_void_p):
        self._own(handle, library.tw_comm_destroy)

    @classmethod
    def threads(cls, size: int) -> List["Comm"]:
        """A group inside this process: one Comm for each of `size` threads."""
        handles = (ctypes.c_void_p * size)()
        library.tw_comm_create_threads(size, handles)
        return [cls(ctypes.c_void_p(handle)) for handle in handles]

    @classmethod
    def open(cls, name: str) -> "Comm":
        """A group over the transport `name`, whose library libthinwire_NAME.so has to be installed: ``"mpi"``. Rank
        and size come from what started the processes."""
        handle = ctypes.c_void_p()
        library.tw_comm_open(name.encode(), ctypes.byref(handle))
        return cls(handle)

    @property
    def rank(self) -> int:
        return library.tw_comm_rank(self._handle)

    @property
    def size(self) -> int:
        return library.tw_comm_size(self._handle)

    @property
    def transport(self) -> str:
        return library.tw_comm_transport(self._handle).decode()

    def set_timeout(self, seconds: float) -> None:
        """The longest that this rank waits for another of which it hears nothing. Call it before anything runs."""
        library.tw_comm_set_timeout(self._handle, seconds)

    def set_patience(self, seconds: float) -> None:
        """The longest that it waits for one that is there, but busy. Over TCP alone the two can be told apart."""
        library.tw_comm_set_patience(self._handle, seconds)

    def leave(self) -> None:
        """Ends every wait of this rank now, from any thread, and has the others know. close() comes later."""
        library.tw_comm_leave(self._handle)

    def barrier(self) -> None:
        """Returns when all ranks have called it."""
        library.tw_comm_barrier(self._handle)

    def traffic(self) -> Dict[str, int]:
        """Bytes and messages that went over the wire, as the transport counted them."""
        counts = Traffic(struct_size=ctypes.sizeof(Traffic))
        library.tw_comm_traffic(self._handle, ctypes.byref(counts))
        return {name: getattr(counts, name) for name, _ in Traffic._fields_[1:]}
