"""OuterLoop: many steps of each worker's own, and then one meeting."""

import contextlib
import functools
import re
import time
import weakref
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple, Union

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from .. import outer as core
from .. import gossip_schemes, outers, schemes
from .._lines import show, tell
from .._owned import Closes
from .._warned import warn
from ..changing import ChangingLoop, refuse_unfit
from ..comm import Comm, refuse_no_numbers
from ..errors import Error, NonFinite, PeerError, SpecError
from ..members import Members
from ..seal import sealed
from ..planning import DOORS, UPDATES, WEIGHTS, bytes_sent, can_switch
from ..spec import adapts, name_of, number, number_of, options_of, settings_of
from ..table import Entry
from ..tcp import Tcp
from . import _alike, _auto, _buffers, _claims, _interrupted, _optimiser, _parameters, _passes, _state, _transport
from ._counts import Pace, amount, at_rate, counted, milliseconds, with_ratios
from ._interface import reached_by
from ._members import Part, Place
from ._moments import Moments, forget_unfinite
from ._parameters import is_shard, laid, local
from ._replan import ROUNDS, Replanner
from ._strays import Strays
from ._unshared import Unshared
from ._working import Working, rows_of
from .compressor import dtype_of
from .exchange import _exchanges
from .gossip import GossipDataParallel

OF_A_LOOP = "an OuterLoop"
MOST_WORKERS = 16384  # as of tw_tcp_join
MOST_FORETOLD = 16  # workers, who are played in about a second
FOLDER, WEB = "folder:", ("http://", "https://", "s3+http://", "s3+https://")  # what join= begins with where it is no HOST:PORT
BETWEEN_PROGRAMS = object()  # a group whose members are not known yet
_made: "weakref.WeakKeyDictionary[nn.Module, int]" = weakref.WeakKeyDictionary()  # how many OuterLoops were, for each


