"""Lines for Python's logging. A handler may want a lock that a thread of the program holds while it waits in a call, so that
no thread that is waited for runs one: the thread that made the call does, or else a thread that does nothing but such things."""

import atexit
import contextlib
import functools
import logging
import queue
import threading
import traceback
from typing import Callable, Optional, Tuple

Line = Tuple[int, str]
_here = threading.local()  # .news, where this thread makes a call for another one
_acts: "queue.SimpleQueue[Callable[[], object]]" = queue.SimpleQueue()  # what the library's own threads leave to another


def emit(level: int, text: str) -> None:
    """A handler that fails ends no training, as one that fails in a thread of the library could not."""
    try:
        logging.getLogger("thinwire").log(level, "%s", text)
    except Exception:
        traceback.print_exc()


def say(level: int, text: str) -> None:
    """By whoever made the call in which it comes up."""
    news: Optional[News] = getattr(_here, "news", None)
    if news is not None and not news.left:
        news.put((level, text))
    else:
        emit(level, text)


def say_apart(level: int, text: str) -> None:
    """By the thread that does nothing else."""
    do_apart(functools.partial(emit, level, text))


def do_apart(act: Callable[[], object]) -> None:
    """On that thread."""
    _acts.put(act)
    if not any(one.name == TELLER for one in threading.enumerate()):
        with contextlib.suppress(RuntimeError):  # Python ends, and do_rest() will do it
            threading.Thread(target=act_for_ever, name=TELLER, daemon=True).start()


def is_of_python() -> bool:
    """Whether this thread is one of Python's."""
    own = threading.get_ident()
    return any(one.ident == own for one in threading.enumerate())


TELLER = "thinwire log"


def act_for_ever() -> None:
    while True:
        _acts.get()()


@atexit.register
def do_rest() -> None:
    while True:
        try:
            act = _acts.get_nowait()
        except queue.Empty:
            return
        act()


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
