"""Who takes part: a group of ranks."""

import _thread
import contextlib
import ctypes
import functools
import os
from typing import Any, Callable, ContextManager, Dict, List, Optional, TypeVar, Union

from ._library import FOLDER_FUNCTIONS, Stopped, Traffic, library, load_part
from ._owned import Owned
from ._told import News
from .errors import Error

LARGEST = 1 << 30  # bytes that a rank may have for the others
LONGEST_DEAF = 0.5  # seconds: a signal that comes just before a wait begins, or to another thread, does not end it
Result = TypeVar("Result")


def refuse_no_numbers(**numbers: Any) -> None:
    """ctypes would cut a number that is too large."""
    for name, one in numbers.items():
        if isinstance(one, bool) or not isinstance(one, int) or not -(1 << 31) <= one < 1 << 31:
            raise Error(f"{name}={one!r}: want a whole number, such as 2")


def bytes_of_path(path: "Union[str, os.PathLike[str]]") -> bytes:
    """C would end it at a zero byte; and a name has what os.fsdecode() gives for bytes that are no UTF-8, but no other surrogates."""
    found = b""
    with contextlib.suppress(UnicodeEncodeError):
        found = os.fsencode(path) if isinstance(path, (str, bytes, os.PathLike)) else b""
    if not found or b"\0" in found:
        raise Error(f"{path!r} is no path: want that of a folder")
    return found


def on_thread(call: Callable[[], Result], end: Optional[Callable[[], None]] = None, grace: float = 0.0) -> Result:
    """What a call gives that may wait for other ranks. A thread is in it, so that Ctrl-C is heeded: `end` then ends the
    call, unless that ends by itself within `grace` seconds and before a second Ctrl-C. Where there is no `end` nobody waits for
    it. What the call has to tell is told here. The thread is none of `threading`, whose start() an interrupt may leave half
    done; Python ends without it, in whatever it waits."""
    results: List[Result] = []
    failures: List[BaseException] = []
    news, is_here = News(), False

    def act() -> None:
        try:
            results.append(call())
        except BaseException as error:
            failures.append(error)

    def interrupt() -> None:
        begun, is_over = not is_here, False
        try:
            begun = begun and not news.claim()
            is_over = begun and news.tell_until_over(LONGEST_DEAF, grace)
        finally:  # however many signals come
            if end is not None and not is_over:
                end()
                if begun:
                    news.tell_until_over(LONGEST_DEAF)

    try:
        try:
            _thread.start_new_thread(news.act, (act,))
        except RuntimeError as error:  # there is none to be had, as where Python 3.12 ends
            if "new thread" not in str(error) or not news.claim():  # a handler of a signal has raised it
                raise
            is_here = True
            act()
        else:
            news.tell_until_over(LONGEST_DEAF)
    except BaseException:  # Ctrl-C may come before the thread is in the call, too, which then never is
        try:
            interrupt()
        finally:
            news.left = True
        raise
    if failures:
        raise failures[0]
    return results[0]


class Interrupt:
    """Ctrl-C while a call waits that asks now and then whether it is to stop. It first asks when it begins to wait, and then
    `waits` is called. The answer takes no signal: one that comes up in there would be lost, since C has nowhere to put it."""

    def __init__(self, waits: Callable[[], object] = lambda: None) -> None:
        self._ends, self._untold = False, [waits]
        self.stopped = Stopped(self._answer)

    def _answer(self, context: object) -> bool:
        while self._untold:
            self._untold.pop()()
        return self._ends

    def heed(self, call: Callable[[], object]) -> None:
        self._ends = False
        on_thread(call, self.end)

    def end(self) -> None:
        self._ends = True


@functools.cache
def folder_library() -> ctypes.CDLL:
    return load_part("libthinwire_folder", FOLDER_FUNCTIONS, "no group can be formed in a folder")


