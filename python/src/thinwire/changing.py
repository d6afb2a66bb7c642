"""Local updates in a group whose members come and go: an OuterLoop for each generation, and theta from one to the next."""

import contextlib
import ctypes
import json
import math
import struct
import warnings
from typing import Callable, Dict, Iterator, List, Optional, Sequence, Tuple

from . import outer, table
from ._library import MAX_DIMS
from .comm import Comm
from .errors import Error, PeerError, SpecError
from .members import Due, Members, Place, Wish
from .spec import settings_of
from .table import BYTES, Entry

Entries = Dict[str, Entry]
NUMBERS = "outer/numbers"  # of a state: the round, the steps since it began, and three that are a rank's own
SHARED = ("theta/", "outer_momentum/")
COUNT_OF_NUMBERS = 5
LARGEST_HEADER = 1 << 24
TIMES_THETA = 32  # that a state is at most as large: theta, momentum, and what a method and its exchange hold back


def refuse_unfit(spec: str) -> None:
    """A generation begins and ends between two rounds."""
    settings = settings_of(spec)
    for name, wanted in {"delay": "0", "eager": "off", "first_moment": "0", "second_moment": "0", "per_host": "1"}.items():
        if settings.get(name, wanted) != wanted:
            raise SpecError(f"{spec}: {name}={settings[name]} where members come and go; it takes {name}={wanted}, or "
                            "workers=N, which stay", 2, "TW_ERROR_SPEC")


