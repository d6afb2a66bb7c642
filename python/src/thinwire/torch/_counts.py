"""What was sent, in numbers and in a line."""

from typing import Dict, Optional, Tuple

from ..spec import for_run, name_of, number_of, options_of


def with_ratios(counts: Dict[str, float]) -> Dict[str, float]:
    """`counts` are those of a reducer, or the sums of several."""
    sent, packet = counts["bytes_sent"], counts["message_packet"]
    traffic = counts["bytes_dense"] / sent if sent else 1.0
    return {**counts, "ratio": counts["message_fp32"] / packet if packet else traffic, "ratio_traffic": traffic}


def counted(steps: float) -> str:
    return f"{steps} step{'s' * (steps != 1)}"


def steps_of(counts: Dict[str, float]) -> str:
    skipped = f" ({counts['steps_skipped']} skipped)" if counts["steps_skipped"] else ""
    return counted(counts["steps"]) + skipped


def amount(count: float) -> str:
    """Of bytes, in the unit that suits them."""
    units, figures = iter(("B", "kB", "MB", "GB", "TB")), float(f"{count:.3g}")
    unit = next(units)
    while figures >= 1000 and unit != "TB":
        unit, figures = next(units), figures / 1000
    return f"{figures:.3g} {unit}"


def in_a_line(spec: str, counts: Dict[str, float]) -> str:
    steps = max(1, counts["steps"])
    return (f"thinwire {spec}: {steps_of(counts)}, {amount(counts['bytes_sent'] / steps)} a step instead of "
            f"{amount(counts['bytes_dense'] / steps)}, waited {milliseconds(counts['seconds_wait'] / steps)} a step")


MEASURES = 1e5  # bytes: fewer say more of the way's length than of its width


def at_rate(moved: float, seconds: float) -> str:
    """What the line carried; "" where it is not known."""
    return f", at {float(f'{8e-6 * moved / seconds:.3g}'):,.12g} Mbit/s" if seconds and moved >= MEASURES else ""


class Pace:
    """What a round takes, which is told once: of the second of two among the same workers, since in the first one all are still
    warming up. `beside`: it travels while steps go on, so that what they are held up for is no time of the line's."""

    def __init__(self, beside: bool = False) -> None:
        self._beside = beside
        self._before: Optional[Tuple[float, float, Tuple[int, int]]] = None

    def heard(self, begin: float, end: float, bytes_sent: float, among: Tuple[int, int], exchanged: float = 0.0) -> str:
        """The line, or "". `among`: which workers, and how many. `exchanged`: seconds of the round in which all were there; 0:
        that is not known, and so the line's rate is not."""
        before, self._before = self._before, (end, bytes_sent, among)
        if before is None or before[2] != among or among[1] == 1:
            return ""
        took, period, sent = end - begin, max(end - before[0], 1e-9), bytes_sent - before[1]
        what = "held the steps up for" if self._beside else "took"
        return (f"thinwire: a round of {among[1]} {what} {milliseconds(took)} of {milliseconds(period)}, {100 * took / period:.2g} % of "
                f"the time; {amount(sent)} were sent for it{at_rate(sent, exchanged)}")


def milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:.3g} ms" if seconds < 0.9995 else f"{1e3 * seconds:,.0f} ms"


def what_happens(spec: str, plan: Dict[str, str], elements: int, momentum: float) -> str:
    """For a banner. `momentum` is what the scheme applies itself."""
    compressed = [name for name, what in plan.items() if what.startswith(name_of(spec) + ":")]
    applies = f"; it applies momentum={momentum:g} itself" if momentum else ""
    return (f"thinwire {spec}: {elements:,} gradients in {len(plan)} tensors, of which {len(compressed)} are "
            f"compressed{applies}{warm_up(spec) if compressed else ''}")


def warm_up(spec: str) -> str:
    """Its default is that of a long run, and may be longer than this one. "": the spec says it, or no length changes it."""
    steps = number_of(spec, "warmup_steps")
    if not steps or "warmup_steps" in options_of(spec) or "warmup_steps" not in options_of(for_run(spec, 1)):
        return ""
    return f"; its first {steps:,g} steps are a warm-up, which thinwire.for_run(spec, steps=N) fits to a run of N steps"
