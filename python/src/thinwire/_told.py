"""Lines for Python's logging. A handler may want a lock that a thread of the program holds while it waits in a call, so that
no thread that is waited for runs one: the thread that made the call does, or else a thread that does nothing but that."""

import _thread
import atexit
import contextlib
import functools
import logging
import math
import os
import queue
import threading
import time
import traceback
from typing import Callable, Iterator, Optional, Tuple, Type

from ._lines import show

Line = Tuple[int, str]
Job = Callable[[], object]
LONGEST_END = 5.0  # seconds that the end of Python waits for a handler
_here = threading.local()  # .news, where this thread makes a call for another one


@contextlib.contextmanager
def shown(what: Type[BaseException] = Exception) -> Iterator[None]:
    """Around what may fail, and is to end nobody's call."""
    try:
        yield
    except what:
        show(traceback.format_exc().rstrip("\n"))


def emit(level: int, text: str) -> None:
    with shown():
        logging.getLogger("thinwire").log(level, "%s", text)


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


class Apart:
    """A thread that does nothing but what it is given, and for which nobody waits before Python ends. It is begun without a lock of
    `threading`: somebody may hold that one who waits for the thread that gives."""

    def __init__(self, name: str):
        self._name = name
        self._begin_anew()
        os.register_at_fork(after_in_child=self._begin_anew)
        atexit.register(self._end)

    def _begin_anew(self) -> None:
        """In a forked child, whose parent does what is in its own."""
        self._jobs: "queue.SimpleQueue[Job]" = queue.SimpleQueue()
        self._begun = _thread.allocate_lock()

    def do(self, job: Job) -> None:
        self._jobs.put(job)
        if self._begun.acquire(False):
            try:
                _thread.start_new_thread(self._work, ())
            except RuntimeError:  # there is none to be had: who comes next tries again, or the end of Python does it
                self._begun.release()

    def _work(self) -> None:
        threading.current_thread().name = self._name
        while True:
            self._do_one()

    def _do_one(self) -> None:
        job = self._jobs.get()
        with shown(BaseException):  # of which the next one is none the worse
            job()

    def _end(self) -> None:
        """What the thread has begun would end with Python."""
        if self._begun.acquire(False):
            while not self._jobs.empty():
                self._do_one()
            self._begun.release()
        else:
            over = threading.Event()
            self._jobs.put(over.set)
            over.wait(LONGEST_END)


lines = Apart("thinwire log")


def say_apart(level: int, text: str) -> None:
    """By the thread that does nothing else."""
    lines.do(functools.partial(emit, level, text))


class News:
    """From a thread that makes a call for this one."""

    def __init__(self) -> None:
        self._queue: "queue.SimpleQueue[Optional[Line]]" = queue.SimpleQueue()
        self.put, self.left, self._over = self._queue.put, False, False
        self._claim = _thread.allocate_lock()

    def claim(self) -> bool:
        """True once: whoever is the first to ask says whether the call is made."""
        return self._claim.acquire(False)

    def act(self, call: Callable[[], None]) -> None:
        """On that thread."""
        if not self.claim():
            return
        _here.news = self
        call()
        self._over = True
        self.put(None)

    def tell_until_over(self, longest_deaf: float, within: float = math.inf) -> bool:
        """On this one, which heeds a signal at least that often. Whether the call is over by then."""
        end = time.monotonic() + within
        while True:
            try:
                line = self._queue.get(timeout=min(longest_deaf, max(0.0, end - time.monotonic())))
            except queue.Empty:
                if self._over and self._queue.empty():  # Ctrl-C came behind the last line
                    return True
                if time.monotonic() >= end:
                    return False
                continue
            if line is None:
                return True
            say(*line)
