"""attach_fsdp2(): fully_shard inside a site, thinwire between sites."""

import contextlib
import math
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple, Union

import torch
import torch.distributed as dist

from ..comm import Comm
from ..errors import Error
from ..planning import GRADIENTS
from ..spec import of_part, with_option
from ..tcp import Tcp
from . import _adam, _auto, _counts, _optimiser, _state, _transport
from ._parameters import DTYPES, Row, local
from ._passes import at_the_end, this_pass
from ._pinned import Pinned, Seen
from ._steps import Stepping, nonfinite_of
from .compressor import RATIO_IS_KNOWN, Compressor, announce, dtype_of, refuse_options


COUNTED = ("steps", "steps_warmup", "message_fp32", "message_packet")


class Shard(NamedTuple):
    """What this rank has of a sharded module's gradients: a buffer with a piece of each parameter, one behind the other.

    A piece is some of the parameter's first dimension, and padded to what the first rank has of it."""

    rows: List[Row]
    begins: List[int]  # of each row, in the buffer
    size: int
    left_out: Dict[str, str]


def shard_of(parameters: Any, names: Dict[int, str]) -> Shard:
    """`parameters` are FSDP's own of a module. It reduces those that are trained, in their order."""
    shard, size = Shard([], [], 0, {}), 0
    for one in parameters:
        if not one.sharded_param.requires_grad:
            continue
        name, shape = names[id(one.sharded_param)], tuple(one.sharded_size)
        if 0 in shape:
            shard.left_out[name] = "empty on this rank"
        else:
            shard.rows.append(Row(name, one.sharded_param, tuple(range(len(shape))), shape))
            shard.begins.append(size)
        size += math.prod(one.padded_sharded_param_size)
    return shard._replace(size=size)