class OuterLoop(Closes):
    """Each worker takes steps of its own with any optimiser. Once in a while the workers exchange what these steps
    came to, and go on from shared weights: local SGD or AdamW (``"local:every=16"``), DiLoCo (``"diloco:every=50"``),
    or DiLoCo in fragments that travel while the workers go on (``"streaming:every=60"``).

        outer = thinwire.torch.OuterLoop(model, optimizer, "diloco:every=50")
        ...
            model(x)...backward()
            optimizer.step()            # every 50th of them is a round
        with outer.averaged():          # evaluate, or save the model
            ...
        outer.finish()                  # all ranks have the shared weights

    A collective: every rank of `group` makes one. With the first forward pass, or begin(), all have the weights and
    buffers of rank 0. Parameters that require a gradient travel, and others never do. The shared weights are fp32,
    whatever the parameters are.

    Programs that train on a machine each, and know nothing of each other, need no process group: `workers` of them give
    the same `join`, an address of the first one and a port, and each is a rank of its own:

        outer = thinwire.torch.OuterLoop(model, optimizer, "diloco:every=50", join="10.0.0.5:7000", workers=2)

    Without `workers` they may come and go: the first one opens a group, and others join it while it trains, at the address
    of any that is in it. When one of three or more is lost, the first one included, the others go on. See docs/pytorch.md:

        outer = thinwire.torch.OuterLoop(model, optimizer, "diloco:every=50", join="10.0.0.5:7000")

    join          "HOST:PORT", where the processes meet, or "folder:PATH", a folder that all see, or
                  "https://HOST/PATH", one on a web server, or "s3+https://HOST/BUCKET/PATH", these three with `workers` and
                  `rank`; instead of `group`. `transport` may be a Tcp with a key, and over a folder with a seal as well. Without
                  `workers` also several, "A:PORT,B:PORT": the first opens the group unless another of them answers
    workers       how many processes meet there; None: any number, which come and go
    rank          the number that this one takes among `workers`; None: any
    quorum        how many of those that come and go have to be there for the others to go on when some are lost; 0: more
                  than half
    optimizer     the one that has the parameters, or a list of several, of which the last one's steps are counted
    hook          True: the optimizer's steps are counted by a hook, which torch has from 2.0 on. False: you call step()
                  after each optimizer.step(). None: by a hook, where torch has it
    spec          a method of local updates, or "auto:steps=20000,pass_ms=120": see `attach`. Where the line becomes another
                  it goes on by another method at the end of a round, and the outer momentum begins anew
    banner        a line on stderr says where this worker meets the others, and one what is going to happen, of rank 0 alone where
                  `group` is torch's

    The other arguments are those of `attach`. An optimizer step that a GradScaler skips is not counted."""

    def __init__(self, model: nn.Module, optimizer: Any, spec: str, *, group: Any = None, join: Optional[str] = None,
                 workers: Optional[int] = None, rank: Optional[int] = None, quorum: int = 0,
                 transport: Union[str, Tcp, Comm] = "tcp", timeout: float = 60.0, patience: float = 1800.0,
                 hook: Optional[bool] = None, banner: bool = True):
        limits = _transport.Limits(timeout, patience)
        refuse_half_joined(group, join, workers, rank, quorum, transport)
        self._changes, asked = join is not None and workers is None, spec
        settled = _auto.Settled(spec)
        with contextlib.ExitStack() as unless_made:
            if join is not None:
                refuse_other_specs(spec, self._changes)  # before anybody is waited for
            if join is not None and workers is not None:
                refuse_no_module(model)
                for one in optimisers_in(optimizer) or [None]:
                    refuse_no_optimiser(one)
                group = transport = joined_group(join, workers, rank, transport, limits, banner)
                unless_made.callback(group.close)
            last = optimizer[-1] if isinstance(optimizer, (list, tuple)) and optimizer else optimizer
            if not self._changes:
                settled = _auto.settled(spec, unwrapped(model), lambda: rows_by_name(unwrapped(model)), last, UPDATES, group=group,
                                        transport=transport, limits=limits, banner=banner, inside=beside_in_shards(model))
            with _auto.naming_file(asked):
                self._make(model, optimizer, settled.spec, group, transport, limits, hook, join, quorum)
            unless_made.pop_all()
        if _auto.is_auto(asked):
            self._watch(settled, last, banner)
        self._owns_comm = self._comm is not transport or join is not None
        self._way = way_to(str(join)) if self._changes else group.way if isinstance(group, Comm) else ""
        self._has_banner, self._pace = banner, Pace(sends_early(settled.spec)) if banner else None
        if not self._changes:
            self._tell_banner()

    def _make(self, model: nn.Module, optimizer: Any, spec: str, group: Any, transport: Union[str, Tcp, Comm],
              limits: _transport.Limits, hook: Optional[bool], join: Optional[str], quorum: int) -> None:
        self._group, self._module = group, unwrapped(model)
        self._optimisers = optimisers_in(optimizer)

        def check() -> None:
            refuse_other_specs(spec, self._changes)
            refuse_other_models(model, BETWEEN_PROGRAMS if self._changes else group)
            self._sharded = _parameters.sharded_in(self._module)
            _parameters.reshard(self._sharded)
            self._rows = rows_by_name(self._module)
            for one in self._optimisers:
                refuse_no_optimiser(one)
            _claims.refuse_beside((_claims.GOSSIP, _claims.OUTER), self._rows)
            refuse_unknown(self._optimisers, self._rows)
            self._hooks = wants_hook(self._optimisers, hook)
            self._moments = Moments(self._rows, self._optimisers, spec)

        if self._changes:
            check()
        else:
            _transport.gathered_by_all(group, check)
            _parameters.refuse_unlike(_transport.gathered(group, self._subject(spec)))
        self._shares_gradients = shares_gradients(model)
        self._orders, self._working = _parameters.orders_of(self._rows), Working(self._rows, self._optimisers)
        warn_of_own_averages(self._optimisers, spec, self._changes)

        tensors = [(row.name, row.shape) for row in self._rows]

        self._comm: Union[Comm, ChangingLoop]
        self._loop: Union[core.OuterLoop, ChangingLoop]
        self._place = Place() if self._changes else None  # of members that come and go, for shard()
        self._gradient = (0, 0)  # likewise: a generation, and the checksum of the first gradient in it

        def made(comm: Comm) -> core.OuterLoop:
            self._comm = comm
            return core.OuterLoop(comm, spec, tensors)

        if self._changes:
            members = joined_members(str(join), "\n".join(self._subject(spec)), transport, quorum, limits)
            self._asked = f"{join}, for up to {limits.patience:g} seconds"
            self._loop = self._comm = ChangingLoop(members, spec, tensors, lambda: _buffers.entries(self._module),
                                                   lambda given: _buffers.take(self._module, given), self._compare_members)
        else:
            fixed = self._loop = _transport.with_comm(transport, group, limits, made)
            fixed.show_moments(*self._moments.addresses())
        self._begun = self._inside = self._finished = self._told_late = self._closed = False
        self._replanner: Optional[Replanner] = None  # of "auto"
        self._follows = False  # whether a state may be of another spec, which "auto" went on by
        self._past: Dict[str, float] = {}  # what was counted by specs before
        self._weight, self._rounds_before = 1.0, 0  # those of a state that was loaded, or of the group that let this one in
        self._saved: Optional[Dict[str, Any]] = None
        self._regrouped = False
        self._counted, self._hash, self._addresses = 0, 0, self._working.addresses()
        self._dropped = 0  # of stats(), when a round last changed the weights
        self._strays = Strays(self._rows, self._optimisers if self._hooks else self._optimisers[:-1], "there are no rounds",
                              "give the OuterLoop the optimizer that trains, or of several a list, of which the last one steps last"
                              if self._hooks else "call step() of the OuterLoop after each optimizer.step()")
        self._last_stats: Dict[str, float] = {}
        self._last_numbers = 0, 1
        before_fsdp = {"prepend": True} if self._sharded else {}  # which takes its weights in a hook of its own
        self._ends = [model.register_forward_pre_hook(lambda *what: self.begin(), **before_fsdp).remove]
        self._ends.append(_optimiser.at_each_step(self._notice))
        if self._hooks:
            self._ends.append(_optimiser.innermost(self._optimisers[-1]).register_step_post_hook(
                lambda *what: self._hear()).remove)
        _claims.claim(self, _claims.OUTER, self._rows)
        self._unshared = Unshared()
        self._at_the_end = weakref.finalize(self, self._unshared.tell)
        self._number = _made[self._module] = _made.get(self._module, 0) + 1

    def _watch(self, settled: _auto.Settled, optimizer: Any, banner: bool) -> None:
        """What was chosen in an earlier run stays; and groups of other shards would each judge by itself."""
        size, self._follows = self._comm.size, can_switch(settled.spec)
        if self._follows and settled.line is not None and size > 1 and not self._sharded:
            self._replanner = Replanner(settled.line, lambda line: settled.choose(self._rows, optimizer, UPDATES, size, line),
                                        self._comm.rank, banner, ROUNDS, lambda spec: self._weight in (0, 1) or not sends_early(spec))

    def _subject(self, spec: str) -> List[str]:
        """What has to be the same everywhere."""
        return [f"the spec {spec}", *map(described, self._rows), *_buffers.described(self._module)]

    @property
    def rank(self) -> int:
        """This worker's number, from 0. Where members come and go, this and `size` are those of the round, and begin(). After
        finish() both are those of the last round, so that one worker can save; after leave() it is alone."""
        return self._numbers()[0]

    @property
    def size(self) -> int:
        """How many workers there are."""
        return self._numbers()[1]

    def _numbers(self) -> Tuple[int, int]:
        if self._finished:
            return self._last_numbers
        if self._changes:
            self.begin()
        return self._comm.rank, self._comm.size

    def shard(self, dataset: Any) -> Any:
        """This worker's part of a dataset that has a length: of every `size` examples one, which no other worker has. Where
        members come and go, it is that of those who are there when an example is read. After finish() and leave() it is the
        part that this worker had last."""
        if self._place is not None:
            self.begin()
            return Part(dataset, self._place)
        return torch.utils.data.Subset(dataset, range(self.rank, len(dataset), self.size))

    def _keep_place(self) -> None:
        if self._place is not None:
            self._place.set(self._comm.rank, self._comm.size)

    @property
    def _is_apart(self) -> bool:
        """Whether this program has a terminal of its own, as one has that is started without torchrun."""
        return self._changes or isinstance(self._group, Comm)

    def _tell_serving(self) -> None:
        if self._tells and self._comm.size > 1:
            tell("this program has taken its last step, and serves the others' rounds until they have taken theirs")

    def _come_in(self) -> None:
        """To a group that changes, which makes no difference between its first generation and any other."""
        if self._has_banner and isinstance(self._loop, ChangingLoop) and not self._loop.opened:
            tell(f"asking to be let in at {self._asked}")
        try:
            self._loop.begin(self._working.addresses())
        except BaseException:
            self.close()
            raise
        self._working.give()
        self._begun = True
        self._keep_place()
        self._rounds_before = given_in(self.stats())
        self._ends[0]()
        self._tell_banner()

    @property
    def _tells(self) -> bool:
        return self._has_banner and (self._is_apart or self._comm.rank == 0)

    def _tell_banner(self) -> None:
        if self._tells:
            show(self.banner())

    # ---- the loop ----

    @property
    def has_come(self) -> bool:
        """Whether begin() is over: where members come and go, this program was let in."""
        return self._begun

    @_passes.never_compiled
    def begin(self) -> None:
        """A collective, which the first forward pass makes unless you do: all ranks have the weights and buffers of
        rank 0. After load_state_dict each rank keeps its own. Where members come and go, it waits to be let in."""
        if self._begun or self._finished:
            return
        _parameters.reshard(self._sharded)
        self._working.look()
        self._working.begin()
        if self._changes:
            self._come_in()
            return
        self._loop.begin(self._working.addresses())
        self._begun = True
        self._rounds_before = given_in(self.stats())
        self._ends[0]()
        if self._saved is not None:
            self._resume(self._saved)
        elif self._regrouped:
            self._loop.read(self._working.addresses())
            self._working.give()
        else:
            self._working.give()
            _buffers.spread(self._module, self._group)

    def _refuse_closed(self) -> None:
        if self._closed:
            raise Error("this OuterLoop was closed", 12, "TW_ERROR_ORDER")

    def step(self) -> bool:
        """After each optimizer.step(), where no hook counts these. True: a round has changed the weights."""
        if self._hooks:
            raise Error("the optimizer's own hook counts its steps; make the OuterLoop with hook=False to call step()")
        return self._count()

    def _hear(self) -> None:
        """Of a step that was taken. An optimizer that steps inside of a backward pass has that pass go on with the weights that it
        began with: a round would change them all."""
        if _passes.is_under_way():
            _passes.at_the_end(self._count, "the optimizer steps in", "step behind backward()")
        else:
            self._count()

    def _notice(self, optimiser: torch.optim.Optimizer) -> None:
        """An optimizer is about to step."""
        if self._begun:
            self._strays.notice(optimiser)

    def _count(self) -> bool:
        if self._begun and isinstance(self._loop, ChangingLoop):
            self._loop.has_stepped()
        self._strays.counted()
        if self._inside:
            raise Error("the optimizer has stepped inside averaged(), where the model has the shared weights; train "
                        "outside of it")
        if not self._begun:
            self._refuse_closed()
            raise Error("the optimizer has stepped before the first forward pass of the model that the OuterLoop was "
                        "made with; call begin() on all ranks before the first step")
        self._compare_gradients()
        if self._changes and not (self._gradient[0] == self.generation and self._gradient[1]):
            self._gradient = self.generation, self._first_gradient()
        self._counted += 1
        self._unshared.steps += 1
        if not self._loop.is_due:
            self._loop.step(self._addresses)
            return False
        _parameters.reshard(self._sharded)
        _parameters.refuse_newly_trained(self._module, self._rows, "OuterLoop")
        self._working.take()
        self._addresses = self._working.addresses()
        self._moments.take(stepped=True)
        before, begin = self._working.before(), time.monotonic()
        members = self._members()
        with self._giving_rounds():
            changed = self._loop.step(self._addresses) is core.Event.APPLIED
            self._tell_members(members)
            self._keep_place()
            if changed:
                self._unshared.steps = 0
                self._tell_pace(begin)
                self._working.give_changed(before)
                self._moments.give()
        if changed:
            self._heal_moments()
        return self._plan_again() or changed

    @contextlib.contextmanager
    def _giving_rounds(self) -> Iterator[None]:
        """Around what makes rounds and gives what they have come to. What comes behind one, such as Ctrl-C, finds the model as it
        is then."""
        try:
            yield
        except BaseException as error:
            if isinstance(self._loop, ChangingLoop) and self._loop.has_shared:
                self._unshared.steps = 0
            self._working.give()  # whatever the library has
            if isinstance(error, PeerError) and self._owns_comm and not self._changes:
                raise error.saying(f"{error}; averaged(buffers=False) still has the shared weights of the last round, to save them") from None
            raise

    def _members(self) -> Tuple[int, int]:
        """Which generation of the group it is, and how many are in it."""
        return self.generation, self._comm.size

    def _tell_members(self, before: Tuple[int, int]) -> None:
        """Unless it was told already: who is lost, the library tells, and who was left behind is told so."""
        size, loop = self._comm.size, self._loop
        if self._tells and self._members() != before and isinstance(loop, ChangingLoop) and loop.told != self.generation:
            why = f": {loop.broke}" if loop.broke else ""
            since = f"again{why}" if size == before[1] else f"now, and had {before[1]}"
            tell(f"the group has {size} member{'s' * (size > 1)} {since}")

    def _tell_pace(self, begin: float) -> None:
        if self._pace is None or not self._tells:
            return
        exchanged = self._loop.seconds_exchanged if isinstance(self._loop, ChangingLoop) else 0.0
        told = self._pace.heard(begin, time.monotonic(), self.stats()["bytes_sent"], self._members(), exchanged)
        if told:
            show(told)
            self._pace = None

    def _plan_again(self) -> bool:
        """Behind a round that all have made: goes on by another spec, if the line has become another. A collective."""
        loop, comm = self._loop, self._comm
        if self._replanner is None or not isinstance(loop, core.OuterLoop) or not isinstance(comm, Comm) or not loop.has_met:
            return False
        spec = self._replanner.hear(loop.spec, loop.stats(), comm, core.period_of(loop.spec))
        if spec:
            self._give_last()
            self._past = core.counted_after(self._past, loop.stats())
            self._loop = self._loop_by(spec, comm)
            self._loop.begin(self._working.addresses())
            loop.close()
        return bool(spec)

    def _loop_by(self, spec: str, comm: Comm) -> core.OuterLoop:
        """One that has not begun: a collective."""
        self._moments = Moments(self._rows, self._optimisers, spec)
        loop = core.OuterLoop(comm, spec, self._loop.tensors)
        loop.show_moments(*self._moments.addresses())
        loop.set_weight(self._weight)
        return loop

    def _compare_gradients(self) -> None:
        """Once, as a collective: with the first step, or at the end where there was none."""
        if not self._counted and isinstance(self._comm, Comm):
            _alike.tell_repeats(self._comm, self._first_gradient())

    def _first_gradient(self) -> int:
        return _alike.checksum([] if self._shares_gradients else [local(row.parameter.grad) for row in self._rows])

    def _compare_members(self, comm: Comm) -> None:
        """By the first gradient of each in this generation, behind a round that has given all the same weights."""
        generation, gradient = self._gradient
        _alike.tell_repeats(comm, gradient if generation == self.generation else 0)

    def _heal_moments(self) -> None:
        """Where weights held NaN, and are the shared ones now, moments that do would spoil them again."""
        dropped, self._dropped = self._dropped, int(self.stats()["offers_dropped"])
        if self._dropped > dropped:
            forget_unfinite(self._optimisers, self._rows)
            self._working.give()  # where it forgot a copy of the weights

    def set_weight(self, weight: float) -> None:
        """How much this rank's part counts beside the others' in the rounds to come, such as its share of the tokens.
        1 to begin with; 0: it gives nothing."""
        self._loop.set_weight(weight)
        self._weight = weight

    def finish(self) -> None:
        """Ends the loop, as a collective: the last steps are given, the others' rounds are taken part in until all
        ranks have come here, and the model has the shared weights and the mean of the buffers. A rank that has no more
        batches calls it while others go on. NonFinite: some rank's last steps were too large for the exchange."""
        if self._finished:
            return
        self._at_the_end.detach()
        self._refuse_inside("finish()")
        self.begin()
        self._refuse_uncounted()
        self._compare_gradients()
        _optimiser.Modes(self._optimisers).evaluate()  # what they evaluate with becomes the mean, and not what each would make of it
        self._tell_serving()
        good = self._give_last()
        self._keep_place()
        if not self._changes:
            _buffers.average(self._module, self._group)
        place = self.address
        self._end()
        if place and not self._last_stats["bytes_sent"]:
            warn(f"nobody else has come to {place}: this program has trained alone, and nothing was exchanged")
        if not good:
            raise NonFinite("the last steps are lost: some rank's part, or the sum, was too large for the exchange", 13, "TW_SKIPPED")

    def _give_last(self) -> bool:
        """The last steps, as a collective; the model has the shared weights."""
        self._working.take()
        self._moments.take(stepped=self._counted > 0)
        with self._giving_rounds():
            good = self._loop.finish(self._working.addresses())
        self._working.give()
        self._moments.give()
        return good

    def leave(self) -> None:
        """Of a group that members may leave: the last steps are given to its next round, the others go on, and the model
        has the shared weights. It takes until the others have come to their round after that."""
        if not isinstance(self._loop, ChangingLoop):
            raise Error("leave() is for groups whose members come and go, which join= without workers= makes; here finish() "
                        "waits for the others")
        self._refuse_inside("leave()")
        self._refuse_uncounted()
        self._leave(self._loop)

    def _leave(self, loop: ChangingLoop) -> None:
        self._at_the_end.detach()
        if not loop.is_over:
            _optimiser.Modes(self._optimisers).evaluate()
            self._working.take()
            with self._giving_rounds():
                loop.leave(self._working.addresses())
        self._working.give()
        self._end()

    def _end(self) -> None:
        """The model has the shared weights for good."""
        self._hash = _alike.checksum(map(laid, self._rows))
        self._last_stats, self._last_numbers, self._finished = self.stats(), self._numbers(), True
        self.close()
        if self._last_numbers[1] > 1:
            self._ends = [_optimiser.at_each_step(self._notice_late)]

    def _notice_late(self, optimiser: torch.optim.Optimizer) -> None:
        """An optimizer is about to step after the end, and the model has no other loop since. It is told once."""
        trains = not self._told_late and _optimiser.steps_any_of(optimiser, [row.parameter for row in self._rows])
        if trains and _made[self._module] == self._number:
            self._told_late = True
            warn(f"{type(optimiser).__name__} steps behind the end of the OuterLoop, and the workers' weights differ from here on: to "
                 "train on together make another OuterLoop before that, and else close() this one")

    @property
    def hash(self) -> str:
        """Of the shared weights, as parameters of the model's type have them: after a round it is the same on all workers."""
        if not self._finished:
            self.begin()
            self._hash = _alike.checksum(one.to(row.parameter.dtype) for row, one in zip(self._rows, self._shared()))
        return f"{self._hash:08x}"

    @property
    def address(self) -> str:
        """Where newcomers may join this worker's group, if members come and go."""
        return self._loop.address if isinstance(self._loop, ChangingLoop) else ""

    @property
    def generation(self) -> int:
        """Of a group whose members come and go, how often they have changed; else 0."""
        return self._loop.generation if isinstance(self._loop, ChangingLoop) else 0

    @contextlib.contextmanager
    def averaged(self, buffers: bool = True) -> Iterator[nn.Module]:
        """The model with the shared weights in it, to evaluate and to save; afterwards each rank has its own again.

        A collective if the model has floating-point buffers, of which it has the mean: no rank may be in finish() then.
        With ``buffers=False`` they stay this rank's, and one rank may do it alone, also where it has lost the others."""
        if self._finished:
            yield self._module
            return
        self._refuse_inside("averaged()")
        self.begin()
        self._refuse_uncounted()
        buffers = buffers and not self._changes
        there = list(_buffers.floating(self._module).values()) if buffers else []
        means = _buffers.means(self._module, self._group) if buffers else []
        shared, own, own_buffers = self._shared(), [], [buffer.detach().clone() for buffer in there]
        modes = _optimiser.Modes(self._optimisers)
        try:
            try:
                self._inside = True
                own += [laid(row).clone() for row in self._rows] if modes else []  # Ctrl-C may come while they swap weights
                modes.train()
                for row in self._rows:  # one copy of the weights at a time: the other's room goes
                    own += [] if modes else [laid(row).clone()]
                    laid(row).copy_(shared.pop(0))
                modes.back()
                for buffer, mean in zip(there, means):
                    _buffers.put(buffer, mean)
                yield self._module
            finally:
                self._put_own(own, there, own_buffers, modes)
        finally:
            if self._inside:  # Ctrl-C came in there
                self._put_own(own, there, own_buffers, modes)

    def _put_own(self, own: List[torch.Tensor], buffers: List[torch.Tensor], values: List[torch.Tensor], modes: _optimiser.Modes) -> None:
        _parameters.reshard(self._sharded)
        modes.train()  # wherever they were left inside
        modes.back()
        for row, weights in zip(self._rows, own):
            laid(row).copy_(weights)
        for buffer, value in zip(buffers, values):
            _buffers.put(buffer, value)
        self._inside = False

    def _shared(self) -> List[torch.Tensor]:
        shared = [torch.empty(row.shape, device="cpu") for row in self._rows]
        self._loop.read([one.data_ptr() for one in shared])
        return shared

    def _refuse_inside(self, what: str) -> None:
        if self._inside:
            raise Error(f"{what} inside averaged(), where the model has the shared weights; call it outside")

    def _refuse_uncounted(self) -> None:
        """Steps that nobody told of would be lost without a word."""
        _parameters.reshard(self._sharded)  # the whole ones are other parameters
        _parameters.refuse_newly_trained(self._module, self._rows, "OuterLoop")
        for row, shared in zip(self._rows, [] if self._counted or self._saved is not None else self._shared()):
            if not torch.equal(laid(row).to("cpu"), shared.to(row.parameter.dtype)):
                self._strays.refuse_changed(row.name, "the OuterLoop")
        self._strays.refuse("the OuterLoop")

    # ---- saving ----

    def state_dict(self) -> Dict[str, Any]:
        """What this rank's loop remembers: the shared weights, their momentum, where in its round it is. Each rank
        saves its own, beside its own model and optimizer. All ranks do so after the same step: a round that is under way is
        waited for. Where members come and go, each may do so at any time: it is as the last round has left it."""
        self._refuse_inside("state_dict()")
        self.begin()
        self._refuse_uncounted()
        about = self._about() if self._changes else {**self._about(), **self._working.state()}
        return _state.to_dict(self._loop.state(), about)

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        """Takes that, on all ranks, before the first forward pass. The model and the optimizer are loaded before or
        after. Where members come and go, the one that opens the group goes on from its state's shared weights, and those who
        join have them from it."""
        self._refuse_begun()
        if isinstance(self._loop, ChangingLoop):
            whose = {key: state.get(_state.ABOUT + key) for key in ("rank", "size")} if isinstance(state, dict) else {}
            _state.check(state, {**self._about(), **whose}, OF_A_LOOP)
            self._loop.load_state(_state.from_dict(state))
            return
        with self._following(state):
            _state.check(state, self._about(), OF_A_LOOP)
            saved = {key: state.get(_state.ABOUT + key) for key in ("working", "seen", "weights")}
            self._working.refuse_others(saved)
            self._loop.load_state(_state.from_dict(state))
        self._saved, self._regrouped = saved, False

    def load_state_dicts(self, states: Sequence[Optional[Dict[str, Any]]]) -> None:
        """Takes what another number of ranks has saved, before the first forward pass: states[r] is rank r's, or None
        where it is lost. All ranks begin with the shared weights."""
        self._refuse_begun()
        if not isinstance(self._loop, core.OuterLoop):
            raise Error("load_state_dicts is for workers=N; where members come and go, each loads its own with load_state_dict, "
                        "and any number of them goes on")

        def old(rank: int) -> Optional[Dict[str, Entry]]:
            state = states[rank]
            if state is None:
                return None
            _state.check(state, {**self._about(), "rank": rank, "size": len(states)}, OF_A_LOOP)
            return _state.from_dict(state)

        with self._following(next((state for state in states if state is not None), None)):
            self._loop.load_state(core.regrouped(self._loop.spec, self._loop.tensors, old, len(states), self._comm.rank,
                                                 self._comm.size))
        self._saved, self._regrouped = None, True

    @contextlib.contextmanager
    def _following(self, state: Any) -> Iterator[None]:
        """Around a load. A run of "auto" may have gone on by another spec before it saved: that is the one to go on with, if
        the load takes the state, and else all is as it was. A collective of such runs; who goes on watches no longer."""
        before, comm = (self._loop, self._moments), self._comm
        try:
            if self._follows and isinstance(comm, Comm):
                specs = _transport.gathered_by_all(comm, lambda: _state.spec_of(state))
                if all(one == specs[0] for one in specs) and specs[0] != self._loop.spec and can_go_on_by(specs[0]):
                    self._loop = self._loop_by(specs[0], comm)
            yield
        except BaseException:
            if self._loop is not before[0]:
                self._loop.close()
            self._loop, self._moments = before
            raise
        if self._loop is not before[0]:
            before[0].close()
        self._replanner = None

    def _refuse_begun(self) -> None:
        if self._begun:
            raise Error("the OuterLoop has begun; load its state before the first forward pass of the model", 12,
                        "TW_ERROR_ORDER")

    def _resume(self, saved: Dict[str, Any]) -> None:
        self._working.load(saved)
        name = self._working.first_unlike(saved["weights"])
        if name:
            warn(f"rank {self._comm.rank}: {name} is not what it was when this state was saved; load the checkpoint of the model "
                 "that this rank saved with it, and the run goes on as if it had not stopped")

    def _about(self) -> Dict[str, Any]:
        return {"spec": self._loop.spec, "rank": self._comm.rank, "size": self._comm.size, "order": self._orders,
                "tensors": [row.name for row in self._rows]}

    def trained(self) -> Dict[str, torch.Tensor]:
        """The parameters whose mean is taken, by name: those that required a gradient when this was made."""
        return {row.name: row.parameter for row in self._rows}

    # ---- telling ----

    def plan(self) -> Dict[str, str]:
        """What carries each parameter."""
        return self._loop.plan()

    def stats(self) -> Dict[str, float]:
        """Steps, rounds, bytes and seconds, as tw_outer_counts in thinwire.h names them; `ratio`, how many times
        smaller than fp32 what was given is, and `ratio_traffic`, how many times less was sent than by an all-reduce in each
        step. `cosine`, of the last round's mean with the one before: negative in many rounds, outer_lr is too large.

        `rounds` are the group's, those before this program came and of a state that was loaded included, and
        `rounds_given` those since this program came in which somebody gave something."""
        if self._finished:
            return dict(self._last_stats)
        counts = with_ratios(core.counted_after(self._past, self._loop.stats()))
        return {**counts, "rounds_given": given_in(counts) - self._rounds_before}

    def summary(self) -> str:
        """Of this process: what came before it, of a state that was loaded, is left out. Its rounds are `rounds_given` of
        stats(), and where the group has made others as well, it says how many: `rounds` less those that are empty."""
        counts = self.stats()
        rounds, all_of_them = int(counts["rounds_given"]), given_in(counts)
        among = f" of the group's {all_of_them}" if all_of_them != rounds else ""
        return (f"thinwire {self._loop.spec}: {counted(counts['steps'])}, {rounds} round{'s' * (rounds != 1)}{among}, "
                f"{amount(counts['bytes_sent'])} sent instead of {amount(counts['bytes_dense'])}, waited "
                f"{milliseconds(counts['seconds_wait'] / max(1, rounds))} a round{f', with weights {self.hash}' if self._finished else ''}")

    def banner(self) -> str:
        settings, size = settings_of(self._loop.spec), self._comm.size
        elements = sum(row.elements for row in self._rows)
        every, fragments = int(number(settings["every"])), int(number(settings.get("fragments", "1")))
        sent = 8 * elements * (size - 1) / size if size > 1 else 4 * elements
        parts = f", in {fragments} parts one after the other" if fragments > 1 else ""
        counted = "" if self._hooks else "; call step() after each optimizer.step()"
        if isinstance(self._loop, ChangingLoop):
            counted += f"; it {'opened' if self._loop.opened else 'joined'} a group that others may join at {self.address}"
            rate = at_rate(*self._loop.fetched)
            counted += f", and was given {amount(self._loop.fetched[0])}{rate}" if rate else ""
        way = f", through {self._way}" if self._way else ""
        takes = self._told_of_bytes(sent, max(2, size), way)
        if size == 1:
            takes = f"of nothing while it is alone, and with a second one {takes}"
        return (f"thinwire {self._loop.spec}: {elements:,} weights in {len(self._rows)} tensors on {size} rank{'s' * (size > 1)}; a "
                f"round every {every} steps of the optimizer{parts}, {takes}{counted}")

    def _told_of_bytes(self, dense: float, size: int, way: str) -> str:
        """Of a round. What it sends is foretold where the exchange compresses, and that takes long for many."""
        settings, whole, sent = settings_of(self._loop.spec), amount(dense), 0.0
        exchange = name_of(settings["exchange"])
        if exchange != "allreduce" and size <= MOST_FORETOLD:
            with contextlib.suppress(Error):
                sent = number(settings["every"]) * bytes_sent(self._loop.tensors, self._loop.spec, size)
        if sent:
            return (f"of about {amount(sent)} from each rank{way}, to which {exchange} compresses the {whole} that the gradients of one "
                    "step would take")
        packs = "" if exchange == "allreduce" else f" before {exchange} compresses it"
        return f"of {whole} from each rank{packs}{way}, which is what the gradients of one step would take"

    def __exit__(self, *what: object) -> None:
        self.close_after(what[1])

    def close_after(self, end: object) -> None:
        """Closes it behind an exception. Where that is Ctrl-C or an exit, it leaves a group that members may leave, and tells
        what it has done."""
        if _interrupted.is_asked_for(end) and self._begun and not self._finished and self._unshared.is_here:
            if isinstance(self._loop, ChangingLoop) and self._loop.is_over:
                self._leave(self._loop)
            elif isinstance(self._loop, ChangingLoop):
                _interrupted.hand_over(functools.partial(self._leave, self._loop))
            elif self._has_banner and self._unshared.steps:
                tell(f"the {counted(self._unshared.steps)} behind the last round went to nobody")
            if self._has_banner:
                show(self.summary())
        self.close()

    def close(self) -> None:
        """Leaves the others. Before finish() they get a PeerError. Any thread may call it, and a log handler: a round that waits on
        another thread then ends with an Error, unless the comm is the program's own, which close() of that one ends."""
        self._closed = True
        self._at_the_end.detach()
        for end in self._ends:
            end()
        self._ends = []
        _claims.release(self)
        if self._owns_comm:
            self._comm.close()  # and the loop before it, whose round under way is given up
        self._loop.close()


