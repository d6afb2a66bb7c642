"""A thinwire group of the ranks of a torch process group, with connections of its own."""

import contextlib
import json
import pickle
import secrets
from typing import Any, Callable, Iterator, List, NamedTuple, Optional, Protocol, TypeVar, Union

import torch
import torch.distributed as dist

from ..comm import Comm
from ..errors import Error, PeerError, SpecError
from ..seal import KEY_BYTES, sealed
from ..tcp import Tcp

TRANSPORTS = "tcp, mpi, a thinwire.Tcp or a thinwire.Comm"
LONGEST_TIMEOUT = 1e9  # seconds, that the library takes
LONGEST_WORD = 1 << 24  # bytes, such as a table of the names of all parameters
KINDS = {"Error": Error, "SpecError": SpecError, "PeerError": PeerError}  # of what a rank tells the others of
Made = TypeVar("Made", bound="Closing")


class Limits(NamedTuple):
    """How long a rank waits for another, in seconds: for one of which it hears nothing, and for one that is busy."""

    timeout: float
    patience: float = 1800.0

    def refuse_wrong(self) -> None:
        for name, value in zip(self._fields, self):
            if not isinstance(value, (int, float)) or not 0 < value <= LONGEST_TIMEOUT:
                raise Error(f"{name}={value!r}: want seconds above 0, such as 60.0, and at most {LONGEST_TIMEOUT:g}")

    def set_on(self, comm: Comm) -> None:
        comm.set_timeout(self.timeout)
        comm.set_patience(self.patience)


def rank_of(group: Any) -> int:
    """A group is a process group of torch's, or a thinwire.Comm of processes that have none between them."""
    return group.rank if isinstance(group, Comm) else dist.get_rank(group)


def size_of(group: Any) -> int:
    return group.size if isinstance(group, Comm) else dist.get_world_size(group)


def device_of(group: Any) -> torch.device:
    """What is sent through the group has to be on it."""
    if isinstance(group, Comm):
        return torch.device("cpu")
    return torch.device("cuda", torch.cuda.current_device()) if dist.get_backend(group) == "nccl" else torch.device("cpu")


def gathered(group: Any, mine: Any, is_one: Optional[Callable[[Any], bool]] = None) -> List[Any]:
    """What each rank of the group has. torch's all_gather_object needs numpy, which torch does not bring along. What
    comes over a Comm may be anybody's: it is never unpickled, and has to be like `mine`, or what `is_one` takes."""
    if isinstance(group, Comm):
        fits = is_one or (lambda there: is_like(mine, there))
        words = group.allgather(json.dumps(mine).encode(), LONGEST_WORD)
        return [read_json(rank, word, fits) for rank, word in enumerate(words)]
    device = device_of(group)
    data = pickle.dumps(mine)
    sizes = [torch.zeros(1, dtype=torch.int64, device=device) for _ in range(dist.get_world_size(group))]
    dist.all_gather(sizes, torch.tensor([len(data)], device=device), group=group)
    room = max(int(size) for size in sizes)
    padded = torch.frombuffer(bytearray(data.ljust(room, b"\0")), dtype=torch.uint8).to(device)
    rows = [torch.empty_like(padded) for _ in sizes]
    dist.all_gather(rows, padded, group=group)
    return [pickle.loads(bytes(row.tolist())) for row in rows]  # it ends where it ends, whatever comes after


def read_json(rank: int, row: bytes, fits: Callable[[Any], bool]) -> Any:
    with contextlib.suppress(ValueError, RecursionError):
        there = json.loads(row)
        if fits(there):
            return there
    raise Error(f"rank {rank} sends what this version of thinwire does not: give all ranks the same version")


def is_like(mine: Any, there: Any) -> bool:
    """Of the same type; lists, of any number of what mine has."""
    if isinstance(mine, (list, tuple)):
        return isinstance(there, list) and bool(there) == bool(mine) and all(is_like(mine[0], one) for one in there)
    return type(there) is type(mine)


def is_outcome(there: Any) -> bool:
    """Of gathered_by_all: a value, and what failed."""
    if not isinstance(there, list) or len(there) != 2:
        return False
    failed = there[1]
    if not isinstance(failed, list):
        return failed is None
    types = [type(one) for one in failed]
    return types[:4] == [str, str, int, str] and types[4:] in ([[int], [type(None)]] if failed[0] == "PeerError" else [[]])


def broadcast_first(tensor: torch.Tensor, group: Any, first: int = 0) -> None:
    """The contiguous tensor, on device_of(group), becomes that of the group's rank `first`."""
    if isinstance(group, Comm):
        group.broadcast(first, tensor.data_ptr(), tensor.numel() * tensor.element_size())
    else:
        dist.broadcast(tensor, dist.get_global_rank(group, first) if group is not None else first, group=group)


def spread(tensor: torch.Tensor, group: Any) -> None:
    """It becomes that of rank 0, wherever it is, however it lies and of whatever type, which Gloo need not know."""
    there = tensor.detach()
    sent = there.to(device_of(group)).contiguous()
    broadcast_first(sent.view(-1).view(torch.uint8), group)
    there.copy_(sent)


def rows_of_all(flat: torch.Tensor, group: Any) -> List[torch.Tensor]:
    """What each rank has of such a tensor, of one shape on all."""
    rows = [torch.empty_like(flat) for _ in range(size_of(group))]
    if isinstance(group, Comm):
        for rank, row in enumerate(rows):
            row.copy_(flat)
            group.broadcast(rank, row.data_ptr(), row.numel() * row.element_size())
    else:
        dist.all_gather(rows, flat, group=group)
    return rows