class ShardCompressor(Stepping):
    """Agrees with the ranks of other sites that have the same shard, on the gradients of one sharded module after
    another. It is made by `attach_fsdp2`. What this rank has of each parameter is a tensor of the scheme's.

    `skipped` is whether some rank's gradient was not finite in the last backward pass, the same on all ranks of all
    sites, as with `Compressor`."""

    def __init__(self, shards: Dict[str, Shard], spec: str, comm: Comm, owns_comm: bool, group: Any, inside: Any, *,
                 optimizer: Optional[torch.optim.Optimizer] = None, scaler: Any = None, nonfinite: Optional[str] = None,
                 expect_ratio: Optional[float] = None):
        """`group` is torch's between sites, and `inside` the one of the ranks of this site."""
        self.spec = _optimiser.with_its_momentum(optimizer, spec)
        self._shards, self._comm, self._owns_comm = shards, comm, owns_comm
        self._group, self._inside, self._expect_ratio = group, inside, expect_ratio
        self._pass, self._good = -1, True
        self._failed: Optional[BaseException] = None  # in the pass under way, on this rank
        self._memory = Pinned()
        self._given = _optimiser.innermost(optimizer)
        self._passes = self._passes_skipped = 0
        names = [name for shard in shards.values() for name in (*(row.name for row in shard.rows), *shard.left_out)]
        spec = with_option(self.spec, "overlap", "off")  # backward waits for each, so none needs threads of its own
        with contextlib.ExitStack() as unless_all_do:
            self._compressors: Dict[str, Compressor] = {}
            for name, shard in shards.items():
                if shard.rows:
                    self._compressors[name] = Compressor(
                        shard.rows, shard.left_out, of_part(spec, [row.name for row in shard.rows], names), comm, owns_comm=False,
                        optimizer=optimizer, scaler=scaler, nonfinite=nonfinite, group=group)
                    unless_all_do.callback(self._compressors[name].close)
            unless_all_do.pop_all()
        self.nonfinite = nonfinite_of(nonfinite, scaler)

    # Steps

    def _exchange(self, name: str, values: torch.Tensor) -> None:
        """FSDP's hook: `values` are what this rank has of the module's gradients, reduced inside the site. What fails is raised at
        the end of the pass, until when this site's other ranks want this one for FSDP's own exchanges."""
        if self._pass != this_pass():
            self._pass, self._good, self._failed = this_pass(), True, None
            at_the_end(self._finish)
        if self._failed is not None:
            return
        try:
            self._refuse(name, values)
            good = self._exchanged(name, values)
        except BaseException as error:
            self._break_off(error)
            self._failed = error
            return
        if not good:
            values.zero_()
        self._good = self._good and good

    def _exchanged(self, name: str, values: torch.Tensor) -> bool:
        if name not in self._compressors:
            return True
        seen, begins = Seen(values, self._memory, name), self._shards[name].begins
        seen.wait()
        first, size = seen.values.data_ptr(), values.element_size()
        addresses = [first + size * begin for begin in begins]
        self._compressors[name].look_at_accumulated()
        self._compressors[name].submit_all(range(len(begins)), addresses, dtype_of(values))
        good = self._compressors[name].finish()
        if good:
            self._memory.give(seen.given())
        return good

    def _refuse(self, name: str, values: torch.Tensor) -> None:
        if values.dtype not in DTYPES:
            raise Error(f"{name}: its gradients are {values.dtype}; attach_fsdp2 takes floating-point ones of 16, 32 and 64 bits")
        if values.numel() != self._shards[name].size:
            raise Error(f"{name}: FSDP reduced {values.numel()} elements of its gradients, and its parameters that were trained "
                        f"at attach_fsdp2() have {self._shards[name].size} on this rank; attach again after freezing or thawing, "
                        "and freeze those that no step uses")

    def _finish(self) -> None:
        """The end of the pass. The ranks of a site have other shards, and decide together."""
        counts = dict.fromkeys(COUNTED, 0.0) if self._failed is not None else self._sums()
        known = counts["steps"] - counts["steps_warmup"] >= RATIO_IS_KNOWN
        told = torch.tensor([self._failed is not None, not self._good, known, counts["message_fp32"], counts["message_packet"]],
                            dtype=torch.float64, device=_transport.device_of(self._inside) if self._inside is not None else "cpu")
        if self._inside is not None:
            dist.all_reduce(told, group=self._inside)
        failed, bad, known, fp32, packet = told.tolist()
        if failed:
            self._raise_failure()
        self.count(not bad)
        self._passes, self._passes_skipped = self._passes + 1, self._passes_skipped + self.skipped
        if known and packet:
            self._refuse_ratio(fp32 / packet)
        if self.skipped:
            self._skip()

    def _raise_failure(self) -> None:
        """Of this rank, or of another one of this site."""
        own, self._failed = self._failed, None

        def tell() -> None:
            if own is not None:
                raise own if isinstance(own, Exception) else Error(f"a step was broken off: {own!r}")

        try:
            tell() if self._inside is None else _transport.gathered_by_all(self._inside, tell)
        except Exception as error:
            self._break_off(error)
            raise error if own is None or isinstance(own, Error) else own

    def _skip(self) -> None:
        for row in self._rows():
            if row.parameter.grad is not None:
                local(row.parameter.grad).fill_(self._fill)
        if self.raises_skipped:
            self._raise_skipped()

    def _break_off(self, error: BaseException) -> None:
        for compressor in self._compressors.values():
            compressor._break_off(error)
        if not self._comm.closed:
            self._comm.leave()

    # Counts

    def _rows(self) -> Iterator[Row]:
        for shard in self._shards.values():
            yield from shard.rows

    @property
    def momentum(self) -> Tuple[float, bool]:
        """The momentum that the scheme applies itself, and whether in Nesterov's form; 0 where the optimiser does."""
        return next((one.momentum for one in self._compressors.values()), (0.0, False))

    def plan(self) -> Dict[str, str]:
        """What becomes of this rank's piece of each parameter after any warm-up."""
        plan: Dict[str, str] = {}
        for name, shard in self._shards.items():
            plan.update(self._compressors[name].plan() if name in self._compressors else shard.left_out)
        return plan

    def _sums(self) -> Dict[str, float]:
        """Of the modules. All of them take every step, but for one that a pass does not use."""
        total: Dict[str, float] = dict.fromkeys(COUNTED, 0)
        for compressor in self._compressors.values():
            for name, value in compressor._live().stats().items():
                total[name] = max(total[name], value) if name.startswith("steps") and name in total else total.get(name, 0) + value
        return total

    def stats(self) -> Dict[str, float]:
        """Backward passes that sent something, and what this rank has sent in them: as Compressor.stats() names them."""
        sums: Dict[str, float] = {**dict.fromkeys(("bytes_sent", "bytes_dense", "seconds_wait"), 0.0), **self._sums()}
        return _counts.with_ratios({**sums, "steps": self._passes, "steps_skipped": self._passes_skipped})

    def summary(self) -> str:
        """The stats in a line."""
        return _counts.in_a_line(self.spec, self.stats())

    def banner(self) -> str:
        """What is about to happen on this rank, in a line."""
        elements = sum(row.elements for row in self._rows())
        return _counts.what_happens(self.spec, self.plan(), elements, self.momentum[0])

    # State

    def state_dict(self) -> Dict[str, Any]:
        """What the schemes remember on this rank, between steps, as plain tensors ``"MODULE|residual/PARAMETER"``."""
        state = {_state.ABOUT + key: value for key, value in self._about().items()}
        for module, compressor in self._compressors.items():
            part = _state.to_dict(compressor._live().state(), {})
            state.update({f"{module}|{key}": value for key, value in part.items()})
        return state

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        """Takes that, on the same rank of as many. A collective: all ranks of all sites load theirs, or none does."""
        with contextlib.ExitStack() as unless_all_do:

            def load() -> None:
                _state.check(state, self._about())
                self._refuse_other_shards(state)
                for module, compressor in self._compressors.items():
                    reducer = compressor._live()
                    unless_all_do.callback(reducer.load_state, reducer.state())
                    compressor.load_into(reducer, _state.from_dict(self._part(state, module)))

            _transport.gathered_by_every(self._group, self._inside, load)
            unless_all_do.pop_all()

    def optimizer_state_dict(self) -> Dict[str, Any]:
        """As Compressor.optimizer_state_dict(), of this rank's shards: a collective of all ranks of all sites."""
        inner = self._given
        with contextlib.ExitStack() as while_it_is_asked:
            for compressor in self._compressors.values():
                inner = while_it_is_asked.enter_context(compressor.moments_in_optimizer())
            state: Dict[str, Any] = _adam.owner(inner).state_dict()
        return state

    def _refuse_other_shards(self, state: Dict[str, Any]) -> None:
        there, here = state.get(_state.ABOUT + "shard"), self._about()["shard"]
        if there != here:
            raise Error(f"this is the state of shard {there} inside a site, and that of {here} is wanted: each rank saves its "
                        "own, and loads that", 9, "TW_ERROR_STATE")

    @staticmethod
    def _part(state: Dict[str, Any], module: str) -> Dict[str, Any]:
        begin = f"{module}|"
        return {key[len(begin):]: value for key, value in state.items() if key.startswith(begin)}

    def _about(self) -> Dict[str, Any]:
        shard = f"{dist.get_rank(self._inside)} of {dist.get_world_size(self._inside)}" if self._inside is not None else "0 of 1"
        return {"spec": self.spec, "rank": self._comm.rank, "size": self._comm.size, "order": {}, "shard": shard,
                "tensors": [row.name for row in self._rows()]}

    def close(self) -> None:
        """Leaves the other sites."""
        if self._owns_comm:
            self._comm.close()  # a step under way is given up with the group
        for compressor in self._compressors.values():
            compressor.close()