# ---- a group of programs that know nothing of each other ----


def refuse_half_joined(group: Any, join: Optional[str], workers: Optional[int], rank: Optional[int], quorum: int,
                       transport: Any) -> None:
    if join is None and workers is not None:
        raise Error("workers= is how many processes meet, and join= where: give join=\"HOST:PORT\" with it")
    if isinstance(join, str) and is_in_folder(join) and workers is None:
        raise lacks_numbers(join)
    if workers is None and rank is not None:
        raise Error("rank= is a number among workers=N; where members come and go, each has the next that is free")
    if quorum and (join is None or workers is not None):
        raise Error("quorum= is for a group whose members come and go, which join= without workers= makes")
    if join is not None and not isinstance(join, str):
        raise Error(f'join={join!r}: want a text, "HOST:PORT", "folder:PATH" or "https://HOST/PATH"')
    refuse_no_numbers(**{name: one for name, one in (("workers", workers), ("rank", rank), ("quorum", quorum)) if one is not None})
    if workers is not None and not 1 <= workers <= MOST_WORKERS:
        raise Error(f"workers={workers}: want how many processes meet, 1 to {MOST_WORKERS}")
    if join is None:
        if group is None and not (dist.is_available() and dist.is_initialized()):
            raise Error("there is no process group: call torch.distributed.init_process_group() first, or give "
                        'join="HOST:PORT", workers=N to meet other programs')
        return
    if group is not None or not (transport == "tcp" or isinstance(transport, Tcp)):
        raise Error("join= makes a group of its own, over TCP: give neither group= nor another transport= with it")


