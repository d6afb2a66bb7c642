"""A group whose members come and go: a sequence of generations, each a Comm of its own."""

import ctypes
import enum
from typing import Callable, NamedTuple, Optional

from ._library import Generation, MembersOptions
from ._owned import Owned
from .comm import Comm, Interrupt, refuse_no_numbers
from .errors import Error
from .seal import sealed
from .tcp import Tcp, options_of, refuse_no_place, tcp_library, tells_once


class Wish(enum.IntEnum):
    """What a member says before a round: tw_members_wish."""

    STAY = 0
    LEAVE = 1
    FINISH = 2


class Due(enum.IntEnum):
    """What all are told: tw_members_outcome."""

    SAME = 0
    CHANGE = 1
    FINISHED = 2


class Place(NamedTuple):
    """A process's in a generation: tw_generation, and its comm."""

    comm: Comm
    number: int
    donor: int
    behind: bool
    kept: bool
    late: bool = False
    lost: int = 0


class Members(Owned):
    """One process's part in a group that it opens, or joins at any member's HOST:PORT, or at one of several with commas in
    between. `subject` is what all have to train alike, line by line; `grace` and `patience` are seconds, as
    thinwire_members.h tells."""

    def __init__(self, meeting: str, subject: str, tcp: Tcp, quorum: int = 0, grace: float = 60.0, patience: float = 1800.0):
        if tcp.seal and not tcp.key:
            raise Error("seal=True wants key=..., where nobody but the key tells the members from others")
        refuse_no_place(meeting)
        refuse_no_numbers(quorum=quorum)
        self._tcp, self._interrupt, self.quorum = tcp, Interrupt(), quorum
        handle = ctypes.c_void_p()
        limits = MembersOptions(struct_size=ctypes.sizeof(MembersOptions), quorum=quorum, grace=grace, patience=patience)
        self._tell = tells_once()  # which next() and due() do
        options = options_of(tcp, self._interrupt, sealed=int(tcp.seal), refused=self._tell)
        tcp_library().tw_members_join(meeting.encode(), subject.encode(), ctypes.byref(limits), ctypes.byref(options),
                                      ctypes.byref(handle))
        self._own(handle, tcp_library().tw_members_destroy)

    @property
    def address(self) -> str:
        """Where newcomers may come."""
        return self._call(tcp_library().tw_members_address).decode()

    @property
    def opened(self) -> bool:
        """Whether this process has opened the group."""
        return bool(self._call(tcp_library().tw_members_opened))

    def next(self, rounds: int, leaves: bool = False) -> Optional[Place]:
        """The next generation, once it is decided and connected; None, where this process leaves. `rounds` that it has
        applied; -1: it has no shared weights."""
        handle, generation = ctypes.c_void_p(), Generation(struct_size=ctypes.sizeof(Generation))
        with self._used(self._interrupt.end):
            self._interrupt.heed(lambda: self._call(tcp_library().tw_members_next, rounds, int(leaves), ctypes.byref(generation),
                                                    ctypes.byref(handle)))
        if not handle.value:
            return None
        return Place(Comm(handle), generation.number, generation.donor, bool(generation.behind), bool(generation.kept),
                     bool(generation.late), generation.lost)

    def sealed(self, comm: Comm) -> Comm:
        """What goes over a generation's comm is sealed, if the Tcp says so. A collective, before anything else."""
        return sealed(comm, self._tcp.key) if self._tcp.seal else comm

    def due(self, comm: Comm, wish: Wish, heard: Callable[[Due], None] = lambda due: None) -> Due:
        """A collective of the generation, before each round. `heard` is told what it comes to also where Ctrl-C ends the call just
        behind that, when the others act on it."""
        due = ctypes.c_int()

        def ask() -> None:
            self._call(tcp_library().tw_members_due, comm._handle, int(wish), ctypes.byref(due))
            heard(Due(due.value))

        comm.waited(ask)
        return Due(due.value)
