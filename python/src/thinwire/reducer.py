"""Agreement on gradients: all ranks take the same step."""

import ctypes
import functools
from typing import Container, Dict, Optional, Sequence, Set, Tuple

from . import _regroup, table
from ._library import Gradient, ReducerCounts, library
from ._owned import Owned
from .comm import Comm
from .spec import bytes_of, options_of

SIGNALS_ARE_HEEDED = 0.1  # seconds apart


class Reducer(Owned):
    """Gradients go in as they become ready, and their mean over the ranks comes out in the same memory.

    To make one is a collective: every rank of `comm` does, with the same spec and the same tensors, which are
    (name, shape). `thinwire.schemes()` lists the schemes a spec may name."""

    def __init__(self, comm: Comm, spec: str, tensors: Sequence[table.Named]):
        named = table.table_of(tensors)
        comm.made(self, library.tw_reducer_create, library.tw_reducer_destroy, bytes_of(spec), named, len(tensors))
        self._comm, self.spec = comm, spec
        self.tensors = [(name, tuple(shape)) for name, shape in tensors]

    def submit(self, index: int, address: int, dtype: str = "float32", absent: bool = False) -> None:
        """Hands over the gradient of tensor `index`, which lies at `address`; wait() gives back the mean there.

        `dtype` is "float32", "float16", "bfloat16" or "float64". `absent`: this rank has no gradient of it in this
        step; it adds nothing, what it remembers stays as it is, and it receives the mean all the same."""
        self._goes_on = True
        if dtype == "float32" and not absent:
            self._call(library.tw_reducer_submit, index, address)
            return
        gradient = Gradient(struct_size=ctypes.sizeof(Gradient), data=address, dtype=table.DTYPES.index(dtype),
                            absent=absent)
        self._call(library.tw_reducer_submit_with, index, ctypes.byref(gradient))

    def submit_all(self, indices: Sequence[int], addresses: Sequence[int], dtype: str = "float32",
                   absent: bool = False) -> None:
        """submit() of several."""
        if dtype != "float32" or absent:
            for index, address in zip(indices, addresses):
                self.submit(index, address, dtype, absent)
            return
        self._goes_on = True
        with self._used() as handle:  # once: there are hundreds of tensors in a step
            for index, address in zip(indices, addresses):
                library.tw_reducer_submit(handle, index, address)

    def wait(self) -> bool:
        """Ends the step. False: some gradient was not finite, the step was skipped on all ranks, and the buffers hold
        nothing of use. Ctrl-C is heeded; comm.leave() is then what keeps the others from waiting."""
        done, good = ctypes.c_int(), True
        with self._used(), self._comm.waits():
            while not done.value:
                good = self._call(library.tw_reducer_wait_for, SIGNALS_ARE_HEEDED, ctypes.byref(done))
        self._goes_on = False
        return good

    def set_rates(self, rates: Sequence[float]) -> None:
        """Tells the learning rates of the tensors in the steps to come, which sdagc has to know."""
        table.refuse_another_count(len(rates), len(self.tensors), "rates")
        self._call(library.tw_reducer_set_rates, (ctypes.c_float * len(self.tensors))(*rates))

    def set_gradient_scale(self, scale: float) -> None:
        """From the next step on gradients come multiplied by `scale`, the same on all ranks, and so do means go."""
        self._call(library.tw_reducer_set_gradient_scale, scale)

    @property
    def momentum(self) -> Tuple[float, bool]:
        """The momentum that the scheme applies itself, and whether in Nesterov's form. 0: it leaves it to the optimiser."""
        nesterov = ctypes.c_int()
        return self._call(library.tw_reducer_momentum, ctypes.byref(nesterov)), bool(nesterov.value)

    def plan(self) -> Dict[str, str]:
        """What becomes of each tensor after any warm-up."""
        return {name: self._call(library.tw_reducer_plan, i).decode() for i, (name, _) in enumerate(self.tensors)}

    def stats(self) -> Dict[str, float]:
        """Steps, bytes and seconds since the reducer was made: the fields of tw_reducer_counts in thinwire.h."""
        return table.counts_of(library.tw_reducer_stats, self, ReducerCounts)

    def hand_over(self, addresses: Sequence[int]) -> None:
        """Adds to the float32 tensors at the addresses, one for each tensor, what has not been sent yet of this rank's
        gradients. By whatever scheme it then goes out in a step of its own: see thinwire_plan.h."""
        self._call(library.tw_reducer_hand_over, table.addresses(addresses, len(self.tensors)))

    def state(self) -> table.Entries:
        """All that the scheme remembers on this rank."""
        return table.saved(library.tw_reducer_save_state, self)

    def load_state(self, entries: table.Entries) -> None:
        """Takes what state() gave. Where an entry does not fit, the text names it and nothing has changed."""
        table.loaded(library.tw_reducer_load_state, self, entries)


def regrouped(spec: str, tensors: Sequence[table.Named], old: table.OfRank, old_size: int, rank: int,
              size: int) -> table.Entries:
    """What rank `rank` of `size` goes on with where `old_size` ranks have saved their state(): old(r) is rank r's, and
    asked for those alone whose part this rank takes over. The sum over the ranks of what they held back is kept. None
    stands for a state that is lost, whose part is dropped."""
    return _regroup.regrouped(library.tw_reducer_regroup_state, spec, tensors, old, old_size, rank, size)


def state_of_moments(spec: str, tensors: Sequence[table.Named], steps: int, first: Sequence[int], second: Sequence[int],
                     rank: int, size: int) -> table.Entries:
    """What rank `rank` of `size` goes on with, as load_state() takes it, where an AdamW stands after `steps` steps. Its two
    moments of each tensor, in fp32, lie at the addresses `first` and `second`."""
    with table.State() as new:
        library.tw_reducer_state_of_moments(bytes_of(spec), table.table_of(tensors), len(tensors), steps,
                                            table.addresses(first, len(tensors)), table.addresses(second, len(tensors)), rank,
                                            size, b"", new.handle)
        return new.entries()


def moments_of_state(spec: str, tensors: Sequence[table.Named], old: table.OfRank, old_size: int,
                     first: Sequence[int], second: Sequence[int]) -> int:
    """The other way: where an AdamW stands that goes on from what `old_size` ranks have saved, whose state() old(r) is.
    What they held back is in the first moments, from which it is paid out. Gives the number of steps."""
    steps = ctypes.c_uint64()
    places = [table.addresses(places, len(tensors)) for places in (first, second)]
    _regroup.asking(old, lambda source: library.tw_reducer_moments_of_state(
        bytes_of(spec), table.table_of(tensors), len(tensors), old_size, source, None, b"", ctypes.byref(steps), *places))
    return steps.value


NOTHING_TO_KEEP, ONE_NUMBER = "allreduce", [("w", (1,))]


@functools.lru_cache(None)
def state_of_nothing() -> table.Entries:
    with Comm.threads(1)[0] as comm, Reducer(comm, NOTHING_TO_KEEP, ONE_NUMBER) as reducer:
        return reducer.state()


def asked_for(spec: str, old_size: int, rank: int, size: int, lost: Container[int] = ()) -> Set[int]:
    """Whose states regrouped() asks for. The library says it, since that does not depend on the scheme: it is shown states
    in which there is next to nothing."""
    asked: Set[int] = set()

    def old(old_rank: int) -> Optional[table.Entries]:
        asked.add(old_rank)
        return None if old_rank in lost else state_of_nothing()

    regrouped(f"{NOTHING_TO_KEEP}:per_host={options_of(spec).get('per_host', '1')}", ONE_NUMBER, old, old_size, rank, size)
    return asked
