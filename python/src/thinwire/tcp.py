"""A group over TCP, of processes that can tell each other a line of text."""

import ctypes
import functools
import os
from dataclasses import dataclass, field
from typing import Any, Optional, Sequence, Tuple

from ._library import TCP_FUNCTIONS, Stopped, TcpOptions, load_part
from ._owned import Owned
from .comm import Comm
from .errors import Error


@functools.cache
def tcp_library() -> ctypes.CDLL:
    return load_part("libthinwire_tcp", TCP_FUNCTIONS, "the TCP transport cannot be loaded")


@dataclass(frozen=True)
class Tcp:
    """Where to listen and what to prove.

    bind       an address, a host name or an interface ("eth0") to listen on; all, unless THINWIRE_BIND says otherwise
    advertise  the host name or address that others connect to; found out, unless THINWIRE_ADVERTISE says otherwise
    ports      the first and the last port to try; any that is free
    streams    connections to each peer: more than one for long fat links
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


class Listener(Owned):
    """A rank that listens, until it is connected with the others."""

    def __init__(self, tcp: Tcp):
        self._interrupted: Optional[BaseException] = None
        self._stopped = Stopped(self._is_stopped)
        options = TcpOptions(struct_size=ctypes.sizeof(TcpOptions), bind=text(tcp.bind, "THINWIRE_BIND"),
                             advertise=text(tcp.advertise, "THINWIRE_ADVERTISE"), first_port=tcp.ports[0],
                             last_port=tcp.ports[1], streams=tcp.streams, key=tcp.key or None, key_size=len(tcp.key),
                             stopped=self._stopped)
        handle = ctypes.c_void_p()
        tcp_library().tw_tcp_listen(ctypes.byref(options), ctypes.byref(handle))
        self._own(handle, tcp_library().tw_tcp_destroy)

    @property
    def address(self) -> str:
        """What the other ranks need, a line without blanks."""
        return tcp_library().tw_tcp_address(self._handle).decode()

    def connect(self, rank: int, addresses: Sequence[str], seconds: float) -> Comm:
        """A collective of all whose addresses these are, in order of rank."""
        lines = (ctypes.c_char_p * len(addresses))(*(line.encode() for line in addresses))
        handle = ctypes.c_void_p()
        try:
            tcp_library().tw_tcp_connect(self._handle, rank, len(addresses), lines, seconds, ctypes.byref(handle))
        except Error:
            if self._interrupted is not None:
                raise self._interrupted
            raise
        return Comm(handle)

    def _is_stopped(self, context: Any) -> int:
        """Asked while a call waits. Python handles signals when it runs, so Ctrl-C comes up in here."""
        try:
            for _ in range(2):
                pass
        except BaseException as error:
            self._interrupted = error
        return self._interrupted is not None


def text(given: Optional[str], variable: str) -> Optional[bytes]:
    value = given or os.environ.get(variable)
    return value.encode() if value else None
