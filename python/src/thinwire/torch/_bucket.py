"""Buckets of gradients on their way to the library and back: those of the host as they are, others through a copy."""

import contextlib
from typing import Any, ContextManager, Dict, Iterator, List, Optional, Sequence, Tuple

import torch

from ._parameters import DTYPES


def for_the_scheme(buffer: torch.Tensor) -> bool:
    return not buffer.is_sparse and buffer.dtype in DTYPES


def spans(parameters: List[torch.Tensor]) -> Iterator[Tuple[torch.Tensor, int, int]]:
    """Each parameter with where in its bucket its gradient begins and ends. They lie one behind the other."""
    begin = 0
    for parameter in parameters:
        end = begin + parameter.numel()
        if end > begin:
            yield parameter, begin, end
        begin = end


class Bucket:
    """One bucket of the step under way, and the future that DDP waits for."""

    def __init__(self, bucket: Any, memory: Optional["Pinned"] = None):
        """With `memory`, `values` are in the host's: a copy, where the bucket is on a GPU."""
        self.buffer = bucket.buffer()
        self.parameters: List[torch.Tensor] = bucket.parameters()
        on_device = self.buffer.is_cuda
        self.future = torch.futures.Future(devices=[self.buffer.device]) if on_device else torch.futures.Future()
        self._arrived = self._stream = None
        self.values = self._on_host(memory, bucket.index()) if on_device and memory else self.buffer

    def _on_host(self, memory: "Pinned", index: int) -> torch.Tensor:
        """Copied to pinned memory on a stream of its own, while backward goes on."""
        values, stream = memory.at(index, self.buffer)
        stream.wait_stream(torch.cuda.current_stream(self.buffer.device))
        with torch.cuda.stream(stream):
            values.copy_(self.buffer, non_blocking=True)
            self.buffer.record_stream(stream)
            self._arrived = stream.record_event()
        self._stream = stream
        return values

    def is_here(self) -> bool:
        return self._arrived is None or self._arrived.query()

    def wait(self) -> None:
        if self._arrived is not None:
            self._arrived.synchronize()

    def beside(self) -> ContextManager:
        """What asks the GPU for a number in here waits for the copy, and not for all of backward that is queued."""
        return contextlib.nullcontext() if self._stream is None else torch.cuda.stream(self._stream)

    def addresses(self, begins: Sequence[int]) -> List[int]:
        """Where in memory the elements `begins` are."""
        first, size = self.values.data_ptr(), self.values.element_size()
        return [first + size * begin for begin in begins]

    def slices(self) -> Iterator[Tuple[torch.Tensor, torch.Tensor]]:
        """Each parameter with its gradient."""
        for parameter, begin, end in spans(self.parameters):
            yield parameter, self.values[begin:end]

    def complete(self, good: bool, fill: float) -> None:
        if not good:
            self.buffer.fill_(fill)
        elif self.values is not self.buffer:
            self.buffer.copy_(self.values, non_blocking=True)
        self.future.set_result(self.buffer)


class Pinned:
    """Pinned memory for buckets of a GPU, kept from step to step, and the stream that fills it."""

    def __init__(self) -> None:
        self._kept: Dict[int, torch.Tensor] = {}
        self._streams: Dict[torch.device, Any] = {}

    def at(self, index: int, like: torch.Tensor) -> Tuple[torch.Tensor, Any]:
        values = self._kept.get(index)
        if values is None or values.numel() != like.numel() or values.dtype != like.dtype:
            values = self._kept[index] = torch.empty(like.numel(), dtype=like.dtype, pin_memory=True)
        if like.device not in self._streams:
            self._streams[like.device] = torch.cuda.Stream(like.device)
        return values, self._streams[like.device]
