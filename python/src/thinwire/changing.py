"""Local updates in a group whose members come and go: an OuterLoop for each generation, and theta from one to the next."""

import contextlib
import ctypes
import json
import math
import struct
import time
from typing import Callable, Dict, Iterator, List, Optional, Sequence, Tuple

from . import outer, table
from ._library import MAX_DIMS, OuterCounts
from ._warned import warn
from .comm import Comm
from .errors import Error, PeerError, SpecError
from .members import Due, Members, Place, Wish
from .spec import number, settings_of
from .table import BYTES, Entries, Entry

NUMBERS = "outer/numbers"  # of a state: the round, the steps since it began, and three that are a rank's own
SHARED = ("theta/", "outer_momentum/")
EXCHANGE = "exchange"  # what the names of what it keeps begin with
COUNT_OF_NUMBERS = 5
GRACE = 10.0  # seconds that a round has to come to its end behind Ctrl-C
BEHIND, KEPT = 1, 2  # of a Place, as members tell each other,
TOLD = struct.Struct("<BQ")  # beside their empty rounds
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

    `give` and `take` are for what else a newcomer is given, of the program's own: entries by name. `compare` is a collective
    of each generation, at the end of its second round: behind the first one all have had the same weights."""

    def __init__(self, members: Members, spec: str, tensors: Sequence[table.Named], give: Callable[[], Entries] = dict,
                 take: Callable[[Entries], None] = lambda entries: None, compare: Callable[[Comm], None] = lambda comm: None):
        self._members, self.spec, self.tensors = members, spec, [(name, tuple(shape)) for name, shape in tensors]
        self._give, self._take, self._compare = give, take, compare
        self._period, self._has_momentum = outer.period_of(spec), number(settings_of(spec).get("outer_momentum", "0")) > 0
        self._since = self._steps = self._steps_before = self._met = self.generation = 0
        self._compared = False  # in this generation
        self.seconds_exchanged = 0.0  # of the last round, in which all were there
        self.fetched = 0.0, 0.0  # bytes that this process was given when it came in, and seconds
        self._weight, self._has_steps = 1.0, False  # since it last had theta
        self._kept: Optional[Entries] = None  # the state between two rounds, which the next one is begun from
        self._saved: Optional[Entries] = None  # what load_state() took, until a group has been entered
        self._late: Optional[Entries] = None  # what it had when the group went on without it, until it is in again
        self._stayed = 0  # members of the last generation that did not leave it
        self._agreed: Optional[Due] = None  # what all are to do next, and this one has not begun
        self.told = 0  # the last generation of which a line has said how it came about, and how many are in it
        self.broke = ""  # why the generation before this one did; "": its members have ended it
        self._past = table.fields_of(OuterCounts())
        self._comm: Optional[Comm] = None
        self._loop: Optional[outer.OuterLoop] = None
        self.is_over = False  # finish() or leave() has come to its end
        self._closed = False

    @property
    def rank(self) -> int:
        comm = self._comm  # once: close() may come on another thread
        return comm.rank if comm else 0

    @property
    def size(self) -> int:
        comm = self._comm
        return comm.size if comm else 1

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
        """Opens the group with these weights, or with what was loaded; or waits to be let in, and has the group's."""
        if self._members.opened and self._saved:
            self._kept, self._saved = self._before_round(self._saved), None
        elif self._members.opened:
            with Comm.threads(1)[0] as alone:
                loop = outer.OuterLoop(alone, self.spec, self.tensors)
                loop.begin(weights)
                self._kept = self._before_round(loop.state_apart())
        self._enter(weights)
        self.read(weights)
        self._meet(weights, Wish.STAY)

    @property
    def is_due(self) -> bool:
        return self._since + 1 >= self._period

    @property
    def has_shared(self) -> bool:
        """Whether all steps are in the shared weights, or none was taken."""
        return not self._has_steps

    def has_stepped(self) -> None:
        """The weights are no longer the shared ones, whether step() is called or an exception comes before that."""
        self._has_steps = True

    def step(self, weights: Sequence[int]) -> outer.Event:
        """As outer.OuterLoop's. An exception may come behind a round: has_shared."""
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

    def finish(self, weights: Sequence[int]) -> bool:
        """Takes part in the others' rounds until all are here. False: as of an outer.OuterLoop."""
        while True:
            if self._meet(weights, Wish.FINISH) is not Due.FINISHED:
                continue
            since = self._now()
            try:
                self._opened().set_weight(self._weight if self._has_steps else 0)
                good = self._opened().finish(weights)
                self._kept = self._opened().state_apart()
                self.is_over = True
                return good
            except PeerError as error:
                self._enter(weights, str(error))
                self._count_wait(since)

    def leave(self, weights: Sequence[int]) -> None:
        """Gives its last steps to a round, and is in no generation after the next."""
        self._meet(weights, Wish.STAY, grace=0)
        since = self._now()
        try:
            self._members.due(self._there(), Wish.LEAVE)
            self._hand_over(leaves=True)
        except PeerError:
            pass
        self._close_generation()
        self._members.next(rounds_of(self._kept), leaves=True)
        self._count_wait(since)
        self.read(weights)
        self.is_over = True

    def _meet(self, weights: Sequence[int], wish: Wish, grace: float = GRACE) -> Due:
        """A round, in whichever generation it comes about; or none, where all finish."""
        while True:
            since, broke = self._now(), ""
            try:
                loop = self._opened()
                while not loop.is_due:
                    loop.step(weights)
                due = self._agree(wish)
                since = self._count_wait(since)
                if due is Due.SAME:
                    if self._met == 1 and not self._compared:
                        self._compared = True
                        self._compare(self._there())
                    self._there().waited(lambda: self._make_round(loop, weights), grace)
                if due is not Due.CHANGE:
                    return due
                self._hand_over(leaves=False)
            except PeerError as error:
                broke = str(error)
            self._enter(weights, broke)
            self._count_wait(since)

    def _agree(self, wish: Wish) -> Due:
        """What all do next. Once for each round: where Ctrl-C comes behind that, the others wait for what was agreed on."""
        if self._agreed is None:
            self._agreed = self._members.due(self._there(), wish, self._note)
        return self._agreed

    def _note(self, agreed: Due) -> None:
        self._agreed = agreed

    def _make_round(self, loop: outer.OuterLoop, weights: Sequence[int]) -> None:
        """All are there for it. It has some grace behind Ctrl-C: whoever ended one that the others have would lack it."""
        self._agreed = None
        self._met += 1
        loop.set_weight(self._weight if self._has_steps else 0)
        begin = time.monotonic()
        loop.step(weights)
        self.seconds_exchanged = time.monotonic() - begin
        self._kept = self._before_round(loop.state_apart())
        self._since, self._has_steps = 0, False

    def _now(self) -> Tuple[float, float]:
        return time.monotonic(), self.stats()["seconds_wait"]

    def _count_wait(self, since: Tuple[float, float]) -> Tuple[float, float]:
        """For others, but for what a loop has counted itself; and from when on it has to be counted."""
        now, counted = self._now()
        waited = max(0.0, now - since[0] - (counted - since[1]))
        self._past["seconds_wait"] += waited
        return now, counted + waited

    # ---- from one generation to the next ----

    def _hand_over(self, leaves: bool) -> None:
        """A collective, the last of a generation: what the exchange of those that leave holds back goes to the next one that
        stays, whole, since it is in the unit of a sum over any number of members."""
        comm, kept = self._there(), self._kept or {}
        leave = [row == b"\1" for row in comm.allgather(bytes([leaves]), 1)]
        stay = [rank for rank in range(comm.size) if not leave[rank]]
        for rank in range(comm.size if stay and holds_back(kept) else 0):
            if rank in stay:
                continue
            given = with_held_back({}, kept)
            given = spread(comm, rank, given, {}, most_of(self.tensors, {}), whole)[0]
            if comm.rank == min(stay, key=lambda r: (r - rank) % comm.size):
                self._take_over({**kept, **given})
        if leaves and stay:  # it has been handed over: what it saves from here on has none of it
            self._kept = self._for_newcomers()
        self._stayed = len(stay)

    def _take_over(self, theirs: Entries) -> None:
        """Two ranks of twice as many become one."""
        rank, size = self.rank, self.size
        try:
            both = {2 * rank: self._kept, 2 * rank + 1: theirs}
            self._kept = outer.regrouped(self.spec, self.tensors, both.get, 2 * size, rank, size)
        except Error as error:
            warn(f"what the exchange of a member that leaves held back has no place here, and is given up: {error}")

    def _enter(self, weights: Sequence[int], broke: str = "") -> None:
        self._close_generation()
        self._agreed = None
        self.broke = broke
        left, had_steps = -1, self._has_steps
        while True:
            place = self._next_place()
            if place is None:
                raise Error("the others go on without this process")
            self.generation = place.number
            if not place.kept:
                left = max(left, self._come_late(place))
            counts = self._late is not None
            try:
                self._comm = self._members.sealed(place.comm)
                if self._closed:  # meanwhile, by another thread
                    self._close_generation()
                    raise Error("the loop was closed", 12, "TW_ERROR_ORDER")
                self._take_place(self._comm, place, weights)
            except PeerError:
                self._close_generation()
                continue
            if place.lost or left >= 0:
                self.told = place.number
            if left >= 0:
                self._tell_return(left, had_steps, counts)
            return

    def _next_place(self) -> Optional[Place]:
        try:
            return self._members.next(rounds_of(self._kept))
        except PeerError as error:
            if self._stayed == 2 and not self._members.quorum:
                raise error.saying(f"{error}; with quorum=1 on both, one of two goes on alone") from None
            raise

    def _come_late(self, place: Place) -> int:
        """What it had goes to nobody. What came of it since its last round counts with its next one, unless the others have that
        already. Returns the rounds it had; -1: it had none."""
        had, self._kept = self._kept or self._late, None
        self._late = had if place.late else None
        return rounds_of(had)

    def _tell_return(self, left: int, had_steps: bool, counts: bool) -> None:
        comes = "is part of its next round" if counts else "is in the group's weights, or given up"
        steps = f", and what its steps since then came to {comes}" if had_steps else ""
        warn(f"this machine was stopped or cut off, and the others went on without it behind its round {left}: it is in the group "
             f"again, one of {self.size}, with round {rounds_of(self._kept)}{steps}")

    def _take_place(self, comm: Comm, place: Place, weights: Sequence[int]) -> None:
        if place.donor < 0:
            raise Error("nobody in the group has the shared weights any more", 7, "TW_ERROR_PEER")
        extra: Entries = {}
        theirs: Optional[Entries] = None
        rows = comm.allgather_alike(TOLD.pack(BEHIND * place.behind + KEPT * place.kept, int(self._past["rounds_empty"])))
        told = [TOLD.unpack(row)[0] for row in rows]
        self._tell_given_up(comm, told.count(KEPT))
        if any(one & BEHIND for one in told):
            own = self._give()
            given = self._for_newcomers() if comm.rank == place.donor else {}
            comm.barrier()  # nobody has anything else to do from here on, so that the seconds are the line's
            begin, before = time.monotonic(), comm.traffic()["bytes_received"]
            theirs, extra = spread(comm, place.donor, given, own, most_of(self.tensors, own), self._planes)
            if place.behind:
                self.fetched = comm.traffic()["bytes_received"] - before, time.monotonic() - begin
            refuse_no_state(f"rank {place.donor} gives", theirs, self.tensors)
            if place.behind:  # its rounds are the group's from now on, and so are those of them that were empty
                self._past["rounds_empty"] = min(TOLD.unpack(rows[place.donor])[1], rounds_of(theirs))
            if place.behind and self._late:  # from here on it is late behind these, if they are lost as well
                self._late = outer.rebased(self.spec, self.tensors, self._late, theirs, weights)
        loop = outer.OuterLoop(comm, self.spec, self.tensors)
        state = self._state_for(comm, loop, place.donor, theirs, self._own_beside(theirs, place.behind))
        with said_by(place.donor if place.behind else comm.rank):
            loop.load_state(state)
        loop.begin(weights)  # which compares theta and its momentum, by their hashes
        if place.behind:
            if not self._late:
                loop.read(weights)
                self._has_steps = False
            with said_by(place.donor):
                self._take(extra)
        self._loop, self._met, self._compared = loop, 0, False
        self._kept, self._saved, self._late, self._stayed = loop.state_apart(), None, None, comm.size

    def _tell_given_up(self, comm: Comm, complete: int) -> None:
        """`complete`: members of the last generation that are here and lack no round."""
        if comm.rank == 0 and self._stayed > complete and holds_back(self._kept or {}):
            warn(f"what the exchange of {self._stayed - complete} of the {self._stayed} members before held back is given up, "
                 "unless they come back: they are lost, or lack a round")

    def _for_newcomers(self) -> Entries:
        """What the exchange holds back counts once, and so it is nothing in there; what is the same for all is there. One that
        leaves keeps no more."""
        kept = self._kept or {}
        try:
            return outer.regrouped(self.spec, self.tensors, {0: kept}.get, 2, 1, 2)
        except Error:  # it has pieces, whose number is that of the members
            return kept

    def _planes(self, name: str, entry: Entry) -> int:
        """Bytes of each number that newcomers are given. All members then go on with a momentum of as many bits as they have;
        without one, it is only what the rounds' cosine is of."""
        if entry.data.count(0) == len(entry.data):
            return 0
        return (2 if self._has_momentum else 0) if name.startswith(SHARED[1]) else BYTES[entry.dtype]

    def _own_beside(self, theirs: Optional[Entries], behind: bool) -> Optional[Entries]:
        """What this process goes on with of its own. Of a round that the donor has applied and it has not, it is not known."""
        kept, saved, late = self._kept, self._saved, self._late
        if not behind:
            return kept if theirs is None else {name: cut(one, self._planes(name, one)) for name, one in (kept or {}).items()}
        if late is not None:
            return late
        if theirs is None or saved is None:
            return None
        if all(saved[name].data == one.data for name, one in theirs.items() if name.startswith(SHARED[0])):
            return with_held_back(theirs, saved)
        if rounds_of(saved) >= rounds_of(theirs):
            raise Error(f"the state that was loaded is of {rounds_of(saved)} rounds, and the group has made {rounds_of(theirs)}: the "
                        "one that has the latest state opens a group, and the others join it", 9, "TW_ERROR_STATE")
        if holds_back(saved):
            warn(f"the group has gone on since the state that was loaded, from {rounds_of(saved)} rounds to "
                 f"{rounds_of(theirs)}: what the exchange held back in it is given up")
        return None

    def _state_for(self, comm: Comm, loop: outer.OuterLoop, donor: int, theirs: Optional[Entries],
                   own: Optional[Entries]) -> Entries:
        """What is shared is the donor's. What the exchange holds back is this process's own, if all have a place for
        theirs; else all begin without."""
        states = {donor: theirs, comm.rank: own}
        made: Optional[Entries] = None
        try:
            made = outer.regrouped(self.spec, self.tensors, states.get, comm.size, comm.rank, comm.size)
        except Error:
            pass
        if all(row == b"\1" for row in comm.allgather(bytes([made is not None]), 1)) and made is not None:
            return made
        if comm.rank == 0:
            warn("what the exchange held back has no place among another number of members, and is given up")
        shared = theirs or own or {}
        kept = {name: entry for name, entry in shared.items() if name.startswith(SHARED)}
        round_, since, *_ = numbers_of(shared)
        return {**loop.state_apart(), **kept, NUMBERS: as_numbers([round_, since, 0, 0, 0])}

    def _before_round(self, state: Entries) -> Entries:
        """So that the next step begins it."""
        round_, _, *own = numbers_of(state)
        return {**state, NUMBERS: as_numbers([round_, self._period - 1, *own])}

    def _counts(self, loop: outer.OuterLoop) -> Dict[str, float]:
        """Of this generation. Its loop has all steps of the rounds that this process only serves, too, and one where it begins."""
        counts = loop.stats()
        taken = self._steps - self._steps_before
        return {**counts, "bytes_dense": counts["bytes_dense"] * taken // max(1, counts["steps"])}

    def _close_generation(self) -> None:
        loop, comm, self._loop, self._comm = self._loop, self._comm, None, None
        if loop:
            with contextlib.suppress(Error):  # it is closed, maybe by another thread just now
                self._past, self._steps_before = outer.counted_after(self._past, self._counts(loop)), self._steps
        if comm:
            comm.close()

    def _opened(self) -> outer.OuterLoop:
        if self._loop is None:
            raise Error("the loop has not begun, or is over", 12, "TW_ERROR_ORDER")
        return self._loop

    def _there(self) -> Comm:
        if self._comm is None:
            raise Error("the loop has not begun, or is over", 12, "TW_ERROR_ORDER")
        return self._comm

    # ---- saving ----

    def state(self) -> Entries:
        """As the last round has left it."""
        if not self._kept:
            raise Error("the loop has not begun", 12, "TW_ERROR_ORDER")
        return self._kept

    def load_state(self, entries: Entries) -> None:
        """Before begin(). Who opens the group goes on from there. Who joins takes the group's shared weights; where these are
        the saved ones, what its exchange held back is taken, too."""
        refuse_no_state("what is loaded is", entries, self.tensors)
        self._saved = entries

    # ---- telling ----

    def read(self, shared: Sequence[int]) -> None:
        """theta, as the last round has left it; nobody else is needed."""
        kept = self.state()
        for (name, _), address in zip(self.tensors, shared):
            data = kept["theta/" + name].data
            ctypes.memmove(address, data, len(data))

    def plan(self) -> Dict[str, str]:
        return self._opened().plan()

    def stats(self) -> Dict[str, float]:
        loop = self._loop  # as above
        sums = outer.counted_after(self._past, self._counts(loop) if loop else {})
        return {**sums, "steps": self._steps, "rounds": max(0, rounds_of(self._kept))}

    def close(self) -> None:
        """Without finish() or leave() the others take it for lost. Any thread may call it, and a log handler: a call that waits on
        another thread ends with an Error."""
        self._closed = True
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


def with_held_back(shared: Entries, own: Entries) -> Entries:
    """What is shared, and what another state's exchange holds back."""
    return {**shared, **{name: one for name, one in own.items() if name.startswith(EXCHANGE)}}


def holds_back(state: Entries) -> bool:
    """Whether its exchange keeps more than its own numbers."""
    return any(name.startswith(EXCHANGE) and "/scheme/" not in name for name in state)


# ---- what the donor has ----

Planes = Callable[[str, Entry], int]  # of an entry, how many bytes of each number travel: the upper ones, and others are 0
Row = Tuple[str, str, Tuple[int, ...], int, int]  # of an entry: its name, type, shape, bytes and planes


def whole(name: str, entry: Entry) -> int:
    return BYTES[entry.dtype]


def cut(entry: Entry, planes: int) -> Entry:
    """As it arrives."""
    width, size = BYTES[entry.dtype], len(entry.data)
    return entry._replace(data=unpacked(packed(entry.data, width, planes), width, planes, size))


def packed(data: bytes, width: int, planes: int) -> bytes:
    if planes == width:
        return data
    upper = bytearray(len(data) // width * planes)
    for k in range(planes):
        upper[k::planes] = data[width - planes + k::width]
    return bytes(upper)


def unpacked(data: bytes, width: int, planes: int, size: int) -> bytes:
    if planes == width:
        return data
    there = bytearray(size)
    for k in range(planes):
        there[width - planes + k::width] = data[k::planes]
    return bytes(there)


def most_of(tensors: Sequence[table.Named], extra: Entries) -> int:
    """Bytes that a donor may give, where what else it gives is as much as this process has of it."""
    theta = sum(BYTES["float32"] * math.prod(shape) for _, shape in tensors)
    return TIMES_THETA * theta + sum(len(one.data) for one in extra.values()) + LARGEST_HEADER


def spread(comm: Comm, donor: int, state: Entries, extra: Entries, most: int, planes: Planes) -> Tuple[Entries, Entries]:
    """A collective: the donor's state, and what else it gives, of at most so many bytes."""
    parts = [state, extra] if comm.rank == donor else [{}, {}]
    header = json.dumps([[[name, one.dtype, one.shape, planes(name, one)] for name, one in part.items()] for part in parts]).encode()
    size = ctypes.create_string_buffer(struct.pack("<Q", len(header)), 8)
    comm.broadcast(donor, ctypes.addressof(size), 8)
    length = struct.unpack("<Q", size.raw)[0]
    if length > LARGEST_HEADER:
        raise Error(f"rank {donor} gives a table of {length} bytes; want at most {LARGEST_HEADER}", 6, "TW_ERROR_PACKET")
    there = ctypes.create_string_buffer(header if comm.rank == donor else b"", length)
    comm.broadcast(donor, ctypes.addressof(there), length)
    return tuple(spread_part(comm, donor, rows, part) for rows, part in zip(read_header(donor, there.raw, most), parts))  # type: ignore


def read_header(donor: int, header: bytes, most: int) -> List[List[Row]]:
    """It is another machine's word."""
    parts = []
    try:
        for part in json.loads(header):
            parts.append([read_row(*row) for row in part])
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        parts = []
    if len(parts) != 2:
        raise Error(f"rank {donor} gives what is no table of a state", 6, "TW_ERROR_PACKET")
    given = sum(size for part in parts for *_, size, _ in part)
    if given > most:
        raise Error(f"rank {donor} gives {given} bytes; want at most {most}, for a network of this size", 6, "TW_ERROR_PACKET")
    return parts


def read_row(name: str, dtype: str, dims: Sequence[int], planes: int) -> Row:
    name, shape, width = str(name), tuple(int(n) for n in dims), BYTES[dtype]
    name.encode()  # which half of a surrogate pair has not
    if len(shape) > MAX_DIMS or not all(0 <= n < 1 << 40 for n in shape) or not 0 <= int(planes) <= width:
        raise ValueError(shape, planes)
    return name, dtype, shape, width * math.prod(shape), int(planes)


def spread_part(comm: Comm, donor: int, rows: List[Row], own: Entries) -> Entries:
    found: Entries = {}
    for name, dtype, shape, size, planes in rows:
        width = BYTES[dtype]
        travels = size // width * planes
        try:
            data = ctypes.create_string_buffer(packed(own[name].data, width, planes) if comm.rank == donor else b"", max(1, travels))
            if travels:
                comm.broadcast_packed(donor, ctypes.addressof(data), size // width, planes)
            found[name] = Entry(dtype, shape, unpacked(ctypes.string_at(data, travels), width, planes, size))
        except MemoryError:
            raise Error(f"rank {donor} has {size} bytes of {name}, and there is no memory for them here", 3,
                        "TW_ERROR_MEMORY") from None
    return found


def refuse_no_state(whose: str, state: Entries, tensors: Sequence[table.Named]) -> None:
    """What is not in every state the exchange looks at itself. `whose`: "rank 1 gives"."""
    wanted: Dict[str, Tuple[str, Tuple[int, ...]]] = {"theta/" + name: ("float32", tuple(shape)) for name, shape in tensors}
    wanted[NUMBERS] = "uint64", (COUNT_OF_NUMBERS,)
    for name, (dtype, shape) in wanted.items():
        if name not in state or (state[name].dtype, state[name].shape) != (dtype, shape):
            raise Error(f"{whose} a state without {name} of {shape} in {dtype}", 6, "TW_ERROR_PACKET")


@contextlib.contextmanager
def said_by(rank: int) -> Iterator[None]:
    try:
        yield
    except Error as error:
        raise Error(f"what rank {rank} gives cannot be taken: {error}", error.status, error.name) from None
