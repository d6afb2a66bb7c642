"""A group over TCP, of processes that can tell each other a line of text, or that know one meeting point."""

import ctypes
import functools
import logging
from dataclasses import dataclass, field
from typing import Callable, Optional, Sequence, Set, Tuple

from ._library import TCP_FUNCTIONS, TcpOptions, Told, load_part
from ._owned import Owned
from ._told import say
from .comm import Comm, Interrupt, refuse_no_numbers
from .errors import Error, printable
from .seal import sealed

MOST_REASONS = 20  # what fits on a screen
BESIDES = b"; the last: "  # what many that came at once are told of with: "refused besides: 7; the last: " and who that was
MORE = "more connections are refused than are told of here"


@functools.cache
def tcp_library() -> ctypes.CDLL:
    return load_part("libthinwire_tcp", TCP_FUNCTIONS, "the TCP transport cannot be loaded")


@dataclass(frozen=True)
class Tcp:
    """Where to listen and what to prove.

    bind       an address, a host name or an interface ("eth0") to listen on; all, unless THINWIRE_BIND says otherwise
    advertise  the host name or address that others connect to; found out, unless THINWIRE_ADVERTISE says otherwise
    ports      the first and the last port to try; any that is free, unless THINWIRE_PORT and THINWIRE_LAST_PORT say otherwise
    streams    connections to each peer: more than one for long fat links, as THINWIRE_STREAMS may say, too
    key        what all ranks know and others do not: 16 to 4096 random bytes, such as thinwire.read_key("group.key").
               Whoever connects proves that it knows it; else the random number in each address is all there is to prove
    seal       encrypts and signs every message. Without a key rank 0 draws one, and tells it to the others as the
               addresses are told: through torch's process group, which has to be out of others' sight then"""

    bind: Optional[str] = None
    advertise: Optional[str] = None
    ports: Tuple[int, int] = (0, 0)
    streams: int = 1
    key: bytes = field(default=b"", repr=False)  # which is no text for a log
    seal: bool = False

    def listen(self) -> "Listener":
        return Listener(self)

    def join(self, meeting: str, workers: int, rank: int = -1, seconds: float = 300.0,
             waits: Callable[[], object] = lambda: None) -> Comm:
        """A collective of `workers` processes that know nothing of each other but one HOST:PORT: the one that runs on
        HOST brings them together there. `rank` -1: any. With `seal` a key is needed, and without a key anybody who
        reaches the port may take part. `waits` is called once, when nothing of the call itself is left to refuse and this
        process waits for the others. PeerError: they did not come within `seconds`, or this process may not take part."""
        refuse_no_place(meeting)
        if self.seal and not self.key:
            raise Error("seal=True wants key=..., where nobody but the key tells the members from others")
        refuse_no_numbers(workers=workers, rank=rank)
        handle = ctypes.c_void_p()
        interrupt = Interrupt(waits)
        options = options_of(self, interrupt, sealed=int(self.seal), refused=tells_once())
        interrupt.heed(lambda: tcp_library().tw_tcp_join(meeting.encode(), rank, workers, ctypes.byref(options), seconds,
                                                         ctypes.byref(handle)))
        comm = Comm(handle)
        return sealed(comm, self.key) if self.seal else comm


def refuse_no_place(meeting: str) -> None:
    """Nor what C would end at a zero byte, or has no bytes in UTF-8."""
    if not isinstance(meeting, str) or not meeting.isprintable():
        raise Error(f'{meeting!r} is no place to meet: want a text, "HOST:PORT"')


def tells_once() -> Callable[[object, bytes], None]:
    """Who may not take part, for whoever waits here. Who is turned away tries again and again, and is told of once."""
    reasons: Set[bytes] = set()

    @Told
    def tell(context: object, reason: bytes) -> None:
        reason = reason.partition(BESIDES)[2] or reason
        if reason in reasons or len(reasons) > MOST_REASONS:
            return
        reasons.add(reason)
        text = printable(reason.decode(errors="replace"))
        say(logging.WARNING, text if len(reasons) <= MOST_REASONS else MORE)

    return tell


class Listener(Owned):
    """A rank that listens, until it is connected with the others."""

    def __init__(self, tcp: Tcp):
        self._interrupt = Interrupt()
        handle = ctypes.c_void_p()
        tcp_library().tw_tcp_listen(ctypes.byref(options_of(tcp, self._interrupt)), ctypes.byref(handle))
        self._own(handle, tcp_library().tw_tcp_destroy)

    @property
    def address(self) -> str:
        """What the other ranks need, a line without blanks."""
        return self._call(tcp_library().tw_tcp_address).decode()

    def connect(self, rank: int, addresses: Sequence[str], seconds: float) -> Comm:
        """A collective of all whose addresses these are, in order of rank."""
        lines = (ctypes.c_char_p * len(addresses))(*(line.encode() for line in addresses))
        handle = ctypes.c_void_p()
        with self._used(self._interrupt.end):
            self._interrupt.heed(lambda: self._call(tcp_library().tw_tcp_connect, rank, len(addresses), lines, seconds,
                                                    ctypes.byref(handle)))
        return Comm(handle)


def options_of(tcp: Tcp, interrupt: Interrupt, **more: object) -> TcpOptions:
    """What a Tcp does not say, the environment may."""
    options = TcpOptions(struct_size=ctypes.sizeof(TcpOptions), key=tcp.key or None, key_size=len(tcp.key), stopped=interrupt.stopped, **more)
    tcp_library().tw_members_environment(ctypes.byref(options))
    options.bind = (tcp.bind or "").encode() or options.bind or None
    options.advertise = (tcp.advertise or "").encode() or options.advertise or None
    if tcp.ports != Tcp.ports:
        options.first_port, options.last_port = tcp.ports
    if tcp.streams != Tcp.streams:
        options.streams = tcp.streams
    return options
