"""What thinwire says on stderr."""

import contextlib
import sys


def show(text: str) -> None:
    """Training goes on where nobody is there any more to read it: a pipe whose other end has gone, a terminal that was hung up."""
    with contextlib.suppress(OSError, ValueError):  # ValueError: the program has closed it
        print(text, file=sys.stderr, flush=True)


def tell(text: str) -> None:
    show(f"thinwire: {text}")
