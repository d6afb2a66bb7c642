"""Checkpoints of a run on several workers: FOLDER/step-N/rank-R.pt, each worker's own.

Every worker saves all that it needs, so that machines need no disk in common. A worker's file holds what its compressor
keeps for later steps, which is another thing on every worker."""

import shutil
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

KEPT = 2  # steps


def file_of(folder: Path, step: int) -> Path:
    return folder / f"step-{step}" / f"rank-{dist.get_rank()}.pt"


def steps_saved(folder: Path) -> set:
    """Those that this worker has saved."""
    return {int(path.parent.name[5:]) for path in folder.glob(f"step-*/rank-{dist.get_rank()}.pt")}


def save(folder: Path, step: int, **parts: Any) -> None:
    """What each part, if it is not None, remembers. A file has its name when it is whole. The newest but one stays, for
    not all workers may come to save the newest."""
    path = file_of(folder, step)
    path.parent.mkdir(parents=True, exist_ok=True)
    state = {name: part.state_dict() for name, part in parts.items() if part is not None}
    torch.save(state, path.with_suffix(".partial"))
    path.with_suffix(".partial").replace(path)
    dist.barrier()
    for old in sorted(steps_saved(folder))[:-KEPT]:
        shutil.rmtree(folder / f"step-{old}", ignore_errors=True)


def newest(folder: Path) -> int:
    """The last step that all workers have saved: none is more than one behind another, and each keeps two. 0: none."""
    step = torch.tensor(max(steps_saved(folder), default=0))
    dist.all_reduce(step, dist.ReduceOp.MIN)
    return int(step)


def resume(folder: Path, **parts: Any) -> int:
    """Gives the parts what they had after the newest step, and says which that is. 0: there is none."""
    step = newest(folder)
    if step:
        state = torch.load(file_of(folder, step), map_location="cpu")
        for name, part in parts.items():
            if part is not None:
                part.load_state_dict(state.get(name, {}))
    return step
