"""GossipDataParallel: every rank steps by itself, and weights are averaged beside it."""

from typing import Any, Callable, Dict, List, Optional, Sequence, Union

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from .._warned import warn
from ..comm import Comm
from ..errors import Error
from ..gossip import Gossip, regrouped
from ..table import Entries
from ..tcp import Tcp
from . import _auto, _buffers, _claims, _optimiser, _parameters, _passes, _state, _transport
from ._moments import forget_unfinite
from ._parameters import Row
from ._strays import Strays
from ._working import Working, rows_of
from .compressor import refuse_options


OF_A_GOSSIP = "the GossipDataParallel"


class GossipDataParallel(torch.nn.Module):
    """A module whose weights are drawn together by gossip. With the asynchronous schemes, such as ``"adpsgd-random"``,
    no rank waits for a slower one.

        model = GossipDataParallel(model, "adpsgd-random", optimizer=optimizer)
        ...
            loss.backward()
            model.step()        # the optimiser's step, which then goes to the others, and theirs come in
        model.finish()          # all ranks have the mean of their weights

    A collective: every rank of `group` makes one, and all begin with the weights of rank 0. The optimiser has the
    module's parameters; it may have momentum, or be Adam. What is averaged is fp32, whatever the parameters are, and in
    the host's memory, wherever they are. Buffers, such as the statistics of batch norms, stay each rank's own until
    finish(), which gives their mean."""

    def __init__(self, module: torch.nn.Module, spec: str, *, optimizer: torch.optim.Optimizer, group: Any = None,
                 transport: Union[str, Tcp, Comm] = "tcp", timeout: float = 60.0, patience: float = 1800.0):
        super().__init__()
        if _auto.is_auto(spec):
            raise _auto.refuse('a plan knows one gossip scheme, so there is nothing to choose from here: write "adpsgd-random"; '
                               "thinwire.plan compares it with attach() and OuterLoop")
        self.module = module
        self._optimiser, self._group = optimizer, group

        def look() -> List[Row]:
            rows = rows_of(module, "GossipDataParallel")
            refuse_others(module, rows, optimizer)
            self._working = Working(rows, [optimizer])
            self._working.look()
            return rows

        rows = _parameters.start_alike(module, group, look)
        self._orders = _parameters.orders_of(rows)
        self._known = {id(row.parameter) for row in rows}
        self._tensors = [(row.name, row.shape) for row in rows]
        self._working.begin()

        def made(comm: Comm) -> Gossip:
            self._comm, self._owns_comm = comm, comm is not transport
            return Gossip(comm, spec, self._tensors, self._working.addresses())

        self._gossip = _transport.with_comm(
            transport, group, _transport.Limits(timeout, patience), made, lambda: refuse_options(spec, optimizer))
        self._has_read = self._finished = False
        self._begun_with = self._working.digests()  # until a step is counted; of a state that was loaded they are not known
        self._strays = Strays(rows, [], "nothing is exchanged", "call model.step() in place of optimizer.step(), which takes that "
                              "step itself")
        self._stop_watching = _optimiser.at_each_step(self._strays.notice)
        _claims.claim(self, _claims.GOSSIP, rows)
        if _optimiser.trains(_optimiser.innermost(optimizer)) is not None:
            warn(f"{type(optimizer).__name__} evaluates with an average that each rank takes for itself, also behind finish(): take an "
                 "OuterLoop, whose finish() gives all ranks the mean of these averages")

    @_passes.never_compiled
    def _read_first(self) -> None:
        """Nothing of the gossip runs before this, so that a state can be loaded."""
        if not self._has_read:
            name = self._first_changed()
            if name:
                raise Error(f"{name} has changed since {OF_A_GOSSIP} was made, which would undo it: load weights before you make it")
            self._gossip.read(self._working.addresses())
            self._working.give()
            self._begun_with = self._working.digests()
            self._has_read = True

    def forward(self, *inputs: Any, **more: Any) -> Any:
        if not (self._finished or self._has_read):  # what is compiled has no break then
            self._read_first()
        return self.module(*inputs, **more)

    def step(self, closure: Optional[Callable] = None) -> bool:
        """The optimiser's step, and an exchange. False: it was not finite, and the weights are as if it had not been; what the
        optimiser keeps of a parameter begins anew where it is not finite."""
        self._read_first()
        _parameters.refuse_newly_stepped(self._optimiser, self.module, self._known, "GossipDataParallel")
        self._optimiser.step(closure) if closure else self._optimiser.step()
        self._begun_with = {}
        self._strays.counted()
        self._working.take()
        good = self._gossip.step(self._working.addresses())
        self._working.give()
        if not good:  # moments that hold NaN would spoil every step to come
            forget_unfinite([self._optimiser], self._working.rows)
            self._working.give()  # where it forgot a copy of the weights
        return good

    def finish(self) -> None:
        """Ends the gossip, as a collective: all ranks have the mean of their weights and of their buffers. Where a rank was lost,
        the others have the mean of their weights, and each keeps its own buffers."""
        self._refuse_uncounted()
        self._gossip.finish(self._working.addresses())
        self._working.give()
        self._finished = True
        try:
            self._average_buffers()
        finally:
            self.close()

    def _average_buffers(self) -> None:
        """By torch's group, which would wait for a rank that is lost. All that are left have agreed on who is."""
        lost = int(self.stats()["ranks_lost"])
        if not lost:
            _buffers.average(self.module, self._group)
        elif _buffers.floating(self.module):
            warn(f"{lost} rank{'s were' if lost > 1 else ' was'} lost, and so the buffers of the model, such as the statistics of "
                 "batch norms, stay each rank's own: let one rank save the model, and the others load it")

    def _refuse_uncounted(self) -> None:
        """What the optimiser has done alone is in the module, and not in the gossip, which is about to be told of or given."""
        _parameters.refuse_newly_stepped(self._optimiser, self.module, self._known, "GossipDataParallel")
        name = self._first_changed()
        if name:
            self._strays.refuse_changed(name, OF_A_GOSSIP)
        self._strays.refuse(OF_A_GOSSIP)

    def _first_changed(self) -> Optional[str]:
        """Of the weights with which it began, where no step was counted since."""
        return self._working.first_unlike(self._begun_with) if self._begun_with else None

    def stats(self) -> Dict[str, float]:
        """Steps, rounds, bytes and seconds, as tw_gossip_counts in thinwire.h names them."""
        return self._gossip.stats()

    def gossip_state_dict(self) -> Dict[str, Any]:
        """This rank's weights and what its scheme holds back, as plain tensors. Each rank saves its own."""
        self._refuse_uncounted()
        return _state.to_dict(self._gossip.state(), self._about())

    def load_gossip_state_dict(self, state: Dict[str, Any]) -> None:
        """Takes that, before the first forward pass."""
        _state.check(state, self._about(), "a GossipDataParallel")
        self._gossip.load_state(_state.from_dict(state))
        self._begun_with = {}

    def load_gossip_state_dicts(self, states: Sequence[Dict[str, Any]]) -> None:
        """Takes what another number of ranks has saved, before the first forward pass: states[r] is what
        gossip_state_dict() gave on rank r of as many as there are. The mean over all ranks of their weights is kept."""
        about = self._about()

        def old(rank: int) -> Entries:
            _state.check(states[rank], {**about, "rank": rank, "size": len(states)}, "a GossipDataParallel")
            return _state.from_dict(states[rank])

        self._gossip.load_state(regrouped(self._gossip.spec, self._tensors, old, len(states), about["rank"],
                                          about["size"]))
        self._begun_with = {}

    def _about(self) -> Dict[str, Any]:
        return {"spec": self._gossip.spec, "rank": self._comm.rank, "size": self._comm.size, "order": self._orders,
                "tensors": [name for name, _ in self._tensors]}

    def close(self) -> None:
        """Leaves the others. Before finish() they go on without this rank, or get a PeerError."""
        self._stop_watching()
        _claims.release(self)
        if self._owns_comm:
            self._comm.close()  # and the gossip before it
        self._gossip.close()


def refuse_others(module: torch.nn.Module, rows: List[Row], optimizer: Any) -> None:
    """What would make that of each step which another one has made already, or no step at all."""
    _claims.refuse_beside((_claims.EXCHANGE, _claims.ATTACHED, _claims.GOSSIP, _claims.OUTER), rows)
    if any(isinstance(part, DistributedDataParallel) and dist.get_world_size(part.process_group) > 1 for part in module.modules()):
        raise Error("a DistributedDataParallel averages the gradients of its ranks in every step, so that no step is a rank's own; give "
                    "GossipDataParallel the module inside")
    if optimizer is None:
        raise Error("optimizer=None: GossipDataParallel needs the optimizer, whose steps it takes")
    _optimiser.refuse_others(optimizer)
    if not _optimiser.steps_any_of(optimizer, [row.parameter for row in rows]):
        raise Error(f"the optimizer does not have {rows[0].name}, nor any other parameter of this module; give GossipDataParallel the "
                    "optimizer that trains it")
