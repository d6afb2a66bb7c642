"""Agreement on weights, in which nobody waits for a slower one."""

from typing import Dict, Sequence

from . import _regroup, table
from ._library import GossipCounts, library
from ._owned import Owned
from .comm import Comm
from .spec import bytes_of


class Gossip(Owned):
    """Each rank steps by itself, and a communication thread averages weights between a few ranks at a time.

    To make one is a collective, as with a Reducer. `weights` are the addresses of the tensors' fp32 values; all ranks
    begin with those of rank 0. `thinwire.gossip_schemes()` lists the schemes."""

    def __init__(self, comm: Comm, spec: str, tensors: Sequence[table.Named], weights: Sequence[int]):
        named, begin = table.table_of(tensors), table.addresses(weights, len(tensors))
        comm.made(self, library.tw_gossip_create, library.tw_gossip_destroy, bytes_of(spec), named, len(tensors), begin)
        self._comm, self.spec, self._count, self._goes_on = comm, spec, len(tensors), True

    def read(self, weights: Sequence[int]) -> None:
        """Copies the weights out, all of one moment."""
        self._call(library.tw_gossip_read, table.addresses(weights, self._count))

    def step(self, weights: Sequence[int]) -> bool:
        """`weights` hold what the last read or step gave, moved by the optimiser, and receive the weights as they are
        now, with that step in them. False: the step was not finite, and is not in them."""
        return self._comm.waited(lambda: self._call(library.tw_gossip_step, table.addresses(weights, self._count)))

    def finish(self, weights: Sequence[int]) -> None:
        """Ends the gossip, as a collective: the mean over all ranks' weights, the same on every one."""
        self._comm.waited(lambda: self._call(library.tw_gossip_finish, table.addresses(weights, self._count)))
        self._goes_on = False

    def stats(self) -> Dict[str, float]:
        """Steps, rounds, bytes and seconds since the gossip was made: the fields of tw_gossip_counts in thinwire.h."""
        return table.counts_of(library.tw_gossip_stats, self, GossipCounts)

    def state(self) -> table.Entries:
        """This rank's weights, and what its scheme holds back."""
        return table.saved(library.tw_gossip_save_state, self)

    def load_state(self, entries: table.Entries) -> None:
        """Takes what state() gave, before the first read, step or finish."""
        table.loaded(library.tw_gossip_load_state, self, entries)


def regrouped(spec: str, tensors: Sequence[table.Named], old: table.OfRank, old_size: int, rank: int,
              size: int) -> table.Entries:
    """What rank `rank` of `size` goes on with where `old_size` ranks have saved their state(): old(r) is rank r's, and
    asked for those alone whose part this rank takes over. The mean over the ranks of their weights is kept."""
    return _regroup.regrouped(library.tw_gossip_regroup_state, spec, tensors, old, old_size, rank, size)