def lacks_numbers(join: str) -> Error:
    return Error(f"join={without_secrets(join)!r} needs workers= and rank=: how many processes there are, and for each another number from 0 on")


def joined_members(join: str, subject: str, transport: Union[str, Tcp, Comm], quorum: int, limits: _transport.Limits) -> Members:
    limits.refuse_wrong()
    tcp = transport if isinstance(transport, Tcp) else Tcp()
    return Members(join, subject, tcp, quorum, limits.timeout, limits.patience)


def joined_group(join: str, workers: int, rank: Optional[int], transport: Union[str, Tcp, Comm],
                 limits: _transport.Limits, banner: bool = True) -> Comm:
    """`banner`: a line tells of the wait, when the call was looked at."""
    def waits() -> None:
        if banner:
            tell(f"meeting {workers} worker{'s' * (workers != 1)} at {without_secrets(join)}, for up to {limits.patience:g} seconds")

    limits.refuse_wrong()
    tcp = transport if isinstance(transport, Tcp) else Tcp()
    if is_in_folder(join):
        comm = joined_in_folder(join, workers, rank, tcp, limits, waits)
    else:
        comm = tcp.join(join, workers, -1 if rank is None else rank, limits.patience, waits)
    limits.set_on(comm)
    comm.way = way_to(join)
    return comm