def gathered_by_all(group: Any, make: Callable[[], Any]) -> List[Any]:
    """What make() gave on each rank. Where it failed on one it fails on all, so that nobody waits for anybody."""
    mine: Any = None
    failure: Optional[Error] = None
    try:
        mine = make()
    except Error as error:
        failure = error if type(error) in KINDS.values() else Error(str(error))
    except Exception as error:  # such as a library of another version on this machine: the others are not left to wait
        failure = Error(f"{type(error).__name__}: {error}")
    told = (type(failure).__name__, str(failure), *failure.beside_text()) if failure else None
    outcomes = gathered(group, (mine, told), is_outcome)
    if failure and not isinstance(failure, PeerError):
        raise failure
    failures = [(rank, *what) for rank, (_, what) in enumerate(outcomes) if what]
    for rank, kind, text, *beside in sorted(failures, key=lambda one: one[1] == "PeerError"):  # a cause comes first
        raise KINDS.get(kind, Error)(f"rank {rank}: {text}", *beside)
    return [value for value, _ in outcomes]


def gathered_by_every(group: Any, inside: Any, make: Callable[[], Any]) -> List[Any]:
    """The same of all ranks of several groups side by side, those of the first group first. `inside` has one rank of each
    of them; None: there is one group."""
    if inside is None:
        return gathered_by_all(group, make)
    return [one for row in gathered_by_all(inside, lambda: gathered_by_all(group, make)) for one in row]


class Closing(Protocol):
    def close(self) -> None: ...


class Offer(NamedTuple):
    """What a rank tells the others, so that they can connect. The key is rank 0's, where none was given."""

    address: str
    seals: bool
    key: bytes


def refuse_half_sealed(offers: List[Offer]) -> None:
    """All ranks see the same offers, and so all refuse."""
    for rank, one in enumerate(offers):
        if one.seals != offers[0].seals:
            raise Error(f"rank {rank} {'seals' if one.seals else 'does not seal'} its messages, and rank 0 "
                        f"{'does' if offers[0].seals else 'does not'}: give all ranks the same Tcp(seal=...)")


def kind_of(transport: Any) -> str:
    """Refuses what is none of them."""
    if isinstance(transport, (Tcp, Comm)):
        return "tcp" if isinstance(transport, Tcp) else "a thinwire.Comm"
    if transport not in ("tcp", "mpi"):
        raise Error(f"there is no transport {transport!r}; there are {TRANSPORTS}")
    return str(transport)


def refuse_other_kinds(kinds: List[str]) -> None:
    for rank, kind in enumerate(kinds):
        if kind != kinds[0]:
            raise Error(f"rank {rank} has the transport {kind}, and rank 0 has {kinds[0]}: give all ranks the same")


@contextlib.contextmanager
def opener_of(transport: Union[str, Tcp, Comm], group: Any, limits: Limits) -> Iterator[Callable[[], Comm]]:
    """What opens it, with no further word through the process group. The addresses of TCP have gone through it by then,
    so that any backend and any store will do."""
    if isinstance(transport, Comm):
        there = transport
        yield lambda: there
    elif transport == "mpi":
        yield lambda: Comm.open("mpi")
    else:
        with contextlib.ExitStack() as listening:
            yield by_tcp(transport if isinstance(transport, Tcp) else Tcp(), group, limits, listening)


def by_tcp(tcp: Tcp, group: Any, limits: Limits, listening: contextlib.ExitStack) -> Callable[[], Comm]:
    rank, listeners = dist.get_rank(group), []

    def offer() -> Offer:
        listeners.append(listening.enter_context(tcp.listen()))
        draws = tcp.seal and not tcp.key and rank == 0
        return Offer(listeners[0].address, tcp.seal, secrets.token_bytes(KEY_BYTES) if draws else b"")

    offers = gathered_by_all(group, offer)
    refuse_half_sealed(offers)

    def connected() -> Comm:
        comm = listeners[0].connect(rank, [one.address for one in offers], limits.timeout)
        limits.set_on(comm)
        return sealed(comm, tcp.key or offers[0].key) if tcp.seal else comm

    return connected


def refuse_other_numbers(comm: Comm, group: Any) -> None:
    wanted = rank_of(group), size_of(group)
    if (comm.rank, comm.size) != wanted:
        raise Error("rank %d of %d in torch's process group is rank %d of %d of the transport; both have to be numbered "
                    "alike" % (*wanted, comm.rank, comm.size))


def with_comm(transport: Union[str, Tcp, Comm], group: Any, limits: Limits, use: Callable[[Comm], Made],
              check: Callable[[], object] = object) -> Made:
    """What use(comm) makes of a thinwire group of the same ranks: on all ranks, or an Error on all of them.

    `check` refuses what one rank alone can tell, before any rank waits for another in the comm. Should `use` fail all the
    same, the comm is closed, if it is not the caller's own, which ends what the others wait for in there."""
    def checked() -> str:
        check()
        limits.refuse_wrong()
        return kind_of(transport)

    refuse_other_kinds(gathered_by_all(group, checked))
    made: List[Made] = []
    with contextlib.ExitStack() as unless_all_do:

        def make() -> None:
            comm = open_comm()
            with contextlib.ExitStack() as unless_it_does:
                if comm is not transport:
                    unless_it_does.callback(comm.close)
                    limits.set_on(comm)
                refuse_other_numbers(comm, group)
                made.append(use(comm))
                unless_all_do.push(unless_it_does.pop_all())
                unless_all_do.callback(made[0].close)

        with opener_of(transport, group, limits) as open_comm:
            gathered_by_all(group, make)
        unless_all_do.pop_all()
    return made[0]
