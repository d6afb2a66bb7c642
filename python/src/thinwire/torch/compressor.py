"""The object behind attach(): a table of parameters, a scheme, and what it remembers."""

import contextlib
import weakref
from typing import Any, Callable, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple

import torch

from .. import gossip_schemes, outers
from .._lines import show
from ..comm import Comm
from ..errors import Error, SpecError
from ..planning import DOORS, GRADIENTS, UPDATES, WEIGHTS, can_switch
from ..reducer import Reducer, regrouped
from ..spec import adapts, defaults_of, gives_signs, minds_rates, name_of, number, options_of
from ..table import Entries
from . import _adam, _auto, _claims, _costs, _counts, _optimiser, _state, _transport
from ._accumulated import Accumulated
from ._bucket import spans
from ._directions import Directions
from ._fallback import Fallback
from ._parameters import Row, orders_of
from ._replan import Replanner
from ._steps import FILLED_WITH, Stepping, nonfinite_of
from ._unfit import Unfit

RATIO_IS_KNOWN = 10  # steps after the warm-up
NOWHERE = "this state is of a scheme, and the exchange is dense: there is nowhere to put it"


class Layout(NamedTuple):
    """A bucket's rows of the table, and at which element of the bucket each begins."""

    indices: List[int]
    begins: List[int]


class Loaded(NamedTuple):
    """What a state holds, and whether torch did the exchange when it was saved."""

    of_fallback: bool
    entries: Entries


def refuse_options(spec: str, optimizer: Optional[torch.optim.Optimizer], nonfinite: Optional[str] = None,
                   scaler: Any = None) -> None:
    """What is no option at all, whatever the scheme and the other ranks."""
    name_of(spec)
    _optimiser.refuse_others(optimizer)
    if nonfinite is not None and nonfinite not in FILLED_WITH:
        raise Error(f"nonfinite={nonfinite!r}: it is one of {', '.join(FILLED_WITH)}")
    if scaler is not None and not callable(getattr(scaler, "get_scale", None)):
        raise Error(f"scaler={scaler!r}: it is the GradScaler that the loss is scaled with, or None")


def refuse_other_doors(spec: str) -> None:
    """What exchanges weights, or what steps came to, has a class of its own."""
    for kind, there in ((WEIGHTS, gossip_schemes()), (UPDATES, outers())):
        if name_of(spec) in dict(there):
            raise SpecError(f"{name_of(spec)} exchanges no gradients; write {DOORS[kind].format(spec)}", 2, "TW_ERROR_SPEC")


def dtype_of(values: torch.Tensor) -> str:
    return str(values.dtype).split(".")[1]


