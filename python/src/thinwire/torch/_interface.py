"""Which of this machine's interfaces a place is reached by."""

import contextlib
import fcntl
import socket
import struct

SIOCGIFADDR = 0x8915  # Linux's


def reached_by(join: str) -> str:
    """"eth0, 10.0.0.6" for "HOST:PORT", the first of several; "" where it cannot be told. Nothing is sent."""
    host, _, port = join.split(",")[0].rpartition(":")
    try:
        kind, _, _, _, address = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(kind, socket.SOCK_DGRAM) as way:
            way.connect(address)
            here = way.getsockname()[0]
    except (OSError, OverflowError, UnicodeError):
        return ""
    name = interface_of(here)
    return f"{name}, {here}" if name else here


def interface_of(address: str) -> str:
    """By the first IPv4 address of each."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_one:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):
                found = fcntl.ioctl(any_one.fileno(), SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))[20:24]
                if socket.inet_ntoa(found) == address:
                    return name
    return ""
