"""Who agrees on a parameter with other ranks: a second one beside it would average what is averaged, or undo it."""

import gc
import weakref
from typing import Any, List, Optional, Set, Tuple

from torch.nn.parallel import DistributedDataParallel

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


def refuse_averaged(rows: List[Row]) -> None:
    """Whoever exchanges gradients asks in the first pass: by then a DistributedDataParallel may be around the module. One that
    nobody has any more may still be there."""
    name = _averaged(rows)
    if name and gc.collect():
        name = _averaged(rows)
    if name:
        raise Error(f"{name} is in a DistributedDataParallel as well, which averages all of its gradient in every pass: attach() the scheme "
                    "to that one, or train the module without it, and keep it nowhere")


def _averaged(rows: List[Row]) -> Optional[str]:
    """The first parameter that a DistributedDataParallel of several ranks has."""
    # type(): see trained_by(). One whose constructor has failed lacks some.
    whole = [one for one in gc.get_objects() if issubclass(type(one), DistributedDataParallel) and hasattr(one, "parameters_to_ignore")]
    taken = {id(parameter) for one in whole if one.process_group.size() > 1
             for name, parameter in one.module.named_parameters() if name not in one.parameters_to_ignore}
    return next((row.name for row in rows if id(row.parameter) in taken), None)