def way_to(join: str) -> str:
    """By which interface, as far as it is known."""
    return "" if is_in_folder(join) else reached_by(join)


def is_in_folder(join: str) -> bool:
    return join.startswith((FOLDER, *WEB))


def without_secrets(join: str) -> str:
    """As a person may see it: what is before the host and behind the path of a URL may be a password."""
    return re.sub(r"[?].*", "", re.sub(r"://.*@", "://", join)) if "://" in join else join


def joined_in_folder(join: str, workers: int, rank: Optional[int], tcp: Tcp, limits: _transport.Limits,
                     waits: Callable[[], object]) -> Comm:
    if rank is None:
        raise lacks_numbers(join)
    if tcp.seal != bool(tcp.key):
        raise Error("a folder lets everybody in who may write there: what keeps others out is Tcp(key=..., seal=True)")
    comm = Comm.folder(join[len(FOLDER):] if join.startswith(FOLDER) else join, workers, rank, limits.patience, waits)
    return sealed(comm, tcp.key) if tcp.seal else comm


def given_in(counts: Dict[str, float]) -> int:
    """Rounds. Who meets to be let in, or to end, gives nothing."""
    return int(counts["rounds"] - counts["rounds_empty"])


# ---- what is refused ----


def unwrapped(model: Any) -> Any:
    """The module itself, of a compiled one and of one in a DistributedDataParallel."""
    while True:
        inside = getattr(model, "_orig_mod", model)
        inside = inside.module if isinstance(inside, DistributedDataParallel) else inside
        if inside is model:
            return model
        model = inside


