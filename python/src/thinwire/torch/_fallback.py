"""What torch does in place of a scheme where compression would be slower: its own all-reduce, and what else the scheme
would have done."""

from typing import Any, Dict, List, Tuple

import torch
import torch.distributed as dist

from ..table import Entries
from . import _state
from ._bucket import Bucket
from ._parameters import Row


class Fallback:
    """The mean by torch's all-reduce, bucket by bucket while backward goes on. At the end of the pass comes what the
    scheme does to a gradient besides sending it: its momentum, here applied to the mean, and no step where some gradient
    was not finite."""

    def __init__(self, rows: List[Row], group: Any, momentum: Tuple[float, bool]):
        self._names = {id(row.parameter): row.name for row in rows}
        self._group, (self._momentum, self._nesterov) = group, momentum
        self._velocity: Dict[str, torch.Tensor] = {}
        self._pending: List[Tuple[Bucket, Any]] = []
        self.steps = self.skipped = 0

    def take(self, bucket: Any) -> "torch.futures.Future[torch.Tensor]":
        taken = Bucket(bucket)
        taken.buffer.div_(dist.get_world_size(self._group))
        self._pending.append((taken, dist.all_reduce(taken.buffer, group=self._group, async_op=True)))
        return taken.future

    def finish(self, scale: float, fill: float, may_be_unused: bool) -> bool:
        """Ends the step, and completes the futures; whether it was finite. Means have the same bits on all ranks, and so
        all of them decide alike. Gradients come multiplied by `scale`, and so do directions go."""
        pending, self._pending = self._pending, []
        for _, work in pending:
            work.wait()
        good = all([is_finite(bucket.buffer) for bucket, _ in pending])
        self.steps += 1
        self.skipped += not good
        for bucket, _ in pending:
            if good and self._momentum:
                self._give_momentum(bucket, scale, may_be_unused)
            bucket.complete(good, fill)
        return good

    def _give_momentum(self, bucket: Bucket, scale: float, may_be_unused: bool) -> None:
        for parameter, mean in bucket.slices():
            if may_be_unused and not bool(mean.any()):
                continue  # nobody used it, and DDP leaves its gradient alone
            velocity = self._velocity_of(parameter, mean)
            velocity.mul_(self._momentum).add_(mean, alpha=1 / scale)
            if self._nesterov:
                mean.add_(velocity, alpha=self._momentum * scale)
            else:
                mean.copy_(velocity).mul_(scale)

    def _velocity_of(self, parameter: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
        name = self._names[id(parameter)]
        if name not in self._velocity:
            self._velocity[name] = torch.zeros(like.numel(), dtype=torch.float32, device=like.device)
        return self._velocity[name]

    def state(self) -> Entries:
        """The same on all ranks."""
        return {f"velocity/{name}": _state.from_tensor(v, "float32") for name, v in self._velocity.items()}

    def load_state(self, entries: Entries, rows: List[Row]) -> None:
        """`rows` are those of the module. A parameter that no step has used yet has no velocity."""
        velocity = {}
        for row in rows:
            entry = entries.get(f"velocity/{row.name}")
            if entry is not None:
                velocity[row.name] = _state.to_tensor(entry).to(row.parameter.device)
                if velocity[row.name].shape != (row.parameter.numel(),):
                    raise _state.does_not_fit(f"velocity/{row.name}", velocity[row.name].shape, row.parameter.numel())
        self._velocity = velocity


def is_finite(buffer: torch.Tensor) -> bool:
    """A sum is the cheapest look at all of it; that of finite values may overflow."""
    return bool(torch.isfinite(buffer.sum(dtype=torch.float32))) or bool(torch.isfinite(buffer).all())
