"""Which steps were taken and which were skipped, and what is told of them: the same for every compressor."""

from typing import Any, Dict, Optional

from .._owned import Closes
from ..errors import Error, NonFinite

FILLED_WITH = {"skip": 0.0, "raise": 0.0, "nan": float("nan")}
SKIPPED_LIMIT = 10  # so many skipped steps in a row do not end by themselves


def nonfinite_of(nonfinite: Optional[str], scaler: Any) -> str:
    """Where it is not said. A scaler that is disabled, as one is where its device is not there, skips nothing."""
    scales = scaler is not None and getattr(scaler, "is_enabled", lambda: True)()
    return nonfinite or ("nan" if scales else "skip")


class Stepping(Closes):
    """A base of those that have stats()."""

    nonfinite: str
    spec: str
    _expect_ratio: Optional[float]
    skipped = False
    _skipped_in_a_row = 0

    def count(self, good: bool) -> None:
        """A step is over: on all ranks it was taken, or on all it was skipped."""
        self.skipped = not good
        self._skipped_in_a_row = 0 if good else self._skipped_in_a_row + 1

    @property
    def raises_skipped(self) -> bool:
        """Whether the last step was skipped, and that is an error. A GradScaler lowers its scale by itself; without one
        nothing changes from one skipped step to the next, and the run would learn nothing, in silence."""
        limit = {"raise": 1, "skip": SKIPPED_LIMIT}.get(self.nonfinite, 0)
        return 0 < limit <= self._skipped_in_a_row

    @property
    def _fill(self) -> float:
        return FILLED_WITH[self.nonfinite]

    def _raise_skipped(self) -> None:
        text = "a gradient of some rank held NaN or infinity; no rank has taken the step"
        if self.nonfinite == "skip":
            text = (f"the gradients of {self._skipped_in_a_row} steps in a row held NaN or infinity, and no step was taken; with "
                    "a GradScaler give attach() scaler=, so that it lowers its scale, and else lower the learning rate")
        raise NonFinite(text, 13, "TW_SKIPPED")

    def _refuse_ratio(self, ratio: float) -> None:
        """Once, when it is known."""
        wanted, self._expect_ratio = self._expect_ratio, None
        if wanted and ratio < wanted:
            raise Error(f"{self.spec} sends 1/{ratio:.4g} of the bytes, and expect_ratio={wanted:g}; plan() says what is "
                        "compressed and what is not")

    def stats(self) -> Dict[str, float]:
        raise NotImplementedError

    def scalars(self) -> Dict[str, float]:
        """The stats by names for a logger, such as ``wandb.log({"loss": loss, **compressor.scalars()})``."""
        return {f"thinwire/{name}": value for name, value in self.stats().items()}

    def write_scalars(self, writer: Any, step: int) -> None:
        """The stats for TensorBoard: `writer` is a SummaryWriter, or has its add_scalar."""
        for name, value in self.scalars().items():
            writer.add_scalar(name, value, step)
