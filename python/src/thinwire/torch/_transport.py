"""A thinwire group of the ranks of a torch process group, with connections of its own."""

import contextlib
import pickle
import secrets
from typing import Any, List, NamedTuple, Optional, Union

import torch
import torch.distributed as dist

from ..comm import Comm
from ..errors import Error
from ..seal import KEY_BYTES, sealed
from ..tcp import Tcp

TRANSPORTS = "tcp, mpi, a thinwire.Tcp or a thinwire.Comm"


def gathered(group: Any, mine: Any) -> List[Any]:
    """What each rank of the group has. torch's all_gather_object needs numpy, which torch does not bring along."""
    device = torch.device("cuda", torch.cuda.current_device()) if dist.get_backend(group) == "nccl" else torch.device("cpu")
    data = pickle.dumps(mine)
    sizes = [torch.zeros(1, dtype=torch.int64, device=device) for _ in range(dist.get_world_size(group))]
    dist.all_gather(sizes, torch.tensor([len(data)], device=device), group=group)
    room = max(int(size) for size in sizes)
    padded = torch.frombuffer(bytearray(data.ljust(room, b"\0")), dtype=torch.uint8).to(device)
    rows = [torch.empty_like(padded) for _ in sizes]
    dist.all_gather(rows, padded, group=group)
    return [pickle.loads(bytes(row.tolist())) for row in rows]  # it ends where it ends, whatever comes after


def gathered_by_all(group: Any, make: Any) -> List[Any]:
    """What make() gave on each rank. Where it failed on one it fails on all, so that nobody waits for anybody."""
    mine: Any = None
    failure: Optional[Error] = None
    try:
        mine = make()
    except Error as error:
        failure = error
    except Exception as error:  # such as a library of another version on this machine: the others are not left to wait
        failure = Error(f"{type(error).__name__}: {error}")
    outcomes = gathered(group, (mine, failure))
    if failure:
        raise failure
    for rank, (_, told) in enumerate(outcomes):
        if told:
            raise type(told)(f"rank {rank}: {told}", told.status, told.name)
    return [value for value, _ in outcomes]


class Offer(NamedTuple):
    """What a rank tells the others, so that they can connect. The key is rank 0's, where none was given."""

    address: str
    seals: bool
    key: bytes


def over_tcp(tcp: Tcp, group: Any, timeout: float) -> Comm:
    rank = dist.get_rank(group)
    with contextlib.ExitStack() as listening:
        listeners = []

        def offer() -> Offer:
            listeners.append(listening.enter_context(tcp.listen()))
            draws = tcp.seal and not tcp.key and rank == 0
            return Offer(listeners[0].address, tcp.seal, secrets.token_bytes(KEY_BYTES) if draws else b"")

        offers = gathered_by_all(group, offer)
        refuse_half_sealed(offers)
        comm = listeners[0].connect(rank, [one.address for one in offers], timeout)
    if not tcp.seal:
        return comm
    comm.set_timeout(timeout)
    return sealed(comm, tcp.key or offers[0].key)


def refuse_half_sealed(offers: List[Offer]) -> None:
    """All ranks see the same offers, and so all refuse."""
    for rank, one in enumerate(offers):
        if one.seals != offers[0].seals:
            raise Error(f"rank {rank} {'seals' if one.seals else 'does not seal'} its messages, and rank 0 "
                        f"{'does' if offers[0].seals else 'does not'}: give all ranks the same Tcp(seal=...)")


def comm_of(transport: Union[str, Tcp, Comm], group: Any, timeout: float) -> Comm:
    """Ranks keep their numbers. The addresses go through the group itself, so that any backend and any store will do."""
    if transport == "tcp":
        transport = Tcp()
    if isinstance(transport, Tcp):
        comm = over_tcp(transport, group, timeout)
    elif transport == "mpi":
        comm = Comm.open("mpi")
    elif isinstance(transport, Comm):
        comm = transport
    else:
        raise Error(f"there is no transport {transport!r}; there are {TRANSPORTS}")
    wanted = dist.get_rank(group), dist.get_world_size(group)
    if (comm.rank, comm.size) != wanted:
        raise Error("rank %d of %d in torch's process group is rank %d of %d of the transport; both have to be numbered "
                    "alike" % (*wanted, comm.rank, comm.size))
    if comm is not transport:
        comm.set_timeout(timeout)
    return comm
