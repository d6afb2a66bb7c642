"""What each rank keeps for later steps, in a file of its own beside the checkpoint of a framework.

Nothing of it goes through the process group when it is saved, nor when as many ranks load it, each from its own disk.
Every file says of which checkpoint it is: one of another run, step or number of ranks is refused."""

import contextlib
import io
import re
import secrets
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Set

import torch
import torch.distributed as dist

from .._lines import tell
from ..errors import Error
from ..reducer import asked_for
from ..spec import name_of
from . import _state, _transport
from .compressor import Compressor

RUN, STEP, RANKS = (_state.ABOUT + what for what in ("run", "step", "size"))  # of which a file is
A_SCHEME = "a scheme"  # whose state is in the files
State = Dict[str, Any]


class Record(NamedTuple):
    """Of which run and step a checkpoint is, and how many ranks saved it. It goes into the framework's own file, too."""

    run: str
    step: str
    ranks: int

    def __str__(self) -> str:
        return f"step {self.step} of run {self.run} on {self.ranks} ranks"


class Place(NamedTuple):
    """Where the files of a checkpoint are on this machine: in a folder, or beside the file FILE as FILE.thinwire-R.pt."""

    folder: Path
    begin: str = ""

    def path(self, rank: int) -> Path:
        return self.folder / f"{self.begin}thinwire-{rank}.pt"

    def ranks(self) -> Set[int]:
        """Whose files are here."""
        name = re.compile(re.escape(self.begin) + r"thinwire-(\d+)\.pt")
        found = [name.fullmatch(path.name) for path in self.folder.iterdir()] if self.folder.is_dir() else []
        return {int(one.group(1)) for one in found if one}

    def remove(self, ranks: Set[int]) -> None:
        for rank in ranks:
            with contextlib.suppress(FileNotFoundError):  # another rank of this machine was faster
                self.path(rank).unlink()


def beside(file: Any) -> Place:
    """A link stands for the file that it names."""
    path = Path(file).resolve()
    return Place(path.parent, path.name + ".")


def read(path: Path) -> State:
    if not path.exists():
        raise Error(f"there is no {path}")
    state = _state.read_file(path, A_SCHEME)
    return state if isinstance(state, dict) else {}


def record_of(state: State) -> Record:
    return Record(str(state.get(RUN)), str(state.get(STEP)), int(state.get(RANKS, 0)))


def say(text: str) -> None:
    if dist.get_rank() == 0:
        tell(text)


def ranks_in_words(ranks: Sequence[int]) -> str:
    return ("rank " if len(ranks) == 1 else "ranks ") + ", ".join(map(str, ranks))


class Found(NamedTuple):
    """What a rank has of a checkpoint: whose files, and of which checkpoint they are."""

    place: Place
    ranks: Set[int]
    record: Optional[Record]


class States(Sequence):
    """The states of the ranks that saved a checkpoint, each read when it is asked for. None: it is lost."""

    def __init__(self, place: Place, record: Record, lost: Sequence[int], sent: Dict[int, State]):
        self._place, self._record, self._lost, self._sent = place, record, lost, sent

    def __len__(self) -> int:
        return self._record.ranks

    def __getitem__(self, rank: Any) -> Any:
        if not 0 <= rank < len(self):
            raise IndexError(rank)
        if rank in self._lost:
            return None
        path = self._place.path(rank)
        state = self._sent.get(rank) or read(path)
        if record_of(state) != self._record:
            raise Error(f"{path} is of {record_of(state)}, and {self._record} is wanted: it was left behind by another checkpoint, "
                        "and has to go")
        return state