def sharded_modules(model: torch.nn.Module) -> Iterator[Tuple[str, Any, Any]]:
    """Those that fully_shard was called on and that have parameters of their own, by name."""
    for name, module in model.named_modules():
        if not hasattr(module, "_get_fsdp_state"):
            continue
        state = module._get_fsdp_state()
        groups = getattr(state, "_fsdp_param_groups", None)
        if groups is None:
            groups = [state._fsdp_param_group] if getattr(state, "_fsdp_param_group", None) else []
        if len(groups) > 1:
            raise Error(f"{name or 'model'} has parameters that fully_shard put on several meshes, of which FSDP has no hook "
                        "for thinwire; shard modules apart whose parameters have different meshes")
        if groups:
            yield name or "model", module, groups[0]


def refuse_what_fsdp_exchanges(name: str, module: Any, parameters: Any) -> None:
    if not hasattr(module, "set_all_reduce_hook"):
        raise Error("this torch has no FSDPModule.set_all_reduce_hook, which attach_fsdp2 needs; 2.7 and later have it")
    if getattr(parameters, "_is_hsdp", False):
        raise Error(f"{name} was sharded over a mesh of two dimensions, and FSDP itself exchanges between the sites before "
                    "thinwire could; give fully_shard the mesh inside a site alone, such as mesh[\"rank\"], and the group "
                    "between sites to attach_fsdp2")


