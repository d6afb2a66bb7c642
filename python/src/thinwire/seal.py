"""Messages that only those who know a key can read or write: libthinwire_sealed."""

import ctypes
import functools
import os
import warnings

from ._library import SEALED_FUNCTIONS, load_part
from .comm import Comm
from .errors import Error

KEY_BYTES = 32  # of what read_key gives


@functools.cache
def sealed_library() -> ctypes.CDLL:
    return load_part("libthinwire_sealed", SEALED_FUNCTIONS, "messages cannot be sealed")


def read_key(path: "os.PathLike[str]") -> bytes:
    """The key in a file: 32 random bytes, or a line of text of at least 20 characters, which is hashed slowly. Warns
    where others than the file's owner may read it."""
    key, exposed = ctypes.create_string_buffer(KEY_BYTES), ctypes.c_int()
    sealed_library().tw_seal_read_key(os.fsencode(path), key, ctypes.byref(exposed))
    if exposed.value:
        warnings.warn(f"{os.fspath(path)} holds a key, and others may read it: chmod 600", stacklevel=2)
    return key.raw


def sealed(comm: Comm, key: bytes) -> Comm:
    """A comm of the same ranks whose messages are encrypted and signed. A collective, before anything else is done with
    `comm`, which is the new one's from here on: of the old object nothing works any more."""
    if not isinstance(key, bytes):  # before the comm is given away
        raise Error(f"a key is bytes, such as read_key() gives, and this is a {type(key).__name__}")
    handle = ctypes.c_void_p()
    sealed_library().tw_comm_create_sealed(comm._given_away(), key, len(key), ctypes.byref(handle))
    return Comm(handle)
