"""Lines for Python's logging. A handler may want a lock that a thread of the program holds while it waits in a call, so that
no thread that is waited for runs one: the thread that made the call does, or else a thread that does nothing but that."""

import atexit
import contextlib
import functools
import logging
import os
import queue
import threading
import traceback
from typing import Callable, Optional, Tuple

from ._lines import show

Line = Tuple[int, str]
Job = Callable[[], object]
TELLER = "thinwire log"
LONGEST_END = 5.0  # seconds that the end of Python waits for a handler
_here = threading.local()  # .news, where this thread makes a call for another one
_jobs: "queue.SimpleQueue[Job]" = queue.SimpleQueue()  # of the library's own threads


def emit(level: int, text: str) -> None:
    """What a handler raises ends nobody's call."""
    try:
        logging.getLogger("thinwire").log(level, "%s", text)
    except Exception:
        show(traceback.format_exc().rstrip("\n"))


def say(level: int, text: str) -> None:
    """By whoever made the call in which it comes up."""
    news: Optional[News] = getattr(_here, "news", None)
    if news is not None and not news.left:
        news.put((level, text))
    else:
        emit(level, text)


def is_of_python() -> bool:
    """Whether Python has started this thread: it has a name for any other one as well that asked for it once. Without a lock, as a
    finaliser asks this amid anything."""
    one = threading._active.get(threading.get_ident())  # type: ignore[attr-defined]
    return one is not None and not isinstance(one, threading._DummyThread)


def say_apart(level: int, text: str) -> None:
    """By the thread that does nothing else."""
    apart(functools.partial(emit, level, text))


def apart(job: Job) -> None:
    """On that thread: what none of the library's may do."""
    _jobs.put(job)
    if not has_teller():
        with contextlib.suppress(RuntimeError):  # there is none to be had: who comes next tries again, or the end of Python does it
            threading.Thread(target=work_for_ever, name=TELLER, daemon=True).start()


def has_teller() -> bool:
    return any(one.name == TELLER for one in threading.enumerate())


def work_for_ever() -> None:
    while True:
        _jobs.get()()


def do_rest() -> None:
    while True:
        try:
            _jobs.get_nowait()()
        except queue.Empty:
            return


@atexit.register
def end() -> None:
    """What the thread has begun, a daemon, would end with Python."""
    if has_teller():
        over = threading.Event()
        _jobs.put(over.set)
        over.wait(LONGEST_END)
    else:
        do_rest()


def begin_anew() -> None:
    """In a forked child, whose parent tells what is in its own."""
    global _jobs
    _jobs = queue.SimpleQueue()


os.register_at_fork(after_in_child=begin_anew)


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