def inside_of(parameters: Any) -> Any:
    """The process group of the ranks that share a module's parameters; None where it is one rank."""
    mesh = getattr(parameters, "mesh_info", None)
    group = getattr(mesh, "shard_process_group", None)
    return group if group is not None and dist.get_world_size(group) > 1 else None


def attach_fsdp2(model: torch.nn.Module, spec: str, group: Any, *, optimizer: Optional[torch.optim.Optimizer] = None,
                 scaler: Any = None, transport: Union[str, Tcp, Comm] = "tcp", timeout: float = 60.0,
                 patience: float = 1800.0, nonfinite: Optional[str] = None, expect_ratio: Optional[float] = None,
                 banner: bool = True) -> ShardCompressor:
    """Has the gradients of a model that `fully_shard` sharded inside each site exchanged between sites with a scheme.

    A collective. `group` is the process group of the ranks of all sites that have the same shard:

        mesh = init_device_mesh("cpu", (sites, ranks), mesh_dim_names=("site", "rank"))
        fully_shard(model, mesh=mesh["rank"])
        attach_fsdp2(model, "powersgd:rank=16", mesh["site"].get_group())

    All sites have to begin with the same weights. Inside a site the reduction is FSDP's, exact; between sites each
    module's gradients are compressed in the middle of the backward pass, which waits for it. A parameter is one tensor of
    the scheme's, under the name it has with `attach`, in the shape that this rank has of it. Where gradients accumulate
    (set_requires_gradient_sync(False)) nothing is sent before the last pass. The other arguments are those of `attach`;
    the scheme is taken whether or not it is faster than FSDP's own exchange. What the spec "auto" chooses is the same for all
    shards, and stays."""
    model = getattr(model, "_orig_mod", model)  # of torch.compile
    found = list(sharded_modules(model))
    if not found:
        raise Error("no module here is one of fully_shard's; attach() is for DistributedDataParallel")
    for name, module, parameters in found:
        refuse_what_fsdp_exchanges(name, module, parameters)
        module.reshard()  # a forward pass without a backward pass leaves whole parameters under the names
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    shards = {name: shard_of(parameters.fsdp_params, names) for name, _, parameters in found}
    inside = max((inside_of(parameters) for _, _, parameters in found), key=lambda one: dist.get_world_size(one) if one else 1)
    made: List[ShardCompressor] = []
    limits, asked = _transport.Limits(timeout, patience), spec
    spec = _auto.settled(spec, model, lambda: [row for shard in shards.values() for row in shard.rows], optimizer, GRADIENTS,
                         group=group, transport=transport, limits=limits, banner=banner, inside=inside).spec

    def make() -> None:
        made.append(_transport.with_comm(
            transport, group, limits,
            lambda comm: ShardCompressor(shards, spec, comm, comm is not transport, group, inside, optimizer=optimizer,
                                         scaler=scaler, nonfinite=nonfinite, expect_ratio=expect_ratio),
            lambda: refuse_options(spec, optimizer, nonfinite, scaler)))

    def close() -> None:
        for one in made:
            one.close()

    with _auto.naming_file(asked), contextlib.ExitStack() as unless_all_do:
        unless_all_do.callback(close)
        if inside is None:
            make()
        else:
            _transport.gathered_by_all(inside, make)
        unless_all_do.pop_all()
    compressor = made[0]
    for name, module, _ in found:
        module.set_all_reduce_hook(lambda values, name=name: compressor._exchange(name, values))
    if banner:
        announce(compressor, dist.get_rank())
    return compressor
