"""What was sent, in numbers and in a line."""

from typing import Dict

from ..spec import name_of


def with_ratios(counts: Dict[str, float]) -> Dict[str, float]:
    """`counts` are those of a reducer, or the sums of several."""
    sent, packet = counts["bytes_sent"], counts["message_packet"]
    traffic = counts["bytes_dense"] / sent if sent else 1.0
    return {**counts, "ratio": counts["message_fp32"] / packet if packet else traffic, "ratio_traffic": traffic}


def steps_of(counts: Dict[str, float]) -> str:
    skipped = f" ({counts['steps_skipped']} skipped)" if counts["steps_skipped"] else ""
    return f"{counts['steps']} steps{skipped}"


def in_a_line(spec: str, counts: Dict[str, float]) -> str:
    steps = max(1, counts["steps"])
    return (f"thinwire {spec}: {steps_of(counts)}, {counts['bytes_sent'] / steps / 1e6:.3g} MB a step instead of "
            f"{counts['bytes_dense'] / steps / 1e6:.3g}, waited {milliseconds(counts['seconds_wait'] / steps)} a step")


def milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:.3g} ms" if seconds < 0.9995 else f"{1e3 * seconds:,.0f} ms"


def what_happens(spec: str, plan: Dict[str, str], elements: int, momentum: float) -> str:
    """For a banner. `momentum` is what the scheme applies itself."""
    compressed = [name for name, what in plan.items() if what.startswith(name_of(spec) + ":")]
    applies = f"; it applies momentum={momentum:g} itself" if momentum else ""
    return (f"thinwire {spec}: {elements:,} gradients in {len(plan)} tensors, of which {len(compressed)} are "
            f"compressed{applies}")
