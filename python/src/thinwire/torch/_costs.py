"""What a step's exchange takes on this line and with these processors: by a scheme, and by torch's own all-reduce."""

import math
import socket
import statistics
import time
from pathlib import Path
from typing import Any, Callable, List, NamedTuple, Tuple

import torch
import torch.distributed as dist

from ..comm import Comm
from ..reducer import Reducer
from ..spec import of_part, with_option
from ._parameters import Row
from ._transport import gathered

SAMPLE = 1 << 23  # elements; the times of more than that are in proportion
BUCKET = 25 << 18  # elements of DDP's buckets
SHARE = 8  # of the sample, for a first look at a line that may be slow
LONG = 0.5  # seconds: what takes that long is measured once
ROUNDS = 5


class Costs(NamedTuple):
    """Seconds a step, of the slowest rank."""

    scheme: float
    dense: float

    @property
    def scheme_pays(self) -> bool:
        return self.scheme < self.dense


def measured(rows: List[Row], spec: str, comm: Comm, group: Any) -> Costs:
    """A collective, before the first step or between two: exchanges numbers that nobody needs, and leaves the memory of
    no scheme changed. All ranks get the same times, and so decide alike."""
    tensors = sample_of(rows)
    spec = of_part(spec, [name for name, _ in tensors], [row.name for row in rows])
    count = sum(math.prod(shape) for _, shape in tensors)
    scale = max(1.0, sum(row.elements for row in rows) / count)
    device = rows[0].parameter.device
    return Costs(scale * of_scheme(tensors, spec, comm, group, device), scale * of_dense(count, comm, group, device))


def are_on_one_machine(group: Any) -> bool:
    """Then what was measured says nothing of a network. Containers have names of their own."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    here = (socket.gethostname(), boot.read_text() if boot.exists() else "")
    return len(set(gathered(group, here))) == 1


def sample_of(rows: List[Row]) -> List[Tuple[str, Tuple[int, ...]]]:
    """The first tensors, of which the last is cut, so that a large model is measured in little memory."""
    tensors: List[Tuple[str, Tuple[int, ...]]] = []
    left = SAMPLE
    for row in rows:
        shape, count = row.shape, row.elements
        if not left:
            break
        if count > left:
            return [*tensors, (row.name, (max(1, left * shape[0] // count), *shape[1:]))]
        tensors.append((row.name, shape))
        left -= count
    return tensors


def of_scheme(tensors: List[Tuple[str, Tuple[int, ...]]], spec: str, comm: Comm, group: Any, device: Any) -> float:
    """After the warm-up, which sends more. A gradient on a GPU is copied to the host and back."""
    generator = torch.Generator().manual_seed(0)
    given = [torch.randn(math.prod(shape), generator=generator) for _, shape in tensors]
    on_device = device.type != "cpu"
    host = [torch.empty_like(values, pin_memory=on_device) for values in given]
    there = [values.to(device) for values in given] if on_device else []
    with Reducer(comm, with_option(spec, "warmup_steps", "0"), tensors) as reducer:

        def step() -> None:
            for values, copied in zip(there, host):
                copied.copy_(values)
            for index, values in enumerate(host):
                reducer.submit(index, values.data_ptr())
            reducer.wait()
            for values, copied in zip(there, host):
                values.copy_(copied)

        def prepare() -> None:
            for values, copied in zip(given, host):
                copied.copy_(values)

        return typical(step, prepare, comm, group, device)


def of_dense(count: int, comm: Comm, group: Any, device: Any) -> float:
    values = torch.zeros(count, device=device)

    def step(part: torch.Tensor) -> None:
        works = [dist.all_reduce(bucket, group=group, async_op=True) for bucket in part.split(BUCKET)]
        for work in works:
            work.wait()

    def of(part: torch.Tensor) -> float:
        return typical(lambda: step(part), lambda: None, comm, group, device)

    first = SHARE * of(values[:max(1, count // SHARE)])
    return first if first > LONG else of(values)


def typical(step: Callable[[], None], prepare: Callable[[], None], comm: Comm, group: Any, device: Any) -> float:
    """Seconds that the slowest rank takes for a step: the median of some, or of one where it is long. The first one of
    all makes connections and touches memory, and counts only then."""
    times: List[float] = []
    for _ in range(1 + ROUNDS):
        prepare()
        comm.barrier()
        begin = time.perf_counter()
        step()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        times.append(time.perf_counter() - begin)
        if len(times) == 1:
            first = max(gathered(group, times[0]))
            if first > LONG:
                return first
    return max(gathered(group, statistics.median(times[1:])))
