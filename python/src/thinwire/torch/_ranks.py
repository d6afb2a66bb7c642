"""What each rank has to save, in the files of frameworks that write one file for all ranks, or one folder."""

from pathlib import Path
from typing import Any, Dict, List, Optional

import torch
import torch.distributed as dist

from ..errors import Error
from ._state import ABOUT
from .compressor import Compressor


def gathered(compressor: Compressor) -> Optional[List[Dict[str, Any]]]:
    """On rank 0 the states of all ranks, and None on the others: a collective."""
    states: Optional[List[Any]] = [None] * dist.get_world_size() if dist.get_rank() == 0 else None
    dist.gather_object(compressor.state_dict(), states)
    return states


def give_back(compressor: Compressor, states: List[Dict[str, Any]]) -> None:
    """Its own to each rank, and its share where there were as many ranks as there are no more."""
    if compressor.spec_is_dense:  # a fallback has a state, too
        return
    if len(states) == dist.get_world_size():
        compressor.load_state_dict(states[dist.get_rank()])
    else:
        compressor.load_state_dicts(states)


def path_in(folder: Any, rank: int) -> Path:
    return Path(folder) / f"thinwire-{rank}.pt"


def save_in(folder: Any, compressor: Compressor) -> None:
    """A file of each rank's own."""
    path = path_in(folder, dist.get_rank())
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(compressor.state_dict(), path.with_suffix(".partial"))
    path.with_suffix(".partial").replace(path)


def load_from(folder: Any, compressor: Compressor) -> None:
    """What save_in wrote. Where there were as many ranks as now, each needs its own file alone, and else all of them."""
    if compressor.spec_is_dense:  # a fallback has a state, too
        return
    mine = path_in(folder, dist.get_rank())
    state = read(mine if mine.exists() else path_in(folder, 0))
    ranks = state.get(ABOUT + "size")
    if ranks == dist.get_world_size():
        compressor.load_state_dict(state)
    else:
        compressor.load_state_dicts([read(path_in(folder, rank)) for rank in range(ranks or 1)])


def read(path: Path) -> Dict[str, Any]:
    if not path.exists():
        raise Error(f"there is no {path}: what the schemes kept for later steps was not saved there, or on another machine")
    return torch.load(path, map_location="cpu", weights_only=True)