class ChangingLoop:
    """What outer.OuterLoop is to a Comm, to a group of Members. Each generation begins with a round: whoever is new takes
    part in it with nothing of its own, and has theta. A round in which somebody is lost is made again by the others, with
    what they had for it; where some have applied it, the others take theta from them.

    `give` and `take` are for what else a newcomer is given, of the program's own: entries by name."""

    def __init__(self, members: Members, spec: str, tensors: Sequence[table.Named], give: Callable[[], Entries] = dict,
                 take: Callable[[Entries], None] = lambda entries: None):
        self._members, self.spec, self.tensors = members, spec, [(name, tuple(shape)) for name, shape in tensors]
        self._give, self._take = give, take
        settings = settings_of(spec)
        self._period = int(settings["every"]) // int(settings.get("fragments", "1"))
        self._since = self._steps = self.generation = 0
        self._weight, self._has_steps = 1.0, False  # since it last had theta
        self._kept: Optional[Entries] = None  # the state between two rounds, which the next one is begun from
        self._past: Dict[str, float] = {}
        self._comm: Optional[Comm] = None
        self._loop: Optional[outer.OuterLoop] = None

    @property
    def rank(self) -> int:
        return self._comm.rank if self._comm else 0

    @property
    def size(self) -> int:
        return self._comm.size if self._comm else 1

    @property
    def opened(self) -> bool:
        """Whether this process has opened the group."""
        return self._members.opened

    @property
    def address(self) -> str:
        """Where newcomers may come."""
        return self._members.address

    # ---- the loop ----

    def begin(self, weights: Sequence[int]) -> None:
        """Opens the group with these weights, or waits to be let in, and has the group's."""
        if self._members.opened:
            with Comm.threads(1)[0] as alone:
                loop = outer.OuterLoop(alone, self.spec, self.tensors)
                loop.begin(weights)
                self._kept = self._before_round(loop.state())
        self._enter(weights)
        self._meet(weights, Wish.STAY)

    @property
    def is_due(self) -> bool:
        return self._since + 1 >= self._period

    def step(self, weights: Sequence[int]) -> outer.Event:
        self._since += 1
        self._steps += 1
        self._has_steps = True
        if self._since < self._period:
            return outer.Event.NOTHING
        self._meet(weights, Wish.STAY)
        return outer.Event.APPLIED

    def set_weight(self, weight: float) -> None:
        self._opened().set_weight(weight)
        self._weight = weight

    def finish(self, weights: Sequence[int]) -> None:
        """Takes part in the others' rounds until all are here."""
        while True:
            if self._meet(weights, Wish.FINISH) is not Due.FINISHED:
                continue
            try:
                self._opened().set_weight(self._weight if self._has_steps else 0)
                self._opened().finish(weights)
                self._kept = self._opened().state()
                return
            except PeerError:
                self._enter(weights)

    def leave(self, weights: Sequence[int]) -> None:
        """Gives its last steps to a round, and is in no generation after the next."""
        self._meet(weights, Wish.STAY)
        try:
            self._members.due(self._there(), Wish.LEAVE)
        except PeerError:
            pass
        self._close_generation()
        self._members.next(rounds_of(self._kept), leaves=True)
        self.read(weights)

    def _meet(self, weights: Sequence[int], wish: Wish) -> Due:
        """A round, in whichever generation it comes about; or none, where all finish."""
        while True:
            try:
                loop = self._opened()
                while not loop.is_due:
                    loop.step(weights)
                due = self._members.due(self._there(), wish)
                if due is Due.SAME:
                    loop.set_weight(self._weight if self._has_steps else 0)
                    loop.step(weights)
                    self._kept = self._before_round(loop.state())
                    self._since, self._has_steps = 0, False
                if due is not Due.CHANGE:
                    return due
            except PeerError:
                pass
            self._enter(weights)

    # ---- from one generation to the next ----

    def _enter(self, weights: Sequence[int]) -> None:
        self._close_generation()
        while True:
            place = self._members.next(rounds_of(self._kept))
            if place is None:
                raise Error("the others go on without this process")
            self.generation = place.number
            if not place.kept:
                self._tell_lost()
                self._kept = None
            try:
                self._comm = self._members.sealed(place.comm)
                self._take_place(self._comm, place, weights)
                return
            except PeerError:
                self._close_generation()

    def _tell_lost(self) -> None:
        if self._kept and self._has_steps:
            warnings.warn(f"the group has gone on without this process since its round {rounds_of(self._kept)}: what its "
                          "steps since then came to is given up, and it takes the group's weights", stacklevel=5)

    def _take_place(self, comm: Comm, place: Place, weights: Sequence[int]) -> None:
        if place.donor < 0:
            raise Error("nobody in the group has the shared weights any more", 7, "TW_ERROR_PEER")
        extra: Entries = {}
        theirs: Optional[Entries] = None
        if any(row == b"\1" for row in comm.allgather(bytes([place.behind]), 1)):
            own = self._give()
            theirs, extra = spread(comm, place.donor, self._kept or {}, own, most_of(self.tensors, own))
            refuse_no_state(place.donor, theirs, self.tensors)
        loop = outer.OuterLoop(comm, self.spec, self.tensors)
        state = self._state_for(comm, loop, place, theirs)
        with said_by(place.donor if place.behind else comm.rank):
            loop.load_state(state)
        loop.begin(weights)  # which compares theta and its momentum, by their hashes
        if place.behind:
            loop.read(weights)
            with said_by(place.donor):
                self._take(extra)
            self._has_steps = False
        self._loop = loop
        self._kept = loop.state()

    def _state_for(self, comm: Comm, loop: outer.OuterLoop, place: Place, theirs: Optional[Entries]) -> Entries:
        """What is shared is the donor's. What the exchange holds back is this process's own, if all have a place for
        theirs; else all begin without. Of a round that the donor has applied and this process has not, it is not known."""
        own = None if place.behind else self._kept
        states = {place.donor: theirs, comm.rank: own}
        made: Optional[Entries] = None
        try:
            made = outer.regrouped(self.spec, self.tensors, states.get, comm.size, comm.rank, comm.size)
        except Error:
            pass
        if all(row == b"\1" for row in comm.allgather(bytes([made is not None]), 1)) and made is not None:
            return made
        if comm.rank == 0:
            warnings.warn("what the exchange held back has no place among another number of members, and is given up",
                          stacklevel=7)
        shared = theirs or own or {}
        kept = {name: entry for name, entry in shared.items() if name.startswith(SHARED)}
        round_, since, *_ = numbers_of(shared)
        return {**loop.state(), **kept, NUMBERS: as_numbers([round_, since, 0, 0, 0])}

    def _before_round(self, state: Entries) -> Entries:
        """So that the next step begins it."""
        round_, _, *own = numbers_of(state)
        return {**state, NUMBERS: as_numbers([round_, self._period - 1, *own])}

    def _close_generation(self) -> None:
        if self._loop:
            for name, value in self._loop.stats().items():
                self._past[name] = self._past.get(name, 0) + value
        if self._comm:
            self._comm.close()
        self._loop = self._comm = None

    def _opened(self) -> outer.OuterLoop:
        if self._loop is None:
            raise Error("the loop has not begun, or is over", 12, "TW_ERROR_ORDER")
        return self._loop

    def _there(self) -> Comm:
        if self._comm is None:
            raise Error("the loop has not begun, or is over", 12, "TW_ERROR_ORDER")
        return self._comm

    # ---- telling ----

    def read(self, shared: Sequence[int]) -> None:
        """theta, as the last round has left it; nobody else is needed."""
        for (name, _), address in zip(self.tensors, shared):
            data = (self._kept or {})["theta/" + name].data
            ctypes.memmove(address, data, len(data))

    def plan(self) -> Dict[str, str]:
        return self._opened().plan()

    def stats(self) -> Dict[str, float]:
        now = self._loop.stats() if self._loop else {}
        sums = {name: self._past.get(name, 0) + now.get(name, 0) for name in {**self._past, **now}}
        return {**sums, "steps": self._steps, "rounds": max(0, rounds_of(self._kept)), "cosine": now.get("cosine", 0.0)}

    def close(self) -> None:
        """Without finish() or leave() the others take it for lost."""
        self._close_generation()
        self._members.close()


