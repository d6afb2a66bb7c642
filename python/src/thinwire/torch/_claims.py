"""Who agrees on a parameter with other ranks: a second one beside it would average what is averaged, or undo it."""

import weakref
from typing import Any, List, Set, Tuple

from ..errors import Error
from ._parameters import Row

EXCHANGE, ATTACHED, GOSSIP, OUTER = "an Exchange", "an attached DistributedDataParallel", "a GossipDataParallel", "an OuterLoop"
_there: "weakref.WeakKeyDictionary[Any, Tuple[str, Set[int]]]" = weakref.WeakKeyDictionary()  # who holds their parameters


def claim(holder: Any, what: str, rows: List[Row]) -> None:
    _there[holder] = what, {id(row.parameter) for row in rows}


def release(holder: Any) -> None:
    _there.pop(holder, None)


def refuse_beside(others: Tuple[str, ...], rows: List[Row]) -> None:
    """Whoever makes one more asks before it does."""
    for what, taken in list(_there.values()):
        name = next((row.name for row in rows if id(row.parameter) in taken), None)
        if what in others and name is not None:
            end = "finish() or close()" if what in (GOSSIP, OUTER) else "close()"
            raise Error(f"{name} is in {what} already, and two that agree on one parameter would undo each other or do it twice; "
                        f"{end} the one before making the other")
