"""Lines for Python's logging. A handler may want a lock that a thread of the program holds while it waits in a call, so that
no thread that is waited for runs one: the thread that made the call does, or else a thread that does nothing but that."""

import atexit
import logging
import queue
import threading
from typing import Callable, Optional, Tuple

Line = Tuple[int, str]
_here = threading.local()  # .news, where this thread makes a call for another one
_lines: "queue.SimpleQueue[Line]" = queue.SimpleQueue()  # of the library's own threads


def emit(level: int, text: str) -> None:
    logging.getLogger("thinwire").log(level, "%s", text)


def say(level: int, text: str) -> None:
    """By whoever made the call in which it comes up."""
    news: Optional[News] = getattr(_here, "news", None)
    if news is not None and not news.left:
        news.put((level, text))
    else:
        emit(level, text)


def say_apart(level: int, text: str) -> None:
    """By the thread that does nothing else."""
    _lines.put((level, text))
    if not any(one.name == TELLER for one in threading.enumerate()):
        try:
            threading.Thread(target=tell_for_ever, name=TELLER, daemon=True).start()
        except RuntimeError:  # Python ends
            tell_rest()


TELLER = "thinwire log"


def tell_for_ever() -> None:
    while True:
        emit(*_lines.get())


@atexit.register
def tell_rest() -> None:
    while True:
        try:
            emit(*_lines.get_nowait())
        except queue.Empty:
            return


class News:
    """From a thread that makes a call for this one."""

    def __init__(self) -> None:
        self._queue: "queue.SimpleQueue[Optional[Line]]" = queue.SimpleQueue()
        self.put, self.left = self._queue.put, False

    def act(self, call: Callable[[], None]) -> None:
        """On that thread."""
        _here.news = self
        call()
        self.put(None)

    def tell_until_over(self, longest_deaf: float) -> None:
        """On this one, which heeds a signal at least that often."""
        while True:
            try:
                line = self._queue.get(timeout=longest_deaf)
            except queue.Empty:
                continue
            if line is None:
                return
            say(*line)
