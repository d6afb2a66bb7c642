"""attach(): a DistributedDataParallel whose gradients are agreed on by thinwire."""

import os
import warnings
import weakref
from typing import Any, Dict, Iterable, List, Optional, Set, Tuple, Union

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from ..comm import Comm
from ..errors import Error, SpecError
from ..planning import GRADIENTS
from ..spec import name_of, options_of
from ..tcp import Tcp
from . import _auto, _claims, _optimiser, _parameters, _transport
from ._bucket import Bucket, for_the_scheme
from ._pinned import Arrivals, Pinned
from ._unfit import Unfit
from .compressor import Compressor, announce, dtype_of, refuse_options

# DDP takes a hook once. The next attach() to the same module gives the hook that is there another compressor.
_bridges: "weakref.WeakKeyDictionary[DistributedDataParallel, _Bridge]" = weakref.WeakKeyDictionary()


def _thinwire_hook(state, bucket):  # type: ignore[no-untyped-def]  # no annotations, and these names: DDP looks at both
    return state.take(bucket)


class _Bridge:
    """Takes the buckets of a backward pass as they become ready, and gives them back together.

    DDP calls the hook for its buckets in order. The library exchanges the gradients meanwhile, on its own threads; the
    hook of the last bucket waits for it. So no thread of Python's is needed, and no lock of Python's is held."""

    def __init__(self, group: Any, parameters: List[torch.Tensor], may_be_unused: bool):
        self.compressor: Compressor
        self._group = group
        self._pending: List[Bucket] = []
        self._arrivals: Arrivals[Bucket] = Arrivals()
        self._pinned = Pinned()
        self._used = self._watch(parameters) if may_be_unused else None

    @staticmethod
    def _watch(parameters: List[torch.Tensor]) -> Set[int]:
        """DDP gives zeros for a parameter that the pass did not use, and does not say so."""
        used: Set[int] = set()
        for parameter in parameters:
            parameter.register_hook(lambda gradient, key=id(parameter): used.add(key))
        return used

    def serve(self, compressor: Compressor) -> None:
        """From now on, and no more the one before."""
        before = getattr(self, "compressor", None)
        self.compressor, self._pending, self._arrivals = compressor, [], Arrivals()
        if before is not None:
            before.close()

    def __del__(self) -> None:
        if self._pending:
            self.compressor.give_up()

    def __reduce__(self) -> Any:
        """A copy of a module has no hook in DDP, and this comes along with it all the same."""
        warnings.warn("a copy of a DistributedDataParallel, and one that is loaded, exchanges by torch itself until attach() is "
                      "called for it", stacklevel=2)
        return type(None), ()

    def take(self, bucket: Any) -> "torch.futures.Future[torch.Tensor]":
        """What happens in here besides the library's calls is short, and Ctrl-C may come in it all the same."""
        try:
            return self._taken(bucket)
        except BaseException as error:
            self.compressor._break_off(error)
            raise

    def _taken(self, bucket: Any) -> "torch.futures.Future[torch.Tensor]":
        fallback = self.compressor.fallback
        if self.compressor.spec_is_dense or not for_the_scheme(bucket):
            future = self._mean_by_torch(bucket.buffer())
        elif fallback:
            future = fallback.take(bucket)
        else:
            future = self._take(Bucket(bucket, self._pinned))
        if bucket.is_last() and not self.compressor.spec_is_dense:
            self._finish()
        return future

    def _mean_by_torch(self, buffer: torch.Tensor) -> "torch.futures.Future[torch.Tensor]":
        buffer.div_(dist.get_world_size(self._group))
        work = dist.all_reduce(buffer, group=self._group, async_op=True)
        return work.get_future().then(lambda future: future.value()[0])

    def _take(self, bucket: Bucket) -> "torch.futures.Future[torch.Tensor]":
        self._pending.append(bucket)
        for arrived in self._arrivals.after(bucket):
            self._send(arrived)
        return bucket.future

    def _send(self, bucket: Bucket) -> None:
        with bucket.beside():  # a scaler is asked for its scale
            self._submit(bucket)

    def _submit(self, bucket: Bucket) -> None:
        layout, dtype = self.compressor.layout_of(bucket.parameters), dtype_of(bucket.values)
        if self._used is None:  # to make a tensor of each takes longer than all else here
            self.compressor.submit_all(layout.indices, bucket.addresses(layout.begins), dtype)
            return
        for index, (parameter, values), address in zip(layout.indices, bucket.slices(), bucket.addresses(layout.begins)):
            has_gradient = id(parameter) in self._used or bool(values.any())
            self.compressor.submit_all([index], [address], dtype, absent=not has_gradient)

    def _finish(self) -> None:
        fallback = self.compressor.fallback
        if fallback:
            self.compressor.refuse_accumulated()
            good = fallback.finish(self.compressor._scale, self.compressor._fill, self._used is not None)
            self.compressor.count(good)
        else:
            good = self._finish_scheme()
        if self._used is not None:
            self._used.clear()
        if self.compressor.raises_skipped:
            self._raise_later()

    def _finish_scheme(self) -> bool:
        for bucket in self._arrivals.rest():
            self._send(bucket)
        pending, self._pending = self._pending, []
        good = self.compressor.finish()
        if good:
            self.compressor.go_on(pair for bucket in pending for pair in bucket.slices())
        for bucket in pending:
            bucket.complete(good, self.compressor._fill)
        return good

    def _raise_later(self) -> None:
        """DDP does not survive an exception in a hook. It has two things left to do when the hook of the last bucket
        returns, of which the second is a callback at the end of the pass; what that in turn queues comes after it."""
        queue = torch.autograd.Variable._execution_engine.queue_callback
        queue(lambda: queue(self.compressor._raise_skipped))


