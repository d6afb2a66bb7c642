"""Values of a device as the library sees them: copied to the host's memory, and back."""

import contextlib
from collections import deque
from typing import (Any, ContextManager, Deque, Dict, Generic, Hashable, Iterator, List, Optional, Sequence, Tuple,
                    TypeVar)

import torch

Pair = Tuple[torch.Tensor, torch.Tensor]  # what is on a device, and its copy in the host's memory


def is_on_host(values: torch.Tensor) -> bool:
    return values.device.type == "cpu"


def is_on_gpu(values: torch.Tensor) -> bool:
    """On one whose copies are queued on streams of torch.cuda."""
    return values.is_cuda


class Pinned:
    """Memory of the host for what is on devices, kept from step to step.

    For a GPU it is pinned, and all copies are made on a stream of their own, in both directions on the same one. So
    none meets another in this memory, and what else the GPU has to do goes on beside them. (Streams are CUDA's here. To
    and from any other device a copy is done when the call returns.)"""

    def __init__(self) -> None:
        self._kept: Dict[Hashable, torch.Tensor] = {}
        self._streams: Dict[torch.device, Any] = {}

    def room(self, key: Hashable, like: torch.Tensor, dtype: Optional[torch.dtype] = None) -> torch.Tensor:
        """For as many values, or values of another type; under one key the same memory each time."""
        wanted = like.shape, dtype or like.dtype
        kept = self._kept.get(key)
        if kept is None or (kept.shape, kept.dtype) != wanted:
            kept = self._kept[key] = torch.empty(wanted[0], dtype=wanted[1], device="cpu", pin_memory=is_on_gpu(like))
        return kept

    def fetch(self, pairs: Sequence[Pair]) -> List[Any]:
        """What is there comes here, when all that is queued on the current stream is done. Gives the events after
        which it has come; none: it has."""
        events = []
        for some in by_device(pairs):
            with self._beside(some) as stream:
                for there, here in some:
                    here.copy_(there, non_blocking=stream is not None)
                if stream is not None:
                    events.append(stream.record_event())
        return events

    def give(self, pairs: Sequence[Pair]) -> None:
        """What is here goes there again: what is queued on the current stream from now on sees it."""
        for some in by_device(pairs):
            with self._beside(some) as stream:
                for there, here in some:
                    there.copy_(here, non_blocking=stream is not None)
            if stream is not None:
                torch.cuda.current_stream(some[0][0].device).wait_stream(stream)

    def stream_of(self, device: torch.device) -> Any:
        if device not in self._streams:
            self._streams[device] = torch.cuda.Stream(device)
        return self._streams[device]

    def wait(self) -> None:
        """Until no copy is under way: this memory may be read, and written."""
        for stream in self._streams.values():
            stream.synchronize()

    @contextlib.contextmanager
    def _beside(self, pairs: Sequence[Pair]) -> Iterator[Any]:
        """For copies from or to one device, on its stream; None: it has none. What is there is nobody else's memory
        before both streams are done with it. (FSDP has its hook run on another stream than that whose memory it is, and
        may give the memory back at once.)"""
        one = pairs[0][0]
        if not is_on_gpu(one):
            yield None
            return
        now, stream = torch.cuda.current_stream(one.device), self.stream_of(one.device)
        stream.wait_stream(now)
        with torch.cuda.stream(stream):
            yield stream
            for there, _ in pairs:
                there.record_stream(now)
                there.record_stream(stream)


def by_device(pairs: Sequence[Pair]) -> List[List[Pair]]:
    found: Dict[torch.device, List[Pair]] = {}
    for pair in pairs:
        found.setdefault(pair[0].device, []).append(pair)
    return list(found.values())


class Seen:
    """Values where the library reads and writes them: where they are, or in a copy that comes while a GPU goes on."""

    def __init__(self, there: torch.Tensor, memory: Optional[Pinned], key: Hashable):
        """The copy has the room `key` of the memory. Without a memory `values` are on their device."""
        self._there, self._memory = there, memory
        self._arrived: Any = None
        self.values = there
        if memory is not None and not is_on_host(there):
            self.values = memory.room(key, there)
            self._arrived, = memory.fetch([(there, self.values)]) or [None]

    def is_here(self) -> bool:
        return self._arrived is None or self._arrived.query()

    def wait(self) -> None:
        if self._arrived is not None:
            self._arrived.synchronize()

    def beside(self) -> ContextManager:
        """What asks the GPU for a number in here waits for the copies, and not for all of backward that is queued."""
        if self._memory is None or self._arrived is None:
            return contextlib.nullcontext()
        return torch.cuda.stream(self._memory.stream_of(self._there.device))

    def given(self) -> List[Pair]:
        """What is to be given back when the library has written."""
        return [] if self.values is self._there else [(self._there, self.values)]


One = TypeVar("One", bound=Seen)


class Arrivals(Generic[One]):
    """What is on its way to the host's memory. It is given in order, and nobody waits for it before the end."""

    def __init__(self) -> None:
        self._coming: Deque[One] = deque()

    def after(self, one: One) -> Iterator[One]:
        """Those that have arrived, now that this one has set out."""
        self._coming.append(one)
        while self._coming and self._coming[0].is_here():
            yield self._coming.popleft()

    def rest(self) -> Iterator[One]:
        """All others, each as it arrives."""
        while self._coming:
            self._coming[0].wait()
            yield self._coming.popleft()
