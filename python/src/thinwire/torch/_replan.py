"""attach(ddp, "auto"): another scheme, where the line has become another."""

import struct
import sys
from typing import TYPE_CHECKING, Any, Callable, Tuple

from ..planning import LineWatch
from . import _transport

if TYPE_CHECKING:
    from .compressor import Compressor

Line = Tuple[float, float, float]
WINDOW = 32  # steps, of which the middle one counts
REST = 64  # steps after the first plan, and twice as many after each
CHANGED = 2  # times as slow or as fast, and what is over before the rest is has not changed


def in_words(line: Line) -> str:
    return f"{8e-6 * min(line[:2]):.4g} Mbit/s with {1e3 * line[2]:.3g} ms"


class Replanner:
    """Hears of each step that a compressor ends, the same on all ranks, and has it go on by what suits the line."""

    def __init__(self, line: Line, choose: Callable[[Line], Tuple[str, str]], rank: int, banner: bool):
        """`choose`: a spec for a line, and why; rank 0 asks."""
        self._line, self._choose, self._rank, self._banner = line, choose, rank, banner
        self._plans = self._rest = 0
        self._begin()

    def _begin(self) -> None:
        self._watch, self._sent, self._seconds = LineWatch(WINDOW), 0.0, 0.0
        self._times = 1.0  # as slow as when it was planned last

    def hear(self, compressor: "Compressor") -> None:
        """After a step. A collective once in a window."""
        counts = compressor._live().stats()
        sent, seconds = counts["bytes_sent"] - self._sent, counts["seconds_exchange"] - self._seconds
        self._sent, self._seconds = counts["bytes_sent"], counts["seconds_exchange"]
        self._rest = max(0, self._rest - 1)
        middle = self._watch.add(sent, seconds)
        if middle is None:
            return
        comm = compressor._connected()
        self._times *= self._watch.judge([struct.unpack("=2d", row) for row in comm.allgather(struct.pack("=2d", *middle))])
        if not self._rest and not 1 / CHANGED < self._times < CHANGED:
            self._plan_anew(compressor)

    def _plan_anew(self, compressor: "Compressor") -> None:
        was, (up, down, latency) = self._line, self._line
        self._line, self._times = (up / self._times, down / self._times, latency), 1.0
        answers: Any = _transport.gathered_by_all(compressor._connected(),
                                                  lambda: list(self._choose(self._line)) if self._rank == 0 else ["", ""])
        spec, why = answers[0]
        self._rest, self._plans = REST << min(self._plans, 16), self._plans + 1
        if self._banner and self._rank == 0:
            takes = f"keeps {spec}" if spec == compressor.spec else f"goes on with {spec} in place of {compressor.spec}"
            print(f"thinwire auto {takes}, as the line has {in_words(self._line)} now, and had {in_words(was)}. {why}",
                  file=sys.stderr, flush=True)
        if spec != compressor.spec:
            compressor.go_on_by(spec)
            self._begin()