# ---- states ----


def numbers_of(state: Entries) -> Tuple[int, ...]:
    data = state[NUMBERS].data
    return struct.unpack(f"<{len(data) // 8}Q", data)


def as_numbers(numbers: List[int]) -> Entry:
    return Entry("uint64", (len(numbers),), struct.pack(f"<{len(numbers)}Q", *numbers))


def rounds_of(state: Optional[Entries]) -> int:
    return numbers_of(state)[0] if state else -1


# ---- what the donor has ----


def most_of(tensors: Sequence[table.Named], extra: Entries) -> int:
    """Bytes that a donor may give, where what else it gives is as much as this process has of it."""
    theta = sum(BYTES["float32"] * math.prod(shape) for _, shape in tensors)
    return TIMES_THETA * theta + sum(len(one.data) for one in extra.values()) + LARGEST_HEADER


def spread(comm: Comm, donor: int, state: Entries, extra: Entries, most: int) -> Tuple[Entries, Entries]:
    """A collective: the donor's state, and what else it gives, of at most so many bytes."""
    parts = [state, extra] if comm.rank == donor else [{}, {}]
    header = json.dumps([[[name, one.dtype, one.shape] for name, one in part.items()] for part in parts]).encode()
    size = ctypes.create_string_buffer(struct.pack("<Q", len(header)), 8)
    comm.broadcast(donor, ctypes.addressof(size), 8)
    length = struct.unpack("<Q", size.raw)[0]
    if length > LARGEST_HEADER:
        raise Error(f"rank {donor} gives a table of {length} bytes; want at most {LARGEST_HEADER}", 6, "TW_ERROR_PACKET")
    there = ctypes.create_string_buffer(header if comm.rank == donor else b"", length)
    comm.broadcast(donor, ctypes.addressof(there), length)
    return tuple(spread_part(comm, donor, rows, part) for rows, part in zip(read_header(donor, there.raw, most), parts))  # type: ignore


def read_header(donor: int, header: bytes, most: int) -> List[List[Tuple[str, str, Tuple[int, ...], int]]]:
    """Of each part the names, types, shapes and bytes. It is another machine's word."""
    parts = []
    try:
        for part in json.loads(header):
            rows = [(str(name), str(dtype), tuple(int(n) for n in shape)) for name, dtype, shape in part]
            parts.append([(*row, bytes_of(*row)) for row in rows])
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        parts = []
    if len(parts) != 2:
        raise Error(f"rank {donor} gives what is no table of a state", 6, "TW_ERROR_PACKET")
    given = sum(size for part in parts for *_, size in part)
    if given > most:
        raise Error(f"rank {donor} gives {given} bytes; want at most {most}, for a network of this size", 6, "TW_ERROR_PACKET")
    return parts


def bytes_of(name: str, dtype: str, shape: Tuple[int, ...]) -> int:
    name.encode()  # which half of a surrogate pair has not
    if len(shape) > MAX_DIMS or not all(0 <= n < 1 << 40 for n in shape):
        raise ValueError(shape)
    return BYTES[dtype] * math.prod(shape)


def spread_part(comm: Comm, donor: int, rows: List[Tuple[str, str, Tuple[int, ...], int]], own: Entries) -> Entries:
    found: Entries = {}
    for name, dtype, shape, size in rows:
        try:
            data = ctypes.create_string_buffer(own[name].data if comm.rank == donor else b"", max(1, size))
            comm.broadcast(donor, ctypes.addressof(data), size)
            found[name] = Entry(dtype, shape, ctypes.string_at(data, size))
        except MemoryError:
            raise Error(f"rank {donor} has {size} bytes of {name}, and there is no memory for them here", 3,
                        "TW_ERROR_MEMORY") from None
    return found


def refuse_no_state(donor: int, state: Entries, tensors: Sequence[table.Named]) -> None:
    """What is not in every state the exchange looks at itself."""
    wanted: Dict[str, Tuple[str, Tuple[int, ...]]] = {"theta/" + name: ("float32", tuple(shape)) for name, shape in tensors}
    wanted[NUMBERS] = "uint64", (COUNT_OF_NUMBERS,)
    for name, (dtype, shape) in wanted.items():
        if name not in state or (state[name].dtype, state[name].shape) != (dtype, shape):
            raise Error(f"rank {donor} gives a state without {name} of {shape} in {dtype}", 6, "TW_ERROR_PACKET")


@contextlib.contextmanager
def said_by(rank: int) -> Iterator[None]:
    try:
        yield
    except Error as error:
        raise Error(f"what rank {rank} gives cannot be taken: {error}", error.status, error.name) from None
