"""The spec "auto" in a run under way: another spec, where the line has become another."""

import struct
from typing import Any, Callable, Dict, Tuple

from .._lines import tell
from ..comm import Comm
from ..planning import LineWatch
from . import _transport

Line = Tuple[float, float, float]
STEPS, ROUNDS = 32, 8  # exchanges of a window, of which the middle one counts: those of steps, or of local updates
REST = 64  # steps after the first plan, and twice as many after each
CHANGED = 2  # times as slow or as fast, and what is over before the rest is has not changed


def in_words(line: Line) -> str:
    return f"{8e-6 * min(line[:2]):.4g} Mbit/s with {1e3 * line[2]:.3g} ms"


class Replanner:
    """Hears of each exchange, the same on all ranks, and says by what the run goes on where the line has become another."""

    def __init__(self, line: Line, choose: Callable[[Line], Tuple[str, str]], rank: int, banner: bool, window: int = STEPS,
                 takes: Callable[[str], bool] = lambda spec: True):
        """`choose`: a spec for a line, and why; rank 0 asks. `takes`: whether this rank can go on by a spec."""
        self._line, self._choose, self._rank, self._banner, self._window, self._takes = line, choose, rank, banner, window, takes
        self._plans = self._rest = 0
        self._begin()

    def _begin(self) -> None:
        self._watch, self._sent, self._seconds = LineWatch(self._window), 0.0, 0.0
        self._times = 1.0  # as slow as when it was planned last

    def hear(self, spec: str, counts: Dict[str, float], comm: Comm, steps: int = 1) -> str:
        """After an exchange by the spec, for so many steps, whose counts are what it has sent since it was taken. The spec to
        go on by now, of which all ranks hear; "" to stay. A collective once in a window."""
        sent, seconds = counts["bytes_sent"] - self._sent, counts["seconds_exchange"] - self._seconds
        self._sent, self._seconds = counts["bytes_sent"], counts["seconds_exchange"]
        self._rest = max(0, self._rest - steps)
        middle = self._watch.add(sent, seconds)
        if middle is None:
            return ""
        self._times *= self._watch.judge([struct.unpack("=2d", row) for row in comm.allgather_alike(struct.pack("=2d", *middle))])
        return "" if self._rest or 1 / CHANGED < self._times < CHANGED else self._plan_anew(spec, comm)

    def _plan_anew(self, before: str, comm: Comm) -> str:
        was, (up, down, latency) = self._line, self._line
        self._line, self._times = (up / self._times, down / self._times, latency), 1.0
        answers: Any = _transport.gathered_by_all(comm, lambda: list(self._choose(self._line)) if self._rank == 0 else ["", ""])
        spec, why = answers[0]
        self._rest, self._plans = REST << min(self._plans, 16), self._plans + 1
        if spec != before and not all(_transport.gathered(comm, self._takes(spec))):
            spec, why = before, f"Not every rank can take {spec}."
        if self._banner and self._rank == 0:
            takes = f"keeps {spec}" if spec == before else f"goes on with {spec} in place of {before}"
            tell(f"auto {takes}, as the line has {in_words(self._line)} now, and had {in_words(was)}. {why}")
        if spec == before:
            return ""
        self._begin()
        return str(spec)
