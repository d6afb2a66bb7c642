"""Many steps of each worker's own, and then one meeting: local updates."""

import ctypes
import enum
from typing import Any, Callable, Dict, Optional, Sequence

from . import _regroup, table
from ._library import OuterCounts, library
from ._owned import Owned
from .comm import Comm
from .errors import Error
from .spec import bytes_of, number, settings_of


class Event(enum.IntEnum):
    """What a step was: tw_outer_event."""

    NOTHING = 0
    STARTED = 1
    APPLIED = 2


class OuterLoop(Owned):
    """Each rank takes `every` steps of its own, and what they came to in the mean is an outer optimiser's gradient.

    To make one is a collective, as with a Reducer, and begin() is another. Weights are fp32, and come as the addresses
    of the tensors. theta are the shared weights, which have the same bits on all ranks. `thinwire.outers()` lists the
    methods.

    With a torch module in place of `comm` it is a `thinwire.torch.OuterLoop`, and takes what that takes."""

    def __new__(cls, comm: Any, *rest: Any, **more: Any) -> Any:
        if not hasattr(comm, "named_parameters"):
            return super().__new__(cls)
        from .torch import OuterLoop as OfModule
        return OfModule(comm, *rest, **more)

    def __init__(self, comm: Comm, spec: str, tensors: Sequence[table.Named]):
        named = table.table_of(tensors)
        comm.made(self, library.tw_outer_create, library.tw_outer_destroy, bytes_of(spec), named, len(tensors))
        self._comm, self.spec = comm, spec
        self._is_eager = settings_of(spec).get("eager") == "on"
        self.tensors = [(name, tuple(shape)) for name, shape in tensors]

    def begin(self, weights: Sequence[int]) -> None:
        """A collective: theta, and all ranks' weights, become rank 0's. After load_state both stay as they are."""
        self._comm.waited(lambda: self._call(library.tw_outer_begin, self._addresses(weights)))

    @property
    def is_due(self) -> bool:
        """Whether the next step looks at the weights: until then it takes any addresses, and waits for nobody."""
        return bool(self._call(library.tw_outer_is_due))

    @property
    def has_met(self) -> bool:
        """Whether the last step ended a round with all ranks, none of which finishes: they may then agree on something."""
        return bool(self._call(library.tw_outer_has_met))

    def step(self, weights: Sequence[int]) -> Event:
        """After each step of the optimiser. APPLIED: the weights have changed, of a fragment or of all."""
        event = ctypes.c_int()

        def act() -> None:
            self._call(library.tw_outer_step, self._addresses(weights), ctypes.byref(event))

        self._comm.waited(act) if self.is_due else act()
        if event.value != Event.NOTHING:
            self._goes_on = event.value == Event.STARTED or self._is_eager
        return Event(event.value)

    def set_weight(self, weight: float) -> None:
        """How much this rank's part counts in the rounds to come: 1 to begin with."""
        if not hasattr(weight, "__float__"):
            raise Error(f"a weight of {weight!r}; it must be 0, or a number from 1e-9 to 1e9")
        self._call(library.tw_outer_set_weight, weight)

    def show_moments(self, first: Optional[Sequence[int]], second: Optional[Sequence[int]]) -> None:
        """Before begin: where the optimiser's moments are, for specs with first_moment=N or second_moment=N. None: it
        has none. They stay there until finish."""
        self._call(library.tw_outer_show_moments, *(None if one is None else self._addresses(one)
                                                      for one in (first, second)))

    def read(self, shared: Sequence[int]) -> None:
        """Copies theta out, at any time after begin."""
        self._call(library.tw_outer_read, self._addresses(shared))

    def finish(self, weights: Sequence[int]) -> bool:
        """Ends the loop, as a collective: takes part in the others' rounds until all have come here, and the weights
        become theta. False: it is over, and the last steps are lost, since some rank's part or the sum was too large for
        the exchange."""
        whole = self._comm.waited(lambda: self._call(library.tw_outer_finish, self._addresses(weights)))
        self._goes_on = False
        return whole

    def plan(self) -> Dict[str, str]:
        """What carries each tensor."""
        return {name: self._call(library.tw_outer_plan, i).decode() for i, (name, _) in enumerate(self.tensors)}

    def stats(self) -> Dict[str, float]:
        """Steps, rounds, bytes and seconds since the loop was made: the fields of tw_outer_counts in thinwire.h."""
        return table.counts_of(library.tw_outer_stats, self, OuterCounts)

    def state(self) -> table.Entries:
        """All that the loop remembers but the weights. A round that is under way is waited for, as a collective."""
        return self._saved(library.tw_outer_save_state)

    def state_apart(self) -> table.Entries:
        """The same, with a place among any number of ranks, of which each keeps its own."""
        return self._saved(library.tw_outer_save_apart)

    def _saved(self, save: Callable) -> table.Entries:
        entries = self._comm.waited(lambda: table.saved(save, self))
        self._goes_on = False
        return entries

    def load_state(self, entries: table.Entries) -> None:
        """Takes what state() gave, before begin."""
        table.loaded(library.tw_outer_load_state, self, entries)

    def _addresses(self, weights: Sequence[int]) -> ctypes.Array:
        return table.addresses(weights, len(self.tensors))


def period_of(spec: str) -> int:
    """Steps from one round to the next."""
    settings = settings_of(spec)
    return int(number(settings["every"])) // int(number(settings.get("fragments", "1")))


def counted_after(past: Dict[str, float], now: Dict[str, float]) -> Dict[str, float]:
    """The sums of what loops of one run have counted; what is of a round is that of the last one."""
    return {**{name: past.get(name, 0) + now.get(name, 0) for name in {**past, **now}},
            **{name: now.get(name, 0.0) for name in ("cosine", "gain", "energy")}}


def regrouped(spec: str, tensors: Sequence[table.Named], old: table.OfRank, old_size: int, rank: int,
              size: int) -> table.Entries:
    """What rank `rank` of `size` goes on with where `old_size` ranks have saved their state(): old(r) is rank r's, or
    None where it is lost. Its weights begin at theta, which the caller sees to."""
    return _regroup.regrouped(library.tw_outer_regroup_state, spec, tensors, old, old_size, rank, size)


def rebased(spec: str, tensors: Sequence[table.Named], left: table.Entries, entered: table.Entries,
            weights: Sequence[int]) -> table.Entries:
    """`entered`, another's state, with what the exchange of this rank held back in `left`. The weights, which are some way from
    the theta in `left`, are taken as far from the one in there."""
    with table.State() as before, table.State() as now:
        before.put_all(left)
        now.put_all(entered)
        library.tw_outer_rebase(bytes_of(spec), table.table_of(tensors), len(tensors), b"", before.handle, now.handle,
                                table.addresses(weights, len(tensors)))
        return now.entries()