def beside_in_shards(model: Any) -> Any:
    """The process group of the ranks that have the other shards of the model; None, where it is whole."""
    if not isinstance(model, nn.Module):
        return None
    _parameters.reshard(_parameters.sharded_in(model))
    meshes = [parameter.device_mesh for parameter in model.parameters() if is_shard(parameter)]
    largest = max(meshes, key=lambda mesh: mesh.size(), default=None)
    return largest.get_group() if largest is not None and largest.ndim == 1 and largest.size() > 1 else None


def refuse_other_specs(spec: str, changes: bool) -> None:
    """Where nobody else is there yet. Only the group can tell whether per_host divides it, and only the model has the
    tensors that dense and rates name. `changes`: its members come and go."""
    methods = [name for name, _ in outers()]
    if _auto.is_auto(spec):
        if changes:
            raise _auto.refuse("it plans for a number of workers over their line, and who opens a group is alone: give workers=N, or "
                               "launch --workers N, or name a spec, such as the one that thinwire.plan(..., workers=N) chooses for as many as you expect")
        _auto.wishes(spec)
        return
    if name_of(spec) in methods:
        if not {"per_host", "dense", "rates"} & set(options_of(spec)):
            with Comm.threads(1)[0] as alone:
                core.OuterLoop(alone, spec, [("weight", (1,))]).close()
        if changes:
            refuse_unfit(spec)
        return
    if name_of(spec) in dict(gossip_schemes()):
        raise SpecError(f"{name_of(spec)} is no method of local updates; write {DOORS[WEIGHTS].format(spec)}", 2, "TW_ERROR_SPEC")
    text = f"{name_of(spec)} is no method of local updates; there are {', '.join(methods)}"
    if name_of(spec) in dict(schemes()) and not adapts(name_of(spec)):
        carried = f"diloco:exchange={name_of(spec)}" + (",momentum=0" if number_of(name_of(spec), "momentum") else "")
        text += f", and {name_of(spec)} may carry what they exchange: \"{carried}\""
    raise SpecError(text, 2, "TW_ERROR_SPEC")


