"""The tensors of a model, as the library wants them told, and what it remembers of them."""

import ctypes
import math
from typing import Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple, Type

from . import errors
from ._library import MAX_DIMS, StateEntry, Tensor, library
from ._owned import Owned

DTYPES = ("float32", "float64", "int32", "int64", "uint8", "uint32", "uint64", "float16", "bfloat16")  # tw_dtype

BYTES = dict(zip(DTYPES, (4, 8, 4, 8, 1, 4, 8, 2, 2)))  # of an element

Named = Tuple[str, Sequence[int]]


class Entry(NamedTuple):
    """A tensor that something remembers: its type (one of DTYPES), its shape, and its bytes in row-major order."""

    dtype: str
    shape: Tuple[int, ...]
    data: bytes


Entries = Dict[str, Entry]
OfRank = Callable[[int], Optional[Entries]]  # what each of several ranks has saved; None: it is lost


def table_of(tensors: Sequence[Named]) -> ctypes.Array:
    """The C table of (name, shape)."""
    table = (Tensor * len(tensors))()
    for row, (name, shape) in zip(table, tensors):
        if not isinstance(name, str) or not all(hasattr(n, "__index__") and 0 <= n < 1 << 64 for n in shape):
            raise errors.Error(f"the tensor {name!r} of {tuple(shape)}: want a text for its name, and whole numbers for its shape")
        if len(shape) > MAX_DIMS:
            raise errors.Error(f"{name} has {len(shape)} dimensions; thinwire takes up to {MAX_DIMS}")
        row.name, row.dims = name.encode(), len(shape)
        row.shape[:len(shape)] = shape
    return table


def refuse_unlike_its_shape(name: str, entry: Entry) -> None:
    """C goes by type and shape alone."""
    if entry.dtype not in DTYPES:
        raise errors.Error(f"{name} is of the type {entry.dtype}, and a state has {', '.join(DTYPES)}", 9, "TW_ERROR_STATE")
    wanted = BYTES[entry.dtype] * math.prod(entry.shape)
    if len(entry.data) != wanted:
        raise errors.Error(f"{name} has {len(entry.data)} bytes, and its shape {entry.shape} of {entry.dtype} has {wanted}", 9,
                           "TW_ERROR_STATE")


class State:
    """A tw_state for the time of a call."""

    def __enter__(self) -> "State":
        self.handle = ctypes.c_void_p()
        library.tw_state_create(ctypes.byref(self.handle))
        return self

    def __exit__(self, *what: object) -> None:
        library.tw_state_destroy(self.handle)

    def put(self, name: str, entry: Entry) -> None:
        refuse_unlike_its_shape(name, entry)
        shape = (ctypes.c_size_t * max(1, len(entry.shape)))(*entry.shape)
        library.tw_state_put(self.handle, name.encode(), DTYPES.index(entry.dtype), len(entry.shape), shape, entry.data)

    def put_all(self, entries: Entries) -> None:
        for name, entry in entries.items():
            self.put(name, entry)

    def entries(self) -> Entries:
        return dict(map(self._at, range(library.tw_state_count(self.handle))))

    def _at(self, index: int) -> Tuple[str, Entry]:
        at = StateEntry()
        library.tw_state_at(self.handle, index, ctypes.byref(at))
        shape = tuple(at.shape[:at.dims]) if at.dims else ()
        return at.name.decode(), Entry(DTYPES[at.dtype], shape, ctypes.string_at(at.data, at.bytes) if at.bytes else b"")


def saved(save: Callable, of: Owned) -> Entries:
    """What the C function `save` puts into a state."""
    with State() as state:
        of._call(save, b"", state.handle)
        return state.entries()


def loaded(load: Callable, of: Owned, entries: Entries) -> None:
    """Has the C function `load` take `entries`."""
    with State() as state:
        state.put_all(entries)
        of._call(load, b"", state.handle)


def counts_of(stats: Callable, of: Owned, structure: Type[ctypes.Structure]) -> Dict[str, float]:
    """The fields of a structure of counts, but for its size."""
    counts = structure(struct_size=ctypes.sizeof(structure))
    of._call(stats, ctypes.byref(counts))
    return fields_of(counts)


def fields_of(counts: ctypes.Structure) -> Dict[str, float]:
    return {field[0]: getattr(counts, field[0]) for field in counts._fields_[1:]}


def addresses(pointers: Sequence[int], count: int, of: str = "tensors") -> ctypes.Array:
    """A C array of the addresses of `count` tensors, or of what else there is."""
    refuse_another_count(len(pointers), count, "addresses", of)
    return (ctypes.c_void_p * len(pointers))(*pointers)


def refuse_another_count(given: int, count: int, what: str, of: str = "tensors") -> None:
    if given != count:
        raise errors.Error(f"{given} {what} were given, and there are {count} {of}")


def listed(count: Callable, name: Callable, summary: Callable) -> List[Tuple[str, str]]:
    return [(name(i).decode(), summary(i).decode()) for i in range(count())]
