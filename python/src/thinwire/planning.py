"""Which way of exchanging suits a network, an optimiser and a line (docs/planning.md)."""

import ctypes
import functools
import math
import time
from typing import Any, Callable, List, NamedTuple, Optional, Sequence, Tuple, Union

from ._library import SIM_FUNCTIONS, PlanQuestion, PlanRow, Simulate, Tensor, WorldOptions, library, load_part
from ._owned import Owned
from .comm import Comm
from .errors import Error
from .spec import bytes_of
from .table import Named, table_of

GRADIENTS, WEIGHTS, UPDATES = 1, 2, 4  # tw_plan_kind
OPTIMIZERS = ("sgd", "adam", "adamw")  # tw_plan_optimizer
DOORS = {GRADIENTS: 'thinwire.torch.attach(ddp, "{}", optimizer=optimizer)',
         WEIGHTS: 'thinwire.torch.GossipDataParallel(model, "{}", optimizer=optimizer)',
         UPDATES: 'thinwire.torch.OuterLoop(model, optimizer, "{}")'}
MOST_INT, MOST_STEPS = 1 << 31, 1 << 64
PASSES = 5  # that are timed, after one that is not
ANY_RATE, FEW_ELEMENTS = 1e9, 1 << 18  # of a world in which bytes alone are counted, in a fraction of a second
FEW = 0.1  # of the parameters, and fewer: what is trained are adapters beside a network that stays


class Candidate(NamedTuple):
    """A way of exchanging, and what is predicted of it. Of one that is left out nothing is known but why."""

    spec: str
    left_out: Optional[str]
    seen: Optional[str]  # what is known of the steps that it takes more; None: it was not measured
    extra: Optional[float]  # these, as a share of the steps
    step_seconds: float
    utilisation: float
    bytes_per_step: float
    memory_bytes: Optional[float]
    codec_seconds: float
    target_seconds: float
    kind: int
    end_seconds: float  # of the run, after its last step; each step_seconds has its share


class Plan(NamedTuple):
    """The candidates, the one that is chosen, and why. It prints as the table of `thinwire plan`."""

    candidates: List[Candidate]
    choice: Candidate
    why: str
    text: str

    @property
    def command(self) -> str:
        """The line of a PyTorch script."""
        return DOORS[self.choice.kind].format(self.choice.spec)

    def __str__(self) -> str:
        return self.text + self.command


def candidate_of(row: PlanRow) -> Candidate:
    def known(value: float) -> Optional[float]:
        return None if math.isnan(value) else value

    return Candidate(row.spec.decode(), row.left_out.decode() if row.left_out else None, row.seen.decode() if row.seen else None,
                     known(row.extra) if row.seen else None, row.step_seconds, row.utilisation, row.bytes_per_step,
                     known(row.memory_bytes), row.codec_seconds, row.target_seconds, row.kind, row.end_seconds)


def read(handle: ctypes.c_void_p) -> Plan:
    rows = []
    for index in range(library.tw_plan_count(handle)):
        row = PlanRow(struct_size=ctypes.sizeof(PlanRow))
        library.tw_plan_row_at(handle, index, ctypes.byref(row))
        rows.append(candidate_of(row))
    text = ctypes.create_string_buffer(library.tw_plan_text(handle, None, 0) + 1)
    library.tw_plan_text(handle, text, len(text))
    return Plan(rows, rows[library.tw_plan_choice(handle)], library.tw_plan_why(handle).decode(), text.value.decode())


@functools.cache
def simulator() -> ctypes.CDLL:
    return load_part("libthinwire_sim", SIM_FUNCTIONS, "no plan can be made")


def line_of(text: str) -> Tuple[float, float, float]:
    """Bytes a second up and down, and seconds, of "100Mbit,1ms"."""
    if not isinstance(text, str):
        raise Error(f"line={text!r}: want a text, such as \"100Mbit,1ms\"")
    line = WorldOptions(struct_size=ctypes.sizeof(WorldOptions))
    library.tw_line_read(text.encode(), ctypes.byref(line))
    return line.bandwidth, line.bandwidth_down, line.latency