def rows_by_name(module: nn.Module) -> List[_parameters.Row]:
    """Programs of unlike versions may make one model in unlike orders."""
    return sorted(rows_of(module, "OuterLoop", shards=True), key=lambda row: row.name)


def members(group: Any) -> List[int]:
    if group is None:
        return list(range(dist.get_world_size()))
    return [dist.get_global_rank(group, rank) for rank in range(dist.get_world_size(group))]


def averages_all(of_gradients: Any, group: Any) -> bool:
    """Whether all ranks of `group` have the mean gradient of all of them in every step."""
    if group is BETWEEN_PROGRAMS:
        return False
    if isinstance(group, Comm):  # torch's own groups lie inside the machines: one of as many ranks is this one once more
        return 1 < group.size <= len(members(of_gradients))
    return len(members(group)) > 1 and set(members(group)) <= set(members(of_gradients))


def shares_gradients(model: Any) -> bool:
    """With other ranks of its machine, which have the same by design."""
    ddp, exchange = getattr(model, "_orig_mod", model), _exchanges.get(unwrapped(model))
    groups = [ddp.process_group] if isinstance(ddp, DistributedDataParallel) else []
    groups += [exchange.compressor._group] if exchange else []
    return any(len(members(group)) > 1 for group in groups)


def is_in_shards(model: nn.Module) -> bool:
    return any(is_shard(parameter) and parameter.device_mesh.size() > 1 for parameter in model.parameters())


