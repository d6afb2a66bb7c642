"""One mean of models that several clusters hold, each cut in its own way."""

from typing import Sequence, Tuple

from . import table
from ._library import Range, library
from ._owned import Owned
from .comm import Comm


class Clusters(Owned):
    """What each rank holds of a model that each cluster has once: a pipeline's stages, or a group that has sharded it.

    To make one is a collective. `elements` is the size of the whole model, and `ranges` are (first, count) of the elements
    that this rank holds; all clusters number them alike. A map with a gap or an overlap is refused on all ranks."""

    def __init__(self, comm: Comm, cluster: int, elements: int, ranges: Sequence[Tuple[int, int]]):
        held = (Range * len(ranges))(*(Range(first, count) for first, count in ranges))
        comm.made(self, library.tw_clusters_create, library.tw_clusters_destroy, cluster, elements, held, len(ranges))
        self._comm, self.cluster, self.ranges = comm, cluster, [tuple(each) for each in ranges]

    def average(self, values: Sequence[int]) -> None:
        """A collective: the fp32 values at the address of each range become the mean of the clusters'."""
        addresses = table.addresses(values, len(self.ranges), "ranges")
        self._comm.waited(lambda: self._call(library.tw_clusters_average, addresses))
