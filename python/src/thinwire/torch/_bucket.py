"""DDP's buckets of gradients, on their way to the library and back."""

from typing import Any, Iterator, List, Optional, Sequence, Tuple

import torch

from ._parameters import DTYPES
from ._pinned import Pinned, Seen


def for_the_scheme(bucket: Any) -> bool:
    """DDP gives complex gradients as real numbers, twice as many; parameters of a bucket are of one type."""
    buffer = bucket.buffer()
    return not buffer.is_sparse and buffer.dtype in DTYPES and bucket.parameters()[0].dtype in DTYPES


def spans(parameters: List[torch.Tensor]) -> Iterator[Tuple[torch.Tensor, int, int]]:
    """Each parameter with where in its bucket its gradient begins and ends. They lie one behind the other."""
    begin = 0
    for parameter in parameters:
        end = begin + parameter.numel()
        if end > begin:
            yield parameter, begin, end
        begin = end


class Bucket(Seen):
    """One bucket of the step under way, and the future that DDP waits for."""

    def __init__(self, bucket: Any, memory: Optional[Pinned] = None):
        """With `memory`, `values` are in the host's."""
        self.buffer = bucket.buffer()
        self.parameters: List[torch.Tensor] = bucket.parameters()
        devices = [self.buffer.device] if self.buffer.is_cuda else None
        self.future: Any = torch.futures.Future(devices=devices)
        super().__init__(self.buffer, memory, bucket.index())

    def addresses(self, begins: Sequence[int]) -> List[int]:
        """Where in memory the elements `begins` are."""
        first, size = self.values.data_ptr(), self.values.element_size()
        return [first + size * begin for begin in begins]

    def slices(self) -> Iterator[Tuple[torch.Tensor, torch.Tensor]]:
        """Each parameter with its gradient."""
        for parameter, begin, end in spans(self.parameters):
            yield parameter, self.values[begin:end]

    def complete(self, good: bool, fill: float) -> None:
        if good and self._memory is not None:
            self._memory.give(self.given())
        elif not good:
            self.buffer.fill_(fill)
        self.future.set_result(self.buffer)
