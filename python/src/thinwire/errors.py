"""What thinwire raises: all of it is an Error, which is a RuntimeError."""

import re
from typing import Any, Optional, Tuple

OK, SPEC, PEER, SKIPPED = 0, 2, 7, 13  # of tw_status, those that have a class or a meaning here

LONGEST_TEXT = 4000  # characters


def printable(text: str) -> str:
    """Some of it may be another machine's word, and nobody's terminal obeys it."""
    shown = text if len(text) <= LONGEST_TEXT else text[:LONGEST_TEXT] + "..."
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in shown)


class Error(RuntimeError):
    """A call of the library failed. The text is one sentence: what was wrong, and what would be right.

    ``status`` is the number of the C library's status, ``name`` its name, such as ``"TW_ERROR_STATE"``."""

    def __init__(self, text: str, status: int = 1, name: str = "TW_ERROR_ARGUMENT"):
        super().__init__(printable(text))
        self.status = status
        self.name = name

    def beside_text(self) -> Tuple[Any, ...]:
        """What else it is made of."""
        return self.status, self.name

    def saying(self, text: str) -> "Error":
        """The same in other words."""
        return type(self)(text, *self.beside_text())

    def __reduce__(self) -> Tuple[Any, ...]:  # exceptions cross processes pickled, and by themselves they keep the text alone
        return type(self), (str(self), *self.beside_text())


class SpecError(Error):
    """A spec names an unknown scheme or option, or a value out of range. The text names it."""


class NonFinite(Error):
    """Some rank's gradient held NaN or infinity. The step was skipped on all ranks."""


class PeerError(Error):
    """A peer is gone, or did not answer in time. ``rank`` says which, or is None where nobody knows."""

    def __init__(self, text: str, status: int = PEER, name: str = "TW_ERROR_PEER", rank: Optional[int] = None):
        super().__init__(text, status, name)
        self.rank = rank

    def beside_text(self) -> Tuple[Any, ...]:
        return self.status, self.name, self.rank


def of_library(text: str, status: int, name: str) -> Error:
    """What a call of the library has failed with. A text of it about a peer names this one before any other rank."""
    if status == PEER:
        found = re.search(r"\brank (\d+)", text) if "another one failed" not in text else None  # it is with a rank that is there
        return PeerError(text, status, name, int(found.group(1)) if found else None)
    return {SPEC: SpecError, SKIPPED: NonFinite}.get(status, Error)(text, status, name)
