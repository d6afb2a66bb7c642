"""Ctrl-C and SIGTERM, where they would end something that is all but done."""

import _thread
import contextlib
import os
import signal
import threading
from types import FrameType
from typing import Iterator, List, Optional

LONGEST = 10.0  # seconds that one is put off


@contextlib.contextmanager
def put_off() -> Iterator[None]:
    """The first one that comes in here acts at the end of it, or when LONGEST is over; the next one acts at once. One that Python
    does not handle ends the program as ever. On the main thread, which is where Python handles them."""
    if threading.get_ident() != threading.main_thread().ident:
        yield
        return
    handlers = {number: one for number in (signal.SIGINT, signal.SIGTERM) if callable(one := signal.getsignal(number))}
    waiting: List[int] = []  # whoever takes it out of here has it act
    over = _thread.allocate_lock()
    over.acquire()

    def restore() -> None:
        for number, handler in handlers.items():
            signal.signal(number, handler)

    def note(number: int, frame: Optional[FrameType]) -> None:
        restore()
        waiting.append(number)
        _thread.start_new_thread(act_in_time, ())

    def act_in_time() -> None:
        if not over.acquire(timeout=LONGEST):
            with contextlib.suppress(IndexError):
                os.kill(os.getpid(), waiting.pop())

    for number in handlers:
        signal.signal(number, note)
    try:
        yield
    finally:
        over.release()
        restore()
        with contextlib.suppress(IndexError):
            signal.raise_signal(waiting.pop())