def refuse_no_count(name: str, value: Any, least: int, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value < most:
        raise Error(f"{name}={value!r}: want a whole number from {least} on")


def known_optimizer(optimizer: Any) -> Tuple[str, bool]:
    """Which one it is like, and whether it applies momentum itself: those of thinwire.torch leave theirs to a scheme that
    has some, and so will one that is no more than a name."""
    if optimizer in OPTIMIZERS:
        return optimizer, False
    while hasattr(getattr(optimizer, "optimizer", None), "param_groups"):
        optimizer = optimizer.optimizer
    groups = getattr(optimizer, "param_groups", None)
    if groups is None:
        raise Error(f"optimizer={optimizer!r}: want an optimiser of torch's, which has param_groups, or one of "
                    f"{', '.join(OPTIMIZERS)}")
    leaves = hasattr(optimizer, "own_momentum") or hasattr(optimizer, "own_moments")
    if any("betas" in group for group in groups):
        return "adamw" if "AdamW" in type(optimizer).__name__ else "adam", not leaves
    return "sgd", not leaves and any(group.get("momentum") for group in groups)


def refuse_no_number(name: str, value: Any, least: float, most: float, what: str) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value <= most:
        raise Error(f"{name}={value!r}: want {what}")


def rates_of(line: Any) -> Tuple[float, float, float]:
    """What measured_line() gives stays as it is."""
    if isinstance(line, tuple) and len(line) == 3 and all(isinstance(one, (int, float)) for one in line):
        up, down, latency = line
        return up, down, latency
    return line_of(line)


def plan_of(tensors: Sequence[Named], optimizer: Any, *, line: Union[str, Tuple[float, float, float]], steps: int, workers: int,
            step_time: float, kinds: int = 0, unmeasured: bool = False, codec_rate: float = 0, adapters: bool = False,
            goes_on: bool = False) -> Plan:
    """The plan for a table of (name, shape). `line` is a text, "100Mbit,1ms", or what measured_line() gives. `goes_on`: for a
    run under way, which cannot go on with everything."""
    refuse_no_count("workers", workers, 2, MOST_INT)
    refuse_no_count("steps", steps, 1, MOST_STEPS)
    optimizer, keeps_momentum = known_optimizer(optimizer)
    refuse_no_number("step_time", step_time, 1e-12, 1e7, "the seconds of a forward and backward pass, such as 0.12")
    refuse_no_number("codec_rate", codec_rate, 0, 1e15, "bytes a second, such as 5e9, or 0 to time each scheme")
    up, down, latency = rates_of(line)
    table = table_of(tensors)
    question = PlanQuestion(struct_size=ctypes.sizeof(PlanQuestion), tensors=ctypes.cast(table, ctypes.POINTER(Tensor)), tensor_count=len(table),
                            workers=workers, optimizer=OPTIMIZERS.index(optimizer), kinds=kinds, unmeasured=bool(unmeasured),
                            keeps_momentum=keeps_momentum,
                            steps=steps, seed=1, pass_seconds=step_time, bandwidth=up, bandwidth_down=down, latency=latency,
                            codec_rate=codec_rate, goes_on=goes_on, adapters=adapters,
                            simulate=ctypes.cast(simulator().tw_world_play, Simulate))
    handle = ctypes.c_void_p()
    library.tw_plan_make(ctypes.byref(question), ctypes.byref(handle))
    try:
        return read(handle)
    finally:
        library.tw_plan_destroy(handle)


def bytes_sent(tensors: Sequence[Named], spec: str, workers: int) -> float:
    """That a worker sends in a step, on average over whole rounds, as far as a plan can tell."""
    table, sent = table_of(tensors), ctypes.c_double()
    question = PlanQuestion(struct_size=ctypes.sizeof(PlanQuestion), tensors=ctypes.cast(table, ctypes.POINTER(Tensor)), tensor_count=len(table),
                            workers=workers, seed=1, bandwidth=ANY_RATE, bandwidth_down=ANY_RATE, elements=FEW_ELEMENTS,
                            simulate=ctypes.cast(simulator().tw_world_play, Simulate))
    library.tw_plan_bytes(ctypes.byref(question), bytes_of(spec), ctypes.byref(sent))
    return sent.value


def seconds_of(step: Union[float, Callable[[], object]]) -> float:
    """Seconds are what they are; what can be called makes passes, of which the middle one counts."""
    if not callable(step):
        return step
    step()
    taken = []
    for _ in range(PASSES):
        begun = time.perf_counter()
        step()
        taken.append(time.perf_counter() - begun)
    return sorted(taken)[PASSES // 2]


def tensors_of(model: Any) -> List[Named]:
    if hasattr(model, "named_parameters"):
        return [(name, tuple(p.shape)) for name, p in model.named_parameters() if p.requires_grad and p.numel()]
    try:
        return [(name, tuple(shape)) for name, shape in model]
    except (TypeError, ValueError):
        raise Error(f"model={model!r}: want a module of torch's, or a list of (name, shape)") from None


def trains_adapters(model: Any) -> bool:
    every = list(getattr(model, "parameters", list)())
    trained = sum(one.numel() for one in every if one.requires_grad)
    return 0 < trained <= FEW * sum(one.numel() for one in every)


def plan(model: Any, optimizer: Any, *, line: str, steps: int, workers: int, step_time: Union[float, Callable[[], object]],
         unmeasured: bool = False, codec_rate: float = 0) -> Plan:
    """Which way of exchanging reaches the same loss soonest, of those that `thinwire plan` compares.

        print(thinwire.plan(model, optimizer, line="100Mbit,1ms", steps=20000, workers=4, step_time=0.12))

    model       a module of torch's, of which the parameters that require a gradient count; or a list of (name, shape). A
                module that trains a tenth of its parameters or less costs what adapters cost
    optimizer   of torch's, or one of "sgd", "adam", "adamw"
    line        of each worker: RATE,LATENCY, or UP/DOWN,LATENCY
    steps       of the optimiser in the run
    step_time   seconds of a forward and backward pass on one worker; or a function without arguments that makes one, which
                is then timed
    unmeasured  take a candidate, too, of which nobody has measured what it costs in a run of this length
    codec_rate  bytes per second at which schemes pass over memory; 0: each is timed on this machine"""
    return plan_of(tensors_of(model), optimizer, line=line, steps=steps, workers=workers, step_time=seconds_of(step_time),
                   unmeasured=unmeasured, codec_rate=codec_rate, adapters=trains_adapters(model))


# ---- a line that changes ---------------------------------------------------------------------------------------------


def can_switch(spec: str) -> bool:
    """Whether a run can leave the spec between two steps, or come to it, with nothing lost."""
    try:
        library.tw_plan_can_switch(bytes_of(spec))
    except Error:
        return False
    return True


class LineWatch(Owned):
    """Says when a line has become another, by the time of exchanges that happen anyway: tw_watch of thinwire_plan.h."""

    def __init__(self, window: int):
        handle = ctypes.c_void_p()
        library.tw_watch_create(window, ctypes.byref(handle))
        self._own(handle, library.tw_watch_destroy)

    def add(self, sent: float, seconds: float) -> Optional[Tuple[float, float]]:
        """An exchange. With the last one of a window: the medians of its bytes and seconds."""
        middle = (ctypes.c_double * 2)()
        return (middle[0], middle[1]) if self._call(library.tw_watch_add, sent, seconds, middle) else None

    def judge(self, middles: Sequence[Tuple[float, ...]]) -> float:
        """Of all ranks' medians: how many times as slow the line is; 1: as it was."""
        flat = [number for middle in middles for number in middle]
        return float(self._call(library.tw_watch_judge, (ctypes.c_double * len(flat))(*flat), len(middles)))


# ---- the line between ranks -------------------------------------------------------------------------------------------

SMALL, FIRST, LARGEST, LONG_ENOUGH, TURNS = 8, 1 << 16, 1 << 26, 0.15, 9


def exchanged(comm: Comm, size: int) -> float:
    """Seconds in which each rank has sent so many bytes to each other one, on the slowest rank."""
    data = bytes(size)
    comm.barrier()
    begun = time.perf_counter()
    comm.allgather(data)
    mine = time.perf_counter() - begun
    return max(float(row) for row in comm.allgather(f"{mine:<32.17g}".encode()))


def measured_line(comm: Comm) -> Tuple[float, float, float]:
    """A collective: bytes a second each way and seconds of latency, with all lines at work at once, the same on all ranks.
    What the slowest rank has counts."""
    latency = sorted(exchanged(comm, SMALL) for _ in range(TURNS))[TURNS // 2]
    size = FIRST
    while True:
        taken = exchanged(comm, size)
        if taken - latency >= LONG_ENOUGH or size >= LARGEST:
            break
        size *= 4
    rate = (comm.size - 1) * size / max(taken - latency, 1e-9)
    return rate, rate, latency