def refuse_no_module(model: Any) -> None:
    if not isinstance(model, nn.Module):
        raise Error(f"OuterLoop takes the module that is trained, and {type(model).__name__} is none")


def refuse_other_models(model: Any, group: Any) -> None:
    refuse_no_module(model)
    ddp = getattr(model, "_orig_mod", model)
    exchange = _exchanges.get(unwrapped(model))
    if isinstance(ddp, DistributedDataParallel) and averages_all(ddp.process_group, group):
        raise Error("this DistributedDataParallel averages the gradients of all ranks in every step, so that no step is "
                    "a rank's own; give OuterLoop the module itself, give DDP the process group of one machine and let all ranks of "
                    "all machines meet, with per_host=N in the spec, or start each program with join= by itself, without torchrun")
    if exchange and averages_all(exchange.compressor._group, group):
        raise Error("this module has an Exchange, which averages the gradients of all ranks in every step, so that no "
                    "step is a rank's own; close() it before making an OuterLoop")
    if group is BETWEEN_PROGRAMS and (shares_gradients(model) or is_in_shards(model)):
        raise Error("several processes of this machine train one model together, none of which takes a step before all are let in: give "
                    "workers=N, how many processes there are on all machines; who comes and goes is a program of one process")
    for part in model.modules():
        if isinstance(part, GossipDataParallel):
            raise Error("GossipDataParallel averages weights itself; give OuterLoop the module that it wraps")
        if type(part).__name__ == "FullyShardedDataParallel":
            raise Error("FullyShardedDataParallel has shards of the parameters, and OuterLoop takes whole ones, or those of "
                        "fully_shard; make it for a module without FullyShardedDataParallel")
    for name, parameter in model.named_parameters():
        if is_shard(parameter) and is_sharded_over(parameter, group):
            raise Error(f"{name} is sharded over several ranks of this group, of which none has what another has: give OuterLoop "
                        "the group of those that have the same shard, such as mesh[\"site\"].get_group()")


def sends_early(spec: str) -> bool:
    """Before it is known how much the others' parts count, so that all count alike."""
    settings = settings_of(spec)
    return settings.get("delay", "0") != "0" or settings.get("eager", "off") != "off"


def can_go_on_by(spec: str) -> bool:
    """Of what a state says."""
    return bool(spec) and name_of(spec) in dict(outers()) and can_switch(spec)


def is_sharded_over(parameter: Any, group: Any) -> bool:
    """Groups that are no torch's have members whose numbers torch does not know; `described` tells their shards apart."""
    if group is BETWEEN_PROGRAMS or isinstance(group, Comm):
        return False
    return len(set(members(group)) & set(parameter.device_mesh.mesh.flatten().tolist())) > 1


def described(row: _parameters.Row) -> str:
    whole = f"the parameter {row.name} of {row.shape} in {dtype_of(row.parameter)}"
    if not is_shard(row.parameter):
        return whole
    mesh = row.parameter.device_mesh
    return f"{whole}, shard {mesh.get_local_rank()} of {mesh.size()}"


def optimisers_in(optimizer: Any) -> List[Any]:
    return list(optimizer) if isinstance(optimizer, (list, tuple)) else [optimizer]


def refuse_no_optimiser(optimiser: Any) -> None:
    if optimiser is None:
        raise Error("optimizer=None: OuterLoop needs the optimizer, whose steps it counts")
    _optimiser.refuse_others(optimiser)


def refuse_unknown(optimisers: List[Any], rows: List[_parameters.Row]) -> None:
    known = {id(p) for optimiser in optimisers for group in optimiser.param_groups for p in group["params"]}
    for row in rows:
        if id(row.parameter) not in known:
            raise Error(f"the optimizer does not have {row.name}, which requires a gradient; give it to the optimizer, "
                        "or freeze it with requires_grad_(False)")


def warn_of_own_averages(optimisers: List[Any], spec: str, changes: bool) -> None:
    """What such an optimizer evaluates with is made from the model's weights and from what it keeps of each of its own steps."""
    for one in map(_optimiser.innermost, optimisers):
        if _optimiser.trains(one) is not None and number(settings_of(spec).get("first_moment", "0")) == 0:
            right = "" if changes else ": write first_moment=1 into the spec, and the workers share it in each round"
            warn(f"{type(one).__name__} evaluates with an average that each worker takes for itself, until finish(){right}")


def wants_hook(optimisers: List[Any], hook: Optional[bool]) -> bool:
    can = hasattr(_optimiser.innermost(optimisers[-1]) if optimisers else None, "register_step_post_hook")
    if hook and not can:
        raise Error(f"hook=True: torch {torch.__version__} has no hooks after an optimizer's step; give hook=False, "
                    "and call step() of the OuterLoop after each optimizer.step()")
    return can if hook is None else bool(hook)
