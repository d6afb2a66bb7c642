"""Exchange: gradients agreed on without DistributedDataParallel, one parameter after the other."""

import contextlib
import functools
import threading
import weakref
from typing import Any, Callable, Dict, Iterator, List, Optional, Set, Tuple, Union

import torch
import torch.distributed as dist

from .._owned import Closes
from ..comm import Comm
from ..errors import Error
from ..planning import GRADIENTS
from ..tcp import Tcp
from . import _auto, _claims, _parameters, _transport
from ._parameters import Row, is_shard, laid
from ._passes import at_the_end
from ._pinned import Arrivals, Pinned, Seen
from ._unfit import Unfit
from .compressor import Compressor, announce, refuse_options


# An Exchange lives until it is closed, or nobody has its module any more. The hooks do not hold it: Python's collector
# of cycles does not see them.
_exchanges: "weakref.WeakKeyDictionary[torch.nn.Module, Exchange]" = weakref.WeakKeyDictionary()


class Gradient(Seen):
    """Of one parameter, in the order in which this lies in memory."""

    def __init__(self, row: Row, memory: Pinned):
        self.parameter = row.parameter
        super().__init__(laid(row, row.parameter.grad), memory, row.name)


class Exchange(Closes):
    """Has the gradients of a module exchanged as its backward pass computes them, with no buckets in between.

    A collective: every rank of `group` makes one for its module, whose parameters all ranks have alike (those of rank 0
    are given to all). After ``loss.backward()`` each ``p.grad`` is the mean, or the direction to step in. A parameter that
    no rank has used so far has none. Gradients on a GPU are copied to the host's memory as they become ready, and back at
    the end of the pass. From torch 2.1 on. The other arguments are those of `attach`.

    It works until close(), or the end of a ``with`` over it, or as long as somebody has the module, whether or not
    somebody has the Exchange. A module has one at a time, and none of its parameters is in a DistributedDataParallel."""

    def __init__(self, module: torch.nn.Module, spec: str, *, group: Any = None,
                 optimizer: Optional[torch.optim.Optimizer] = None, scaler: Any = None,
                 transport: Union[str, Tcp, Comm] = "tcp", timeout: float = 60.0, patience: float = 1800.0,
                 nonfinite: Optional[str] = None, expect_ratio: Optional[float] = None, banner: bool = True):
        if not hasattr(torch.Tensor, "register_post_accumulate_grad_hook"):
            raise Error("Exchange needs torch 2.1 or later; attach() to a DistributedDataParallel works with all")

        def look() -> Tuple[List[Row], Dict[str, str]]:
            rows, left_out = _parameters.table_of(module)
            _refuse(rows, left_out)
            _parameters.refuse_without_memory(rows)
            _claims.refuse_beside((_claims.EXCHANGE, _claims.ATTACHED, _claims.GOSSIP), rows)
            return rows, left_out

        rows, left_out = _parameters.start_alike(module, group, look)
        limits, asked = _transport.Limits(timeout, patience), spec
        settled = _auto.settled(spec, module, lambda: rows, optimizer, GRADIENTS, group=group, transport=transport, limits=limits,
                                banner=banner)
        spec = settled.spec

        def made(comm: Comm) -> Compressor:
            return Compressor(rows, left_out, spec, comm, owns_comm=comm is not transport, optimizer=optimizer,
                              scaler=scaler, nonfinite=nonfinite, expect_ratio=expect_ratio, group=group)

        with _auto.naming_file(asked):
            self.compressor = _transport.with_comm(transport, group, limits, made,
                                                   lambda: refuse_options(spec, optimizer, nonfinite, scaler))
        if _auto.is_auto(asked):
            self.compressor.watch(settled, banner)
        self._rows = {id(row.parameter): row for row in rows}
        self._syncs, self._has_looked = True, False  # for a DistributedDataParallel
        self._under_way: Dict[int, Gradient] = {}
        self._in_use: Set[int] = set()  # what some rank has used so far
        self._before: Optional[Set[int]] = None  # of which the optimiser had moments before the first pass
        self._arrivals: Arrivals[Gradient] = Arrivals()
        self._memory, self._one_at_a_time = Pinned(), threading.Lock()
        self._pass: Callable[[], Any] = lambda: None  # what its end calls, as long as it lasts
        self._ends = [row.parameter.register_post_accumulate_grad_hook(ready_of(weakref.ref(self))).remove for row in rows]
        self.compressor.unfit = Unfit(module, [row.parameter for row in rows], "Exchange")
        _exchanges[module] = self
        _claims.claim(self.compressor, _claims.EXCHANGE, rows)
        if banner:
            announce(self.compressor, dist.get_rank(group))

    def __del__(self) -> None:
        if getattr(self, "_under_way", None):
            self.compressor.give_up()

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Backward passes in here accumulate, and send nothing. The next one outside sends the sum."""
        self._syncs = False
        try:
            yield
        finally:
            self._syncs = True

    def _ready(self, parameter: torch.Tensor) -> None:
        """Each device has a thread in which its hooks are called."""
        if not self._syncs:
            return
        with self._one_at_a_time:
            if id(parameter) in self._under_way or (self._under_way and self._pass() is None):
                raise Error("a backward pass before this one was broken off, and the ranks no longer agree on where they are; "
                            "close this Exchange and make another, on all ranks")
            if not self._under_way:
                if not self._has_looked:
                    _claims.refuse_averaged(list(self._rows.values()))
                    self._has_looked = True
                self._note_moments()
                finish = functools.partial(self._finish)
                self._pass = weakref.ref(finish)
                at_the_end(finish)
            self._set_out(parameter)

    def _set_out(self, parameter: torch.Tensor) -> None:
        if parameter.grad.stride() != parameter.stride():  # the table goes by how the parameter lies
            parameter.grad = torch.empty_like(parameter).copy_(parameter.grad)
        gradient = Gradient(self._rows[id(parameter)], self._memory)
        self._under_way[id(parameter)] = gradient
        for arrived in self._arrivals.after(gradient):
            self._submit(arrived)

    def _submit(self, gradient: Gradient) -> None:
        with gradient.beside():  # a scaler is asked for its scale
            self.compressor.submit(gradient.parameter, gradient.values)

    def _finish(self) -> None:
        """The end of the pass. What it did not use has what accumulated before, or nothing."""
        absent = []
        self.compressor.look_at_accumulated()
        for parameter in [row.parameter for key, row in self._rows.items() if key not in self._under_way]:
            if parameter.grad is not None:
                self._set_out(parameter)
            else:
                absent.append((parameter, torch.zeros_like(parameter, device="cpu")))
                self.compressor.submit(*absent[-1], absent=True)
        for gradient in self._arrivals.rest():
            self._submit(gradient)
        under_way, self._under_way = self._under_way, {}
        good = self.compressor.finish()
        if len(self._in_use) < len(self._rows):
            self._learn_uses(under_way)
        if not good:
            self._skip()
            return
        means = [(one.parameter, one.values) for one in under_way.values()]
        means += [(one, laid(self._rows[id(one)], mean)) for one, mean in absent]
        self.compressor.go_on(means)
        self._memory.give([pair for gradient in under_way.values() for pair in gradient.given()])
        for parameter, mean in absent:  # also one of zeros: on a rank that used it an optimiser moves it by its moments
            if self._is_moved(parameter):
                parameter.grad = mean.to(parameter.device)

    def _is_moved(self, parameter: torch.Tensor) -> bool:
        """What no rank has used so far no optimiser moves, and what was frozen since."""
        return id(parameter) in self._in_use and parameter.requires_grad

    def _note_moments(self) -> None:
        """Where a run goes on, an optimiser has those of what was used before, until a scheme takes them."""
        if self._before is None:
            state = getattr(self.compressor.inner_optimizer(), "state", {})
            self._before = {key for key, row in self._rows.items() if state.get(row.parameter)}

    def _learn_uses(self, used: Dict[int, Gradient]) -> None:
        """All ranks learn what some rank has used."""
        own = bytes(key in used or key in (self._before or ()) for key in self._rows)
        comm = self.compressor._comm
        for told in comm.allgather_alike(own) if comm is not None else [own]:
            self._in_use.update(key for key, is_used in zip(self._rows, told) if is_used)

    def _skip(self) -> None:
        for parameter in [row.parameter for row in self._rows.values()]:
            if parameter.grad is None and self._is_moved(parameter):
                parameter.grad = torch.empty_like(parameter)
            if parameter.grad is not None:
                parameter.grad.fill_(self.compressor._fill)
        if self.compressor.raises_skipped:
            self.compressor._raise_skipped()

    def close(self) -> None:
        """Ends the exchange: from now on a backward pass is the module's own."""
        for end in self._ends:
            end()
        for module in [module for module, exchange in _exchanges.items() if exchange is self]:
            del _exchanges[module]
        self.compressor.close()


def ready_of(exchange: "weakref.ref[Exchange]") -> Callable[[torch.Tensor], None]:
    """A parameter may outlive the module: its gradients are then told to be nobody's, and not left as they are."""
    def ready(parameter: torch.Tensor) -> None:
        there = exchange()
        if there is None:
            raise Error("nobody has the module any more that an Exchange was made for, and its parameters are trained; make "
                        "the Exchange for a module that is kept, or close() it first")
        there._ready(parameter)

    return ready


def _refuse(rows: List[Row], left_out: Dict[str, str]) -> None:
    for name, reason in left_out.items():
        if reason != "empty":
            raise Error(f"{name} cannot go through an Exchange ({reason}); attach() to a DistributedDataParallel takes it")
    for row in rows:
        if is_shard(row.parameter):
            raise Error(f"{row.name} is a shard of a parameter, and an Exchange takes whole ones; attach_fsdp2() is for what "
                        "fully_shard shards")
