"""States of another number of ranks."""

import contextlib
from typing import Any, Callable, List, Sequence

from . import table
from ._library import Source
from .errors import Error
from .spec import bytes_of


def regrouped(regroup: Callable, spec: str, tensors: Sequence[table.Named], old: table.OfRank, old_size: int, rank: int,
              size: int) -> table.Entries:
    """What the C function `regroup` makes for rank `rank` of `size` of the states old(0) to old(old_size - 1), of which
    some may be lost: None."""
    with table.State() as new:
        asking(old, lambda source: regroup(bytes_of(spec), table.table_of(tensors), len(tensors), old_size, source, None, rank,
                                           size, b"", new.handle))
        return new.entries()


def asking(old: table.OfRank, call: Callable[[Any], Any]) -> None:
    """Has call(source) ask for what old(rank) gives."""
    failures: List[BaseException] = []
    with contextlib.ExitStack() as states:
        def give(context: Any, old_rank: int, state: Any) -> int:
            try:
                entries = old(old_rank)
                if entries is not None:
                    one = states.enter_context(table.State())
                    one.put_all(entries)
                    state[0] = one.handle.value
                return 0
            except BaseException as error:  # Ctrl-C, too: nothing passes through C
                failures.append(error)
                return 9  # TW_ERROR_STATE

        try:
            call(Source(give))
        except Error:
            if failures:
                raise failures[0] from None
            raise
