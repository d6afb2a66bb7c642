"""A run that its user ends, by Ctrl-C or SIGTERM, which is no fault."""

import _thread
import contextlib
import signal
import threading
from typing import Callable, Iterator, Optional

from .._lines import tell
from ..errors import Error

SECONDS = 30.0  # that leaving takes at most: two rounds of the others


class Terminated(SystemExit):
    """SIGTERM."""


def is_by_signal(end: Optional[BaseException]) -> bool:
    """Also an exit of a program that has caught it, as Lightning does."""
    return any(isinstance(one, (KeyboardInterrupt, Terminated)) for one in (end, getattr(end, "__context__", None)))


def is_asked_for(end: object) -> bool:
    """Rather than a failure; also of a program whose own handler of SIGTERM exits, as Lightning's does."""
    return isinstance(end, (KeyboardInterrupt, SystemExit)) and threading.current_thread() is threading.main_thread()


@contextlib.contextmanager
def heeding_sigterm(can_leave: bool) -> Iterator[None]:
    """It would end the program where it stands. A program that does something else with it does so."""
    def end(number: int, frame: object) -> None:
        raise Terminated(128 + number)

    if not can_leave or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


@contextlib.contextmanager
def ended_by_signals(seconds: float) -> Iterator[None]:
    """A KeyboardInterrupt comes with the next signal, or when the time is over. In the main thread. Of a handler that is not
    Python's, getsignal() gives None, and nobody here could put it back."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    timer = threading.Timer(seconds, _thread.interrupt_main)
    timer.daemon = True
    try:
        for number in before:
            signal.signal(number, signal.default_int_handler)
        timer.start()
        yield
    finally:
        timer.cancel()
        for number, handler in before.items():
            if handler is not None:
                signal.signal(number, handler)


def hand_over(leave: Callable[[], None]) -> None:
    """What a program does last before it ends, whatever comes of it."""
    try:
        with ended_by_signals(SECONDS):
            tell(f"leaving by the others' next two rounds, within {SECONDS:g} seconds; Ctrl-C once more ends at once")
            leave()
    except (KeyboardInterrupt, SystemExit, Error) as error:
        tell(f"what this machine had for the others is lost: {str(error) or 'there was no time for it'}")