def attach(ddp: DistributedDataParallel, spec: str, *, optimizer: Optional[torch.optim.Optimizer] = None,
           scaler: Any = None, transport: Union[str, Tcp, Comm] = "tcp", timeout: float = 60.0, patience: float = 1800.0,
           nonfinite: Optional[str] = None, expect_ratio: Optional[float] = None, fallback: Optional[bool] = None,
           banner: bool = True) -> Compressor:
    """Has `ddp` exchange its gradients with the scheme that `spec` names, such as ``"dgc"``.

    A collective: all ranks of the module's process group call it, before the first backward pass.

    optimizer     whose learning rate and momentum are looked at. From torch 2.0 on it is found by itself when it steps
    scaler        a GradScaler: a step that is not finite is given to it as NaN, which it knows to skip; a disabled one is none
    transport     "tcp", connections of thinwire's own; "mpi" under mpirun; a thinwire.Tcp with options, or a Comm
    timeout       seconds until a rank of which nothing is heard is a PeerError: its process is dead or stopped
    patience      seconds until one that is there but busy is: it evaluates, saves or compiles. "mpi" cannot tell the two
                  apart, and waits for the longer of both
    nonfinite     what becomes of a step in which some rank had NaN or infinity: "skip" (gradients of zero, on which an
                  optimiser with momentum or weight decay still moves; Compressor.skipped tells, and ten in a row raise),
                  "raise" (NonFinite, after backward, on all ranks), "nan" (as with a scaler)
    expect_ratio  an Error is raised if messages are not so many times smaller than fp32
    fallback      whether to measure first what the exchange of a step costs, and to leave it to torch's own all-reduce where
                  that is faster than the scheme: yes, unless THINWIRE_FALLBACK=off or expect_ratio says otherwise
    banner        rank 0 says in a line on stderr what is going to happen

    `dgc`, `sdagc`, `dgc-adam` and `onebit-adam` take the defaults of a run of 10,000 steps, unless `spec` comes from
    `thinwire.for_run`, which is told how many there will be.

    The spec "auto:steps=20000,pass_ms=120" has rank 0 plan (docs/planning.md): what it chooses for the optimizer, for so many
    steps whose passes take so long, and for the line that the ranks measure, all take. `rate=100Mbit,latency=1ms` says the
    line, and `keep=FILE` has a run that goes on take what it took.

    The spec "allreduce" leaves the exchange to torch. A second attach to the same module takes the place of the first."""
    ddp = _unless_refused(getattr(ddp, "_orig_mod", ddp))  # of torch.compile
    group = ddp.process_group

    def look() -> Tuple[List[_parameters.Row], Dict[str, str]]:
        _refuse_no_buckets(ddp)
        rows, left_out = _parameters.table_of(ddp.module, ddp.parameters_to_ignore)
        _claims.refuse_beside((_claims.EXCHANGE, _claims.GOSSIP), rows)
        return rows, left_out

    rows, left_out = _parameters.looked_by_all(group, look)
    limits = _transport.Limits(timeout, patience)
    asked = spec
    settled = _auto.settled(spec, ddp.module, lambda: rows, optimizer, GRADIENTS, group=group, transport=transport, limits=limits,
                            banner=banner)
    spec = settled.spec

    def made(comm: Optional[Comm]) -> Compressor:
        return Compressor(rows, left_out, spec, comm, optimizer=optimizer, scaler=scaler, nonfinite=nonfinite,
                          owns_comm=comm is not transport, expect_ratio=expect_ratio, group=group, may_fall_back=True)

    dense = _agreed_to_be_dense(spec, expect_ratio, group, rows)
    with _auto.naming_file(asked):
        compressor = made(None) if dense else _transport.with_comm(
            transport, group, limits, made,
            lambda: refuse_options(spec, optimizer, nonfinite, scaler))
    _optimiser.warn_of_unknown_rates(optimizer, spec)
    if not dense and all(_transport.gathered(group, _wanted(fallback, expect_ratio))):
        compressor.weigh()
    for bridge in [bridge for there, bridge in _bridges.items() if there.module is ddp.module]:
        bridge.compressor.end_unfit()
    if not dense:
        compressor.unfit = _unfit(ddp, rows, left_out)
    if ddp not in _bridges and not dense:  # a DDP without a hook is plain DDP
        _bridges[ddp] = _registered(ddp, compressor, [row.parameter for row in rows])
    if ddp in _bridges:
        _bridges[ddp].serve(compressor)
        _claims.claim(compressor, _claims.ATTACHED, rows)
    compressor.alone = dist.get_world_size(group) == 1
    if _auto.is_auto(asked):
        compressor.watch(settled, banner)
    if banner:
        announce(compressor, dist.get_rank(group))
    return compressor


