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

    def __reduce__(self) -> Tuple[Any, ...]:  # exceptions cross processes pickled, and by themselves they keep the text alone
        return type(self), (str(self), self.status, self.name)


class SpecError(Error):
    """A spec names an unknown scheme or option, or a value out of range. The text names it."""


class NonFinite(Error):
    """Some rank's gradient held NaN or infinity. The step was skipped on all ranks."""


class PeerError(Error):
    """A peer is gone, or did not answer in time. ``rank`` says which, or is None where nobody knows."""

    @property
    def rank(self) -> Optional[int]:
        found = re.search(r"\brank (\d+)", str(self))
        return int(found.group(1)) if found else None


CLASSES = {SPEC: SpecError, PEER: PeerError, SKIPPED: NonFinite}