class Comm(Owned):
    """One rank's membership of a group. Whoever closes it leaves the group, and the others are told."""

    way = ""  # "eth0, 10.0.0.6" where the others were met, if that is known

    def __init__(self, handle: ctypes.c_void_p):
        self._own(handle, library.tw_comm_destroy)

    @classmethod
    def threads(cls, size: int) -> List["Comm"]:
        """A group inside this process: one Comm for each of `size` threads."""
        refuse_no_numbers(size=size)
        handles = (ctypes.c_void_p * max(0, size))()
        library.tw_comm_create_threads(size, handles)
        return [cls(ctypes.c_void_p(handle)) for handle in handles]

    @classmethod
    def open(cls, name: str) -> "Comm":
        """A group over the transport `name`, whose library libthinwire_NAME.so has to be installed: ``"mpi"``. Rank
        and size come from what started the processes."""
        handle = ctypes.c_void_p()
        library.tw_comm_open(name.encode(), ctypes.byref(handle))
        return cls(handle)

    @classmethod
    def folder(cls, path: "Union[str, os.PathLike[str]]", workers: int, rank: int, seconds: float = 600.0,
               waits: Callable[[], object] = lambda: None) -> "Comm":
        """A collective of `workers` processes that see one folder and need not reach each other. It is that of a file
        server, one that a program keeps alike on several machines, or a URL ("https://host/run") of a server that takes
        PUT and DELETE, or of one that wants them signed as Amazon's S3 does ("s3+https://host/bucket/run"). Each has a
        number of its own, from 0. `waits` is called once, when nothing of the call itself is left to refuse and this process
        waits for the others. PeerError: they did not come within `seconds`. Whoever may write there may take part, and read
        all, unless it is sealed."""
        refuse_no_numbers(workers=workers, rank=rank)
        if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 < seconds <= 1e9:
            raise Error(f"seconds={seconds!r}: want a number above 0, at most 1e9")
        where, handle, interrupt = bytes_of_path(path), ctypes.c_void_p(), Interrupt(waits)
        interrupt.heed(lambda: folder_library().tw_folder_join(where, rank, workers, seconds, interrupt.stopped, None,
                                                               ctypes.byref(handle)))
        return cls(handle)

    @property
    def rank(self) -> int:
        return self._call(library.tw_comm_rank)

    @property
    def size(self) -> int:
        return self._call(library.tw_comm_size)

    @property
    def transport(self) -> str:
        return self._call(library.tw_comm_transport).decode()

    def set_timeout(self, seconds: float) -> None:
        """The longest that this rank waits for another of which it hears nothing. Call it before anything runs."""
        self._call(library.tw_comm_set_timeout, seconds)

    def set_patience(self, seconds: float) -> None:
        """The longest that it waits for one that is there, but busy. Over TCP alone the two can be told apart."""
        self._call(library.tw_comm_set_patience, seconds)

    def leave(self) -> None:
        """Ends every wait of this rank now, from any thread, and has the others know. close() comes later."""
        self._call(library.tw_comm_leave)

    def _end_waits(self) -> None:
        """While it is used, by a thread that a forked child has not got."""
        if os.getpid() == self._process:
            library.tw_comm_leave(self._address)

    def waits(self) -> "ContextManager[int]":
        """Around what may wait for other ranks: close() ends it."""
        return self._used(self._end_waits)

    def barrier(self) -> None:
        """Returns when all ranks have called it."""
        self.waited(lambda: self._call(library.tw_comm_barrier))

    def allgather(self, data: bytes, largest: int = LARGEST) -> List[bytes]:
        """A collective: what each rank has for the others, in order of rank, of any size up to `largest`: who claims more is
        refused before there is room made for it."""
        sizes = [int.from_bytes(size, "little") for size in self.allgather_alike(len(data).to_bytes(8, "little"))]
        for rank, size in enumerate(sizes):
            if size > largest:
                raise Error(f"rank {rank} has {size} bytes for the others; want at most {largest}")
        rows = self.allgather_alike(data.ljust(max(sizes), b"\0"))
        return [row[:size] for row, size in zip(rows, sizes)]

    def allgather_alike(self, data: bytes) -> List[bytes]:
        """The same of one size on all ranks; an Error where another one's differs."""
        there = ctypes.create_string_buffer(max(1, len(data) * self.size))
        self.waited(lambda: self._call(library.tw_comm_allgather, data, len(data), there))
        rows = there.raw
        return [rows[rank * len(data):(rank + 1) * len(data)] for rank in range(self.size)]

    def broadcast(self, root: int, address: int, size: int) -> None:
        """A collective: the `size` bytes at the address become those of rank `root`."""
        self.waited(lambda: self._call(library.tw_comm_broadcast, root, address, size))

    def broadcast_packed(self, root: int, address: int, count: int, width: int) -> None:
        """As broadcast(), of `count` numbers of `width` bytes, which travel packed without loss."""
        self.waited(lambda: self._call(library.tw_comm_broadcast_packed, root, address, count, width))

    def waited(self, call: Callable[[], Result], grace: float = 0.0) -> Result:
        """What a call gives that may wait for other ranks. Ctrl-C ends the wait of all, where it has not ended `grace` seconds
        later or at the next one, and so does close(). After one more its thread is left behind in the call, which goes on using
        this."""
        def used() -> Result:
            with self._used():
                return call()

        with self.waits():
            return on_thread(used, self._end_waits, grace)

    def made(self, what: Owned, create: Callable, destroy: Callable, *arguments: Any) -> None:
        """A collective: `what` owns what the library's `create` makes on this comm."""
        handle = ctypes.c_void_p()
        with self._used():
            self.waited(lambda: self._call(create, *arguments, ctypes.byref(handle)))
            what._own(handle, destroy, self)

    def traffic(self) -> Dict[str, int]:
        """Bytes and messages that went over the wire, as the transport counted them."""
        counts = Traffic(struct_size=ctypes.sizeof(Traffic))
        self._call(library.tw_comm_traffic, ctypes.byref(counts))
        return {name: getattr(counts, name) for name, _ in Traffic._fields_[1:]}