def _unfit(ddp: DistributedDataParallel, rows: List[_parameters.Row], left_out: Iterable[str]) -> Unfit:
    """DDP itself exchanges what the scheme leaves out, and nobody what DDP was told to ignore."""
    named = dict(ddp.module.named_parameters())
    exchanged = [row.parameter for row in rows] + [named[name] for name in left_out]
    return Unfit(ddp.module, exchanged, "DistributedDataParallel",
                 "close() what attach() gave, or attach() to another DistributedDataParallel",
                 [named[name] for name in ddp.parameters_to_ignore if name in named])


def attach_alone(module: torch.nn.Module, spec: str, *, banner: bool = True, **more: Any) -> Compressor:
    """What the frameworks have in place of attach() on one process, where they wrap no module: nothing is exchanged, and
    a line says so. `more` is for attach()."""
    rows, left_out = _parameters.table_of(module)
    spec = _auto.EXACT if _auto.is_auto(spec) else spec
    known = {name: more[name] for name in ("optimizer", "nonfinite", "scaler") if name in more}
    compressor = Compressor(rows, left_out, spec, None, **known)
    compressor.alone = True
    if banner:
        announce(compressor, 0)
    return compressor


def _registered(ddp: DistributedDataParallel, compressor: Compressor, parameters: List[torch.Tensor]) -> _Bridge:
    bridge = _Bridge(ddp.process_group, parameters, ddp.find_unused_parameters or ddp.static_graph)
    try:
        ddp.register_comm_hook(bridge, _thinwire_hook)
    except RuntimeError as error:
        compressor.close()
        raise Error("this DistributedDataParallel has a communication hook already, another one or that of its mixed precision or "
                    f"of an optimiser in backward; attach() to one without: {error}") from error
    return bridge


def _wanted(fallback: Optional[bool], expect_ratio: Optional[float]) -> bool:
    """Who says how many times smaller messages have to be wants them compressed."""
    if fallback is None:
        return not expect_ratio and os.environ.get("THINWIRE_FALLBACK") != "off"
    return fallback


def _refuse_ratio(spec: str, expect_ratio: Optional[float]) -> None:
    if expect_ratio is None:
        return
    if not isinstance(expect_ratio, (int, float)) or not 0 < expect_ratio < float("inf"):
        raise Error(f"expect_ratio={expect_ratio!r}: want a number above 0, such as 50")
    if expect_ratio > 1 and name_of(spec) == "allreduce":
        raise Error(f"expect_ratio={expect_ratio:g}: allreduce sends everything as it is; name a scheme that compresses")


def _agreed_to_be_dense(spec: str, expect_ratio: Optional[float], group: Any, rows: List[_parameters.Row]) -> bool:
    """Whether torch does the exchange: on all ranks or on none. (That the schemes are the same their reducer sees to.)"""
    def here() -> bool:
        _refuse_options_of_torch(spec)
        _refuse_ratio(spec, expect_ratio)
        dense = name_of(spec) == "allreduce"
        if not dense:
            _refuse_devices(rows)
        return dense

    dense = _transport.gathered_by_all(group, here)
    if True in dense and False in dense:
        raise SpecError(f"rank {dense.index(True)} has the spec \"allreduce\", and rank {dense.index(False)} has another one: "
                        "give all ranks the same", 2, "TW_ERROR_SPEC")
    return dense[0]


def _refuse_options_of_torch(spec: str) -> None:
    if name_of(spec) == "allreduce" and options_of(spec):
        raise SpecError(f"allreduce: no option \"{next(iter(options_of(spec)))}\" here, where the dense exchange is torch's own; "
                        "write \"allreduce\"", 2, "TW_ERROR_SPEC")


def _refuse_devices(rows: List[_parameters.Row]) -> None:
    """The address of any other device's memory is none that the library could read."""
    for row in rows:
        if row.parameter.device.type not in ("cpu", "cuda"):
            raise Error(f"{row.name} is on {row.parameter.device}; thinwire takes parameters in the host's memory and on CUDA "
                        "devices, and the spec \"allreduce\" leaves all others to torch")


def _unless_refused(ddp: Any) -> DistributedDataParallel:
    if not isinstance(ddp, DistributedDataParallel):
        raise Error(f"attach() takes a DistributedDataParallel, and {type(ddp).__name__} is none; wrap the module first")
    return ddp


def _refuse_no_buckets(ddp: DistributedDataParallel) -> None:
    if getattr(ddp, "_use_python_reducer", False):
        raise Error("DDP's Python reducer gives its hooks no buckets; set torch._dynamo.config.optimize_ddp to True, or "
                    "to \"ddp_optimizer\"")
