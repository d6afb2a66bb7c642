"""thinwire: train deep networks over thin wires.

The workers of a data-parallel run agree on their gradients, or on their weights, while they send few bytes. What a
PyTorch script needs is in `thinwire.torch`. The classes here are the C library's objects; they know addresses, and no
framework."""

from typing import TYPE_CHECKING, Dict, List, Tuple

from . import spec, table
from ._library import library
from .clusters import Clusters
from .comm import Comm
from .errors import Error, NonFinite, PeerError, SpecError
from .gossip import Gossip
from .outer import OuterLoop
from .planning import Candidate, Plan, plan
from .reducer import Reducer
from .seal import read_key, sealed
from .spec import for_run
from .table import Entry
from .tcp import Tcp

if TYPE_CHECKING:
    from .torch.transformers import TrainerCallback as TrainerCallback
else:  # a type checker would take it for any name
    def __getattr__(name):
        """What needs transformers is there once somebody asks for it."""
        if name != "TrainerCallback":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from .torch.transformers import TrainerCallback
        return TrainerCallback

__version__ = library.tw_version().decode()
__all__ = ["Candidate", "Clusters", "Comm", "Entry", "Error", "Gossip", "NonFinite", "OuterLoop", "PeerError", "Plan",
           "Reducer", "SpecError", "Tcp", "for_run", "gossip_schemes", "options", "outers", "plan", "read_key",
           "schemes", "sealed"]


def schemes() -> List[Tuple[str, str]]:
    """The schemes that agree on gradients, each with a line about it."""
    return table.listed(library.tw_schemes_count, library.tw_schemes_name, library.tw_schemes_summary)


def options(scheme: str) -> Dict[str, str]:
    """The options of a scheme that agrees on gradients, each with its default."""
    return spec.defaults_of(scheme)


def gossip_schemes() -> List[Tuple[str, str]]:
    """The schemes that agree on weights, each with a line about it."""
    return table.listed(library.tw_gossips_count, library.tw_gossips_name, library.tw_gossips_summary)


def outers() -> List[Tuple[str, str]]:
    """The methods of local updates, each with a line about it."""
    return table.listed(library.tw_outers_count, library.tw_outers_name, library.tw_outers_summary)