class Compressor(Stepping):
    """Agrees with the other ranks on the gradients of a table of parameters.

    One is made by `attach`. It holds the scheme's memory of this rank: save state_dict() with each rank's checkpoint.

    `skipped` is whether some rank's gradient was not finite in the last backward pass, the same on all ranks. Gradients
    are then zero, on which an optimiser with momentum or weight decay, or Adam, moves all the same; to leave the weights
    as they are write ``if not compressor.skipped: optimizer.step()``. (With the spec "allreduce" nobody looks.)"""

    def __init__(self, rows: List[Row], left_out: Dict[str, str], spec: str, comm: Optional[Comm], *,
                 owns_comm: bool = True, optimizer: Optional[torch.optim.Optimizer] = None, scaler: Any = None,
                 nonfinite: Optional[str] = None, expect_ratio: Optional[float] = None, group: Any = None,
                 may_fall_back: bool = False):
        """`group` is torch's, of the same ranks. `may_fall_back`: torch itself can do the exchange instead."""
        refuse_options(spec, optimizer, nonfinite, scaler)
        refuse_other_doors(spec)
        self.nonfinite = nonfinite_of(nonfinite, scaler)
        self._rows, self._left_out, self._comm, self._owns_comm = rows, left_out, comm, owns_comm
        self._layouts: Dict[Tuple[int, ...], Layout] = {}
        self._index = {id(row.parameter): i for i, row in enumerate(rows)}
        self._optimiser, self._scaler, self._expect_ratio = optimizer, scaler, expect_ratio
        self._others: "weakref.WeakSet[torch.optim.Optimizer]" = weakref.WeakSet()  # that step some of these parameters, too
        self._keeper = object()  # of what an optimiser leaves to the scheme; no reference to this object, which may end first
        self._failure: Optional[BaseException] = None
        self._missing: Optional[Set[int]] = None  # of the step under way
        self._adapts = False  # whether the scheme has AdamW's moments
        self._has_taken = False  # those of the optimiser, of which ranks speak once
        self._rates: List[float] = []
        self._directions: Optional[Directions] = None
        self.alone = False  # whether this is the only process
        self._group, self._may_fall_back = group, may_fall_back
        self.costs: Optional[_costs.Costs] = None
        self._on_one_machine = False
        self._fallback: Optional[Fallback] = None
        self.replanner: Optional[Replanner] = None  # of "auto"
        self.follows = False  # whether a state may be of another scheme, which "auto" went on by
        self._next_spec = ""  # to go on by from the next good step on
        self.spec = spec = _optimiser.with_its_momentum(optimizer, spec)  # a dense exchange torch does itself: at its own speed, and right on any backend
        self._reducer = None if comm is None else self._made(spec)
        self._accumulated = Accumulated([] if comm is None else rows)
        self.unfit: Optional[Unfit] = None  # until close()
        self._stop_watching = [_optimiser.at_each_step(self._notice), _optimiser.at_each_step(self._look_at_step, "post")]

    # The scheme

    def _connected(self) -> Comm:
        assert self._comm is not None  # that only a dense exchange lacks, of which nobody asks this
        return self._comm

    def _made(self, spec: str) -> Reducer:
        reducer = Reducer(self._connected(), spec, [(row.name, row.shape) for row in self._rows])
        try:
            self._refuse_unknown(self._optimiser, spec)
            self._settle(self._optimiser, spec, reducer.momentum)
        except Error:
            reducer.close()
            raise
        self._momentum, self._minds_rates, self._adapts = reducer.momentum, minds_rates(spec), adapts(spec)
        self._directions = Directions(self._rows) if adapts(spec) or gives_signs(spec) else None
        self._has_taken, self._rates = False, []
        self._take_back(self._others)  # each is looked at anew when it next steps
        return reducer

    def _settle(self, optimiser: Optional[torch.optim.Optimizer], spec: str, momentum: Tuple[float, bool]) -> None:
        _optimiser.settle(optimiser, spec, *momentum, self._keeper, [row.parameter for row in self._rows])

    def _take_back(self, others: "weakref.WeakSet[torch.optim.Optimizer]") -> None:
        for one in others:
            _optimiser.take_back(one, self._keeper)
        others.clear()

    def _refuse_unknown(self, optimiser: Optional[torch.optim.Optimizer], spec: str) -> None:
        if minds_rates(spec) or (adapts(spec) and hasattr(_optimiser.innermost(optimiser), "own_moments")):
            _optimiser.refuse_unknown(optimiser, spec, {row.name: row.parameter for row in self._rows})

    def set_scheme(self, spec: str) -> None:
        """Goes on with another spec, from the next step on: a collective. What the scheme held back stays where it is
        still the same scheme, and is lost where it is another. A run of "auto" stays with it from then on."""
        if name_of(spec) == "allreduce" or self._comm is None:
            raise Error(f"from {name_of(self.spec)} to {name_of(spec)}: torch itself does the dense exchange; attach anew")
        spec = _optimiser.with_its_momentum(self._optimiser, spec)
        leaves_moments = self._adapts and name_of(spec) != name_of(self.spec) and hasattr(self.inner_optimizer(), "own_moments")
        moments = self.optimizer_state_dict() if leaves_moments else None
        old, before = self._reducer, self._of_scheme()
        new = self._made(spec)
        if moments is not None:
            self.inner_optimizer().load_state_dict(moments)  # a scheme that has moments itself takes them with its first step
        if old is not None and name_of(spec) == name_of(self.spec):
            with contextlib.ExitStack() as unless_it_fits:
                unless_it_fits.callback(self._go_back, before)
                unless_it_fits.callback(new.close)
                new.load_state(old.state())
                unless_it_fits.pop_all()
        self._reducer, self.spec, self._fallback = new, spec, None
        self.replanner, self.follows, self._next_spec = None, False, ""
        if old is not None:
            old.close()

    def _of_scheme(self) -> Dict[str, Any]:
        return {name: vars(self)[name] for name in ("_reducer", "spec", "_rates", "_momentum", "_minds_rates", "_adapts", "_has_taken", "_directions")}

    def _go_back(self, before: Dict[str, Any]) -> None:
        """To the scheme of which _of_scheme() was: the optimiser, too."""
        vars(self).update(before)
        self._settle(self._optimiser, self.spec, self._momentum)

    def watch(self, settled: _auto.Settled, banner: bool) -> None:
        """Of a run of "auto". Where torch does the exchange nobody can see how long it takes; and what was chosen in an
        earlier run stays."""
        self.follows = not self.spec_is_dense and can_switch(self.spec)
        if self.dense or not self.follows or settled.line is None or self._scaler is not None:
            return
        rank, size = _transport.rank_of(self._group), _transport.size_of(self._group)
        self.replanner = Replanner(settled.line, lambda line: settled.choose(self._rows, self._optimiser, GRADIENTS, size, line),
                                   rank, banner)

    def go_on_by(self, spec: str) -> None:
        """By another scheme, of which all ranks know, from the end of this step on, or of the next one that is not skipped."""
        self._next_spec = spec

    def go_on(self, means: Iterable[Tuple[torch.Tensor, torch.Tensor]]) -> None:
        """At the end of a good step, whose means are given with their parameters. What the scheme before has not sent of this
        rank's gradients goes through the new one in a step of its own, whose means come on top: what is left is in its state."""
        try:
            if self._next_spec:
                self._go_on(means)
        except BaseException as error:
            self._break_off(error)
            raise

    def _go_on(self, means: Iterable[Tuple[torch.Tensor, torch.Tensor]]) -> None:
        held = [torch.zeros(row.elements, device="cpu") for row in self._rows]
        addresses, old = [one.data_ptr() for one in held], self._live()
        old.hand_over(addresses)
        new = self._made(self._next_spec)
        self._reducer, self.spec, self._next_spec = new, self._next_spec, ""
        old.close()
        self._tell_rates(new)
        new.submit_all(range(len(held)), addresses)
        if new.wait():
            for parameter, values in means:
                values.view(-1).add_(held[self._index_of(parameter)], alpha=self._scale)

    @property
    def spec_is_dense(self) -> bool:
        """Whether the spec is "allreduce", which leaves all to torch."""
        return self._comm is None

    @property
    def dense(self) -> bool:
        """Whether torch does the exchange, uncompressed."""
        return self._comm is None or self._fallback is not None

    @property
    def momentum(self) -> Tuple[float, bool]:
        """The momentum that the scheme applies itself, and whether in Nesterov's form; 0 where the optimiser does."""
        return (0.0, False) if self._comm is None else self._momentum

    def plan(self) -> Dict[str, str]:
        """What becomes of each parameter after any warm-up."""
        plan = {row.name: "dense: torch's own all-reduce" for row in self._rows} if self.dense else self._live().plan()
        return {**plan, **self._left_out}

    # What is faster

    def weigh(self) -> None:
        """Measures what a step's exchange costs, as a collective, and leaves it to torch from now on where that is faster.
        (A scheme that clips needs each rank's whole gradient before it sends, and stays; so does one that has Adam's
        moments, which would be lost, or gives signs.)"""
        if self._comm is None or number(options_of(self.spec).get("clip", "0")) or adapts(self.spec) or gives_signs(self.spec):
            return
        self.costs = _costs.measured(self._rows, self.spec, self._comm, self._group)
        self._on_one_machine = _costs.are_on_one_machine(self._group)
        if not self.costs.scheme_pays:
            self._fall_back()

    def _fall_back(self) -> None:
        """The connections stay, for a state that wants them."""
        self._fallback = self._made_fallback()
        self._live().close()
        self._reducer = None

    def _made_fallback(self) -> Fallback:
        """The momentum of the scheme goes on."""
        return Fallback(self._rows, self._group, self._momentum)

    # Steps: the hooks of ddp.py call these

    def _live(self) -> Reducer:
        if self._failure is not None:
            raise self._failure
        if self._reducer is None or self._reducer.closed:
            raise Error("the compressor was closed; attach() makes another", 12, "TW_ERROR_ORDER")
        return self._reducer

    @property
    def fallback(self) -> Optional[Fallback]:
        """What does the exchange in place of the scheme; or None."""
        if self._fallback is not None and self._connected().closed:
            self._live()
        return self._fallback

    @property
    def _scale(self) -> float:
        """What the gradients of the step under way were multiplied by."""
        return self._scaler.get_scale() if self._scaler is not None else 1.0

    def _begin(self) -> Set[int]:
        """Tells what the scheme has to know of the step, when it is another than in the last. Gives what is missing."""
        self.refuse_accumulated()
        if self._missing is not None:
            return self._missing
        reducer = self._live()
        self._tell_rates(reducer)
        self._take_moments(reducer)
        if self._scaler is not None:
            reducer.set_gradient_scale(self._scale)
        self._missing = set(range(len(self._rows)))
        return self._missing

    def _take_moments(self, reducer: Reducer) -> None:
        """Those that the optimiser had before it left them to the scheme, or has loaded before its first step."""
        inner = self.inner_optimizer()
        if self._adapts and not self._has_taken:
            _adam.move_in(inner, self._rows, reducer, self._connected())
            self._has_taken = True
        elif self._adapts and _adam.has_moments(inner, self._rows):
            raise Error(f"this {type(inner).__name__} has loaded moments in the midst of a run, and {name_of(self.spec)} has its own: "
                        "load them before the first step, or have all ranks call set_scheme(spec) with the same spec afterwards")

    def _tell_rates(self, reducer: Reducer) -> None:
        if self._optimiser is None or not self._minds_rates:
            return
        rates = _optimiser.rates_of(self._optimiser, [row.parameter for row in self._rows])
        if rates and rates != self._rates:
            reducer.set_rates(rates)
            self._rates = rates

    def submit(self, parameter: torch.Tensor, values: torch.Tensor, absent: bool = False) -> None:
        """The parameter's gradient, in the order in which the parameter lies in memory; `values` receive the mean."""
        self.submit_all([self._index_of(parameter)], [values.data_ptr()], dtype_of(values), absent)

    def submit_all(self, indices: Sequence[int], addresses: Sequence[int], dtype: str, absent: bool = False) -> None:
        """The same, of the rows `indices`, whose gradients lie at `addresses`."""
        try:
            missing = self._begin()
            self._live().submit_all(indices, addresses, dtype, absent)
            missing.difference_update(indices)
            if self._directions is not None:
                self._directions.submitted(indices, addresses, dtype)
        except BaseException as error:
            self._break_off(error)
            raise

    def layout_of(self, parameters: List[torch.Tensor]) -> Layout:
        """Of a bucket of these parameters. DDP has few buckets, and changes them once or twice."""
        key = tuple(map(id, parameters))
        if key not in self._layouts:
            rows = [(self._index_of(parameter), begin) for parameter, begin, _ in spans(parameters)]
            self._layouts[key] = Layout([index for index, _ in rows], [begin for _, begin in rows])
        return self._layouts[key]

    def _index_of(self, parameter: torch.Tensor) -> int:
        index = self._index.get(id(parameter))
        if index is None:
            raise Error("a gradient came of a parameter that the module did not have, or that was frozen, at attach(); "
                        "attach again after changing the module")
        return index

    def finish(self) -> bool:
        """Ends the step; True when the means are where the gradients were, False when it has to be skipped."""
        try:
            missing = sorted(self._begin())
            nowhere = [torch.empty(self._rows[i].elements, dtype=torch.float32, device="cpu") for i in missing]
            for index, values in zip(missing, nowhere):
                self._live().submit(index, values.data_ptr(), absent=True)
            good = self._live().wait()
            self._missing = None
            if good and self._directions is not None:
                self._directions.keep()
            self.count(good)
            self._look_at_ratio()
            if self.replanner is not None:
                spec = self.replanner.hear(self.spec, self._live().stats(), self._connected())
                if spec:
                    self.go_on_by(spec)
            return good
        except BaseException as error:
            self._break_off(error)
            raise

    def look_at_accumulated(self) -> None:
        """Before a pass adds to shards, whose own hooks nobody calls."""
        self._accumulated.look()

    def refuse_accumulated(self) -> None:
        self._accumulated.refuse(name_of(self.spec))

    def count(self, good: bool) -> None:
        super().count(good)
        self._accumulated.given(good and (bool(self.momentum[0]) or self._directions is not None))

    def _break_off(self, error: BaseException) -> None:
        """After a failure, or Ctrl-C, this rank is out of step: the others are not left to wait for it."""
        if self._failure is None and not self.spec_is_dense:
            self._failure = error if isinstance(error, Error) else Error(f"an earlier step was broken off: {error!r}")
            self._leave()
            if self._reducer is not None:
                self._reducer.close()  # its threads write into gradients, whose owner has them again now

    def give_up(self) -> None:
        """Nobody has the module any more, in the midst of a pass: the library's threads write into no gradient of it now."""
        if self._reducer is not None and not self._reducer.closed:
            self._break_off(Error("the module was given up in the midst of a backward pass"))

    def _leave(self) -> None:
        if self._comm is not None and not self._comm.closed:
            self._comm.leave()

    def _look_at_ratio(self) -> None:
        if not self._expect_ratio:
            return
        counts = self._live().stats()
        if counts["steps"] - counts["steps_warmup"] < RATIO_IS_KNOWN or not counts["message_packet"]:
            return
        self._refuse_ratio(counts["message_fp32"] / counts["message_packet"])

    def _notice(self, optimiser: torch.optim.Optimizer) -> None:
        """An optimiser is about to step. The first that steps these parameters is theirs, and others may step some of them."""
        if self._knows(optimiser) or not _optimiser.steps_any_of(optimiser, [row.parameter for row in self._rows]):
            return
        if self._comm is not None:  # else nothing is exchanged, or torch does it, and all is left to the optimiser
            if adapts(self.spec):
                _adam.refuse_late(optimiser, self._rows, name_of(self.spec))
                self._refuse_unknown(optimiser, self.spec)
            self._settle(optimiser, self.spec, self.momentum)
        if self._optimiser is None:
            self._optimiser = optimiser
        else:
            self._others.add(optimiser)

    def _knows(self, optimiser: torch.optim.Optimizer) -> bool:
        return optimiser is self.inner_optimizer() or optimiser in self._others

    def _look_at_step(self, optimiser: torch.optim.Optimizer) -> None:
        """An optimiser has stepped. (In a closure that it is given, frameworks clip.)"""
        if self._knows(optimiser):
            self._accumulated.stepped(optimiser, [one for one in (self.inner_optimizer(), *self._others) if one is not None])
        if self._directions is not None and self._scale == 1 and optimiser is self.inner_optimizer():
            scheme = name_of(self.spec)
            clips = f", and write \"{scheme}:clip=1\" to clip gradients" if "clip" in defaults_of(scheme) else ""
            self._directions.refuse_shortened(scheme, clips)

    # Counts

    def stats(self) -> Dict[str, float]:
        """Steps, bytes and seconds since the scheme was made, as thinwire.h names them. `ratio` is how many times smaller
        this rank's messages are than fp32: those after the warm-up, and until one was sent what `ratio_traffic` is.
        `ratio_traffic` is how many times less than a ring all-reduce of fp32 this rank has sent, since the first step.
        What was measured at attach(): `measured_scheme` and `measured_dense`, seconds a step, and `fallback`: 1 where
        torch does the exchange for that reason, which counts its steps alone. Empty for the spec "allreduce"."""
        if self._comm is None:
            return {}
        measured = {"measured_scheme": self.costs.scheme, "measured_dense": self.costs.dense} if self.costs else {}
        if self._fallback:
            return {"fallback": 1, **measured, "steps": self._fallback.steps, "steps_skipped": self._fallback.skipped}
        counts = self._live().stats()
        return {"fallback": 0, **measured, **_counts.with_ratios(counts)}

    def summary(self) -> str:
        """The stats in a line."""
        if self._comm is None and self.alone:
            return f"thinwire {self.spec}: nothing was exchanged, by the only process"
        if self._comm is None:
            return f"thinwire {self.spec}: torch's own all-reduce"
        counts = self.stats()
        if self._fallback:
            return f"thinwire {self.spec}: {_counts.steps_of(counts)} by torch's own all-reduce, which is faster here"
        return _counts.in_a_line(self.spec, counts)

    def banner(self) -> str:
        """What is about to happen, in a line."""
        if self.alone:
            return f"thinwire {self.spec}: this is the only process, and so nothing is exchanged{self._left_to_nobody()}"
        if self._fallback:
            where = ", and all workers are on one machine, with no network between them" if self._on_one_machine else ""
            return (f"thinwire {self.spec}: NOTHING IS COMPRESSED, and torch's own all-reduce is taken: "
                    f"{self._costs_in_words()}{where}; to compress all the same, give attach() fallback=False or set "
                    "THINWIRE_FALLBACK=off")
        costs = f"; {self._costs_in_words()}" if self.costs else ""
        return _counts.what_happens(self.spec, self.plan(), sum(row.elements for row in self._rows), self.momentum[0]) + costs

    def _left_to_nobody(self) -> str:
        """Without a DistributedDataParallel nothing of the scheme is done."""
        if self._comm is not None or name_of(self.spec) == "allreduce":
            return ""
        comm, = Comm.threads(1)
        with comm, Reducer(comm, self.spec, [(row.name, row.shape) for row in self._rows]) as like:
            momentum = like.momentum[0]
        return f", nor is the momentum={momentum:g} of {name_of(self.spec)} applied" if momentum else ""

    def _costs_in_words(self) -> str:
        if self.costs is None:
            return "so it was when the state was saved"
        trainable = sum(row.elements for row in self._rows)
        return (f"the exchange of {trainable:,} trainable parameters takes {_counts.milliseconds(self.costs.scheme)} a step with "
                f"{name_of(self.spec)} here, and {_counts.milliseconds(self.costs.dense)} with torch's own all-reduce")

    # State

    def _about(self) -> Dict[str, Any]:
        comm = self._connected()
        return {"spec": self.spec, "rank": comm.rank, "size": comm.size, "order": orders_of(self._rows),
                "tensors": [row.name for row in self._rows], "fallback": self._fallback is not None}

    def state_dict(self) -> Dict[str, Any]:
        """All that the scheme remembers on this rank, between steps: tensors called ``"residual/conv1.weight"`` and the
        like, and a few texts and numbers. torch.load(weights_only=True) takes it. Each rank saves its own."""
        if self._comm is None:
            return {}
        return _state.to_dict((self._fallback or self._live()).state(), self._about())

    def inner_optimizer(self) -> Any:
        """Of these parameters, without a framework's wrapping; None while none is known."""
        return _optimiser.innermost(self._optimiser)

    @contextlib.contextmanager
    def moments_in_optimizer(self) -> Iterator[Any]:
        """The optimiser, which has a copy of the moments that the scheme has: a collective."""
        if self._comm is None or not self._adapts:
            yield _adam.owner(self.inner_optimizer())
            return
        inner = _adam.adamw(self.inner_optimizer(), name_of(self.spec))
        self._has_taken = False
        self._take_moments(self._live())
        with _adam.lent(inner, self._rows, _adam.moments_of(self._live(), self._group)):
            yield inner

    def optimizer_state_dict(self) -> Dict[str, Any]:
        """The optimizer's state_dict(), with what a scheme has of it that owns AdamW's moments: torch.optim.AdamW goes on
        with it, and so does thinwire.torch.AdamW, with any scheme. What the ranks held back is in the first moments, from
        which it is paid out. A collective, between steps, that changes nothing, but for moments that the optimizer has loaded
        since: the scheme takes them first, and drops what it held back. To go on as if nothing had happened
        save the optimizer's own state_dict() and state_dict() of this object instead."""
        with self.moments_in_optimizer() as inner:
            return inner.state_dict()

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        """Takes what state_dict() gave on the same rank of as many. The run then goes on bit for bit: compressed or by
        torch's own all-reduce, as the run did that saved it, whatever is faster here.

        A collective: all ranks load theirs, or none does. What is wrong with that of one rank is an Error on all."""
        if self._comm is None and not state:
            return
        if self._comm is None:
            raise Error(NOWHERE)

        def read() -> Loaded:
            _state.check(state, self._about())
            return Loaded(_state.is_of_fallback(state), _state.from_dict(state))

        with self._following(lambda: state):
            self._load(read)

    def load_state_dicts(self, states: Sequence[Optional[Dict[str, Any]]], *, forget_lost: bool = False) -> None:
        """Takes what another number of ranks has saved, as a collective: states[r] is what state_dict() gave on rank r of
        as many as there are, and asked for only where it is needed. The sum over all ranks of what they held back is
        kept. As many ranks as before have each what it had.

        None stands for what is lost with a machine. With forget_lost=True what was held back there is dropped, and the
        others go on; without it that is an Error."""
        if self._comm is None and not (len(states) and states[0]):
            return
        if self._comm is None:
            raise Error(NOWHERE)
        def whole(rank: int) -> Optional[Dict[str, Any]]:
            state = states[rank]
            if state is not None:
                _state.check(state, {**self._about(), "rank": rank, "size": len(states)})
            elif not forget_lost:
                raise Error(f"the state of rank {rank} of {len(states)} is lost; forget_lost=True goes on without it")
            return state

        def old(rank: int) -> Optional[Entries]:
            state = whole(rank)
            return None if state is None else _state.from_dict(state)

        def read() -> Loaded:
            about = self._about()
            own = whole(about["rank"]) if len(states) == about["size"] else None
            there = own or next(filter(None, map(whole, range(len(states)))), None)
            if there is None:
                raise Error(f"of the {len(states)} ranks before none has left a state", 9, "TW_ERROR_STATE")
            if own or _state.is_of_fallback(there):  # which is the same on all ranks, however many there are
                return Loaded(_state.is_of_fallback(there), _state.from_dict(there))
            tensors = [(row.name, row.shape) for row in self._rows]
            return Loaded(False, regrouped(self.spec, tensors, old, len(states), about["rank"], about["size"]))

        def nearest() -> Optional[Dict[str, Any]]:
            """A rank may have no other's than its own, and that may be lost."""
            about = self._about()
            own = states[about["rank"]] if len(states) == about["size"] else None
            return own or next((state for state in states if state is not None), None)

        with self._following(nearest):
            self._load(read)

    @contextlib.contextmanager
    def _following(self, first: Callable[[], Any]) -> Iterator[None]:
        """Around a load. A run of "auto" may have gone on by another scheme before it saved: that is the one to go on with,
        if the load takes the state; and else all is as it was. A collective."""
        specs = _transport.gathered_by_all(self._group, lambda: _state.spec_of(first())) if self.follows else [self.spec]
        if any(spec != specs[0] for spec in specs) or specs[0] == self.spec or not can_switch(specs[0]):
            yield  # what does not fit is for the load to refuse
            return
        before = self._of_scheme()
        try:
            if self._fallback is None:
                self._reducer = self._made(specs[0])
            self.spec = specs[0]
            yield
        except BaseException:
            if self._reducer is not None and self._reducer is not before["_reducer"]:
                self._reducer.close()
            self._go_back(before)
            raise
        if before["_reducer"] is not None and before["_reducer"] is not self._reducer:
            before["_reducer"].close()

    def _load(self, read: Callable[[], Loaded]) -> None:
        """All ranks take what read() gives, or none of them does."""
        mine: List[Loaded] = []

        def read_here() -> bool:
            if self._fallback is None:
                self._live()
            mine.append(read())
            if mine[0].of_fallback and not self._may_fall_back:
                raise Error("this state is of a run whose exchange torch did itself; attach() to a DistributedDataParallel "
                            "takes it, an Exchange does not")
            if mine[0].of_fallback and self._expect_ratio:
                raise Error(f"expect_ratio={self._expect_ratio:g}: this state is of a run whose exchange torch did itself")
            return mine[0].of_fallback

        _state.refuse_mixed(_transport.gathered_by_all(self._group, read_here))
        if mine[0].of_fallback:
            self._load_fallback(mine[0].entries)
        else:
            self._load_scheme(mine[0].entries)
        self.replanner = None

    def load_into(self, reducer: Reducer, entries: Entries) -> None:
        """The rates are in them, which may not be the optimiser's: those are told anew."""
        reducer.load_state(entries)
        self._rates = []

    def _load_fallback(self, entries: Entries) -> None:
        """What did not compress goes on without, and has the velocity of the means."""
        fallback = self._made_fallback()
        _transport.gathered_by_all(self._group, lambda: fallback.load_state(entries, self._rows))
        self._fallback = fallback
        if self._reducer is not None:
            self._reducer.close()
            self._reducer = None

    def _load_scheme(self, entries: Entries) -> None:
        """What compressed has something to send."""
        with contextlib.ExitStack() as unless_all_do:
            reducer = self._live() if self._fallback is None else self._made(self.spec)
            if self._fallback is None:
                unless_all_do.callback(reducer.load_state, reducer.state())
            else:
                unless_all_do.callback(reducer.close)
            _transport.gathered_by_all(self._group, lambda: self.load_into(reducer, entries))
            unless_all_do.pop_all()
        self._reducer, self._fallback = reducer, None

    # End

    def close(self) -> None:
        """Ends the scheme, and leaves the group. A backward pass after it is an error."""
        for stop in self._stop_watching:
            stop()
        self.end_unfit()
        self._accumulated.close()
        _optimiser.take_back(self._optimiser, self._keeper)
        self._take_back(self._others)
        _claims.release(self)
        for owned in [self._comm if self._owns_comm else None, self._reducer]:  # a step under way is given up with the group
            if owned is not None:
                owned.close()

    def end_unfit(self) -> None:
        """From now on another one may train what this one does not know."""
        if self.unfit is not None:
            self.unfit.close()


def announce(compressor: Any, rank: int) -> None:
    if rank == 0:
        show(compressor.banner())