class Checkpoints:
    """Those of a run, whose name goes on when it is resumed. To make it and all it does are collectives."""

    def __init__(self, compressor: Compressor, forget_lost: bool = False):
        self.compressor, self._forget_lost = compressor, forget_lost
        self._rank, self._size = dist.get_rank(), dist.get_world_size()
        self._run = _transport.gathered(None, secrets.token_hex(4))[0]
        self._shared: Dict[Path, bool] = {}

    def shares(self, folder: Any) -> bool:
        """Whether all ranks see the same folder: it need not be one that the machines share, nor one that exists yet."""
        path, mark = Path(folder).absolute(), f".thinwire-{secrets.token_hex(8)}"
        if all(_transport.gathered(None, path in self._shared)):
            return self._shared[path]

        def make() -> str:
            if self._rank == 0:
                path.mkdir(parents=True, exist_ok=True)
                (path / mark).touch()
            return mark

        there = path / _transport.gathered_by_all(None, make)[0]
        self._shared[path] = all(_transport.gathered(None, there.exists()))
        if self._rank == 0:
            there.unlink()
        return self._shared[path]

    def is_apart(self, folder: Any) -> bool:
        """Whether it is known by now that not all ranks see the folder. This is no collective."""
        return not self._shared.get(Path(folder).absolute(), True)

    # Saving

    def record(self, step: Any) -> Record:
        return Record(self._run, str(step), self._size)

    def record_at_random(self) -> Record:
        """Where nobody says which step it is."""
        return self.record(_transport.gathered(None, secrets.token_hex(4))[0])

    def save(self, place: Place, record: Record) -> None:
        """A file of each rank's own. What a checkpoint of the same place had before goes."""
        keeps = not self.compressor.spec_is_dense
        if keeps:
            state = {**self.compressor.state_dict(), RUN: record.run, STEP: record.step}
            _state.write_whole(place.path(self._rank), state)
        place.remove({rank for rank in place.ranks() if rank >= self._size or not keeps})

    # Loading

    def load(self, place: Place, of_checkpoint: Optional[Record] = None) -> None:
        """What save wrote. `of_checkpoint` is the record in the framework's own file, where there is one."""
        found: List[Found] = _transport.gathered_by_all(None, lambda: self._look(place, of_checkpoint))
        record = agreed(found)
        if record is None:
            if not self.compressor.spec_is_dense:
                say(f"{place.path(0)} and its like are not there, for the run was dense until now or had one process: "
                    f"{self.compressor.spec} begins with nothing held back")
            return
        self._run = record.run
        if self.compressor.spec_is_dense:
            return say(f"what {ranks_in_words(range(record.ranks))} held back is dropped, for nothing is compressed now")
        lost = [old for old in range(record.ranks) if not any(old in one.ranks for one in found)]
        self._tell_of(lost, record, found)
        if len(lost) < record.ranks:
            sent = self._sent(lost, record, found)
            self.compressor.load_state_dicts(States(place, record, lost, sent), forget_lost=self._forget_lost)

    def _look(self, place: Place, of_checkpoint: Optional[Record]) -> Found:
        """One file tells for all that are beside it, the rank's own where it is there."""
        ranks = {rank for rank in place.ranks() if of_checkpoint is None or rank < of_checkpoint.ranks}
        if of_checkpoint or not ranks:
            return Found(place, ranks, of_checkpoint)
        record = record_of(read(place.path(self._rank if self._rank in ranks else min(ranks))))
        return Found(place, {rank for rank in ranks if rank < record.ranks}, record)

    def _tell_of(self, lost: Sequence[int], record: Record, found: List[Found]) -> None:
        if not lost:
            return
        place = found[min(lost[0], self._size - 1)].place
        if not self._forget_lost:
            raise Error(f"there is no {place.path(lost[0])}, in which rank {lost[0]} of {record.ranks} kept what it held back; "
                        "forget_lost=True goes on without it")
        say(f"what {ranks_in_words(lost)} of {record.ranks} held back is dropped, since there is no {place.path(lost[0])}"
            + (" and its like" if len(lost) > 1 else ""))

    def _sent(self, lost: Sequence[int], record: Record, found: List[Found]) -> Dict[int, State]:
        """What a rank needs and has not on its disk comes from one that has it."""
        absent: Set[int] = set()
        for rank, one in enumerate(found):
            absent |= self._needs(rank, lost, record) - one.ranks
        return {old: self._spread(old, found) for old in sorted(absent)}

    def _needs(self, rank: int, lost: Sequence[int], record: Record) -> Set[int]:
        if record.ranks == self._size and rank not in lost:
            return {rank}
        first = next(old for old in range(record.ranks) if old not in lost)  # which says of what kind all are
        return {first, *(asked_for(self.compressor.spec, record.ranks, rank, self._size, lost) - set(lost))}

    def _spread(self, old: int, found: List[Found]) -> State:
        """From the first rank that has it to all."""
        owner = [old in one.ranks for one in found].index(True)
        data, path = b"", found[owner].place.path(old)

        def size() -> int:
            nonlocal data
            data = path.read_bytes() if self._rank == owner else b""
            return len(data)

        room = _transport.gathered_by_all(None, size)[owner]
        whole = torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else torch.empty(room, dtype=torch.uint8)
        whole = whole.to(_transport.device_of(None))
        dist.broadcast(whole, owner)
        state: State = _state.read_file(path, A_SCHEME, io.BytesIO(_state.from_tensor(whole, "uint8").data))
        return state


def agreed(found: List[Found]) -> Optional[Record]:
    """Of which checkpoint all files are that all ranks have."""
    told = [(rank, one) for rank, one in enumerate(found) if one.record]
    for rank, one in told:
        first, other = told[0]
        if one.record != other.record:
            raise Error(f"rank {rank} has {one.place.folder} of {one.record}, and rank {first} has {other.place.folder} of "
                        f"{other.record}: resume all ranks from one checkpoint, with no thinwire-R.pt of another beside it")
    return told[0][1].record if told else None


def tell_dropped(place: Place, spec: str) -> None:
    """One process has nobody to send anything to, later either."""
    ranks = place.ranks()
    if ranks:
        tell(f"what {place.path(min(ranks))} and its like held back for {name_of(spec)} is dropped: this is the only process")
