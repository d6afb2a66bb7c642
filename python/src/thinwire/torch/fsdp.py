"""attach_fsdp2(): fully_shard inside a site, thinwire between sites."""

from typing import Any, Dict, Iterator, List, Optional, Tuple, Union

import torch

from ..comm import Comm
from ..errors import Error
from ..reducer import Reducer
from ..spec import minds_rates, name_of
from ..tcp import Tcp
from . import _optimiser, _state, _transport
from ._parameters import DTYPES
from .compressor import dtype_of, refuse_options


class ShardCompressor:
    """Agrees with the ranks of other sites that have the same shard, on the gradients of one sharded module after
    another. It is made by `attach_fsdp2`. Each module's shard is one flat tensor with a scheme of its own."""

    def __init__(self, spec: str, comm: Comm, owns_comm: bool, parameters: Dict[str, List[torch.Tensor]],
                 optimizer: Optional[torch.optim.Optimizer] = None):
        """`parameters` are those of each module, as the optimiser has them."""
        self.spec, self._comm, self._owns_comm = spec, comm, owns_comm
        self._parameters, self._optimiser = parameters, optimizer
        self._reducers: Dict[str, Reducer] = {}
        self._to_load: Optional[Dict[str, Any]] = None
        with Reducer(comm, spec, [("one", (1, 1))]) as like_all:  # a spec that is wrong is told now
            self._momentum = like_all.momentum[0]
        _optimiser.refuse_momentum(optimizer, spec, self._momentum)
        self._stop_watching = _optimiser.before_each_step(self._notice)

    def _notice(self, optimiser: torch.optim.Optimizer) -> None:
        """An optimiser is about to step. The first that steps these parameters is theirs."""
        if self._optimiser is None and _optimiser.steps_any_of(optimiser, sum(self._parameters.values(), [])):
            _optimiser.refuse_momentum(optimiser, self.spec, self._momentum)
            self._optimiser = optimiser

    def _tell_rate(self, name: str, reducer: Reducer) -> None:
        """Where the scheme has to know it. A module's shard is one tensor, and has one rate."""
        if not minds_rates(self.spec) or self._optimiser is None:
            return
        rates = set(_optimiser.rates_of(self._optimiser, self._parameters[name]) or ())
        if len(rates) > 1:
            raise Error(f"{name}: its parameters have the learning rates {sorted(rates)}, and {name_of(self.spec)} needs one for "
                        "a module that fully_shard was called on; give them one, shard them apart, or set revision=off")
        if rates:
            reducer.set_rates(list(rates))

    def _reducer(self, name: str, shard: torch.Tensor) -> Reducer:
        """Made when the first gradient of the module comes, which is when its size is known, on all ranks alike. The
        backward pass waits for it, so it needs no threads of its own."""
        if name not in self._reducers:
            spec = self.spec + ("," if ":" in self.spec else ":") + "overlap=off"
            self._reducers[name] = Reducer(self._comm, spec, [(name, (1, shard.numel()))])
            if self._to_load is not None:
                self._reducers[name].load_state(_state.from_dict(self._part(self._to_load, name)))
        return self._reducers[name]

    def _exchange(self, name: str, shard: torch.Tensor) -> None:
        if shard.device.type != "cpu" or shard.dtype not in DTYPES:
            raise Error(f"{name}: its gradients are {shard.dtype} on {shard.device}; attach_fsdp2 takes floating-point ones in "
                        "the host's memory")
        try:
            reducer = self._reducer(name, shard)
            self._tell_rate(name, reducer)
            reducer.submit(0, shard.data_ptr(), dtype_of(shard))
            if not reducer.wait():
                shard.fill_(float("nan"))
        except BaseException:
            if not self._comm.closed:
                self._comm.leave()
            raise

    def stats(self) -> Dict[str, float]:
        """The counts of all modules' schemes together, as Compressor.stats() names them."""
        total: Dict[str, float] = {}
        for reducer in self._reducers.values():
            for name, value in reducer.stats().items():
                total[name] = total.get(name, 0) + value
        return total

    def state_dict(self) -> Dict[str, Any]:
        """What the schemes remember on this rank, between steps, as plain tensors ``"MODULE|residual/MODULE"``."""
        state = {_state.ABOUT + key: value for key, value in self._about().items()}
        for module, reducer in self._reducers.items():
            state.update({f"{module}|{key}": value for key, value in _state.to_dict(reducer.state(), {}).items()})
        return state

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        """Takes that, on the same rank of as many; before the first backward pass, too."""
        _state.check(state, self._about())
        for module, reducer in self._reducers.items():
            reducer.load_state(_state.from_dict(self._part(state, module)))
        self._to_load = state

    @staticmethod
    def _part(state: Dict[str, Any], module: str) -> Dict[str, Any]:
        begin = f"{module}|"
        return {key[len(begin):]: value for key, value in state.items() if key.startswith(begin)}

    def _about(self) -> Dict[str, Any]:
        return {"spec": self.spec, "rank": self._comm.rank, "size": self._comm.size, "order": {}}

    def close(self) -> None:
        """Leaves the other sites."""
        self._stop_watching()
        for reducer in self._reducers.values():
            reducer.close()
        if self._owns_comm:
            self._comm.close()


def sharded_modules(model: torch.nn.Module) -> Iterator[Tuple[str, Any]]:
    """Those that fully_shard was called on and that have parameters of their own, by name."""
    for name, module in model.named_modules():
        groups = getattr(module._get_fsdp_state(), "_fsdp_param_groups", None) if hasattr(module, "_get_fsdp_state") else None
        if groups is None and hasattr(module, "_get_fsdp_state"):
            group = getattr(module._get_fsdp_state(), "_fsdp_param_group", None)
            groups = [group] if group else []
        if groups:
            yield name or "model", (module, groups[0])


def attach_fsdp2(model: torch.nn.Module, spec: str, group: Any, *, optimizer: Optional[torch.optim.Optimizer] = None,
                 transport: Union[str, Tcp, Comm] = "tcp", timeout: float = 60.0,
                 patience: float = 1800.0) -> ShardCompressor:
    """Has the gradients of a model that `fully_shard` sharded inside each site exchanged between sites with a scheme.

    A collective. `group` is the process group of the ranks of all sites that have the same shard:

        mesh = init_device_mesh("cpu", (sites, ranks), mesh_dim_names=("site", "rank"))
        fully_shard(model, mesh=mesh["rank"])
        attach_fsdp2(model, "topk:density=0.01", mesh["site"].get_group())

    All sites have to begin with the same weights. Inside a site the reduction is FSDP's, exact; between sites each
    module's shard is compressed by itself, in the middle of the backward pass, which waits for it. Where gradients
    accumulate (set_requires_gradient_sync(False)) nothing is sent before the last pass. A gradient that is not finite
    arrives as NaN on all sites. The optimiser's learning rate is told to sdagc, and its momentum refused beside a scheme
    that has its own: of `optimizer`, or of the first one that steps these parameters."""
    found = list(sharded_modules(model))
    if not found:
        raise Error("no module here is one of fully_shard's; attach() is for DistributedDataParallel")
    for name, (module, parameters) in found:
        if not hasattr(module, "set_all_reduce_hook"):
            raise Error("this torch has no FSDPModule.set_all_reduce_hook, which attach_fsdp2 needs; 2.7 and later have it")
        if getattr(parameters, "_is_hsdp", False):
            raise Error(f"{name} was sharded over a mesh of two dimensions, and FSDP itself exchanges between the sites before "
                        "thinwire could; give fully_shard the mesh inside a site alone, such as mesh[\"rank\"], and the group "
                        "between sites to attach_fsdp2")
    parameters = {name: [one.sharded_param for one in of_module.fsdp_params] for name, (_, of_module) in found}
    compressor = _transport.with_comm(
        transport, group, _transport.Limits(timeout, patience),
        lambda comm: ShardCompressor(spec, comm, comm is not transport, parameters, optimizer),
        lambda: refuse_options(spec, optimizer))
    for name, (module, _) in found:
        module.set_all_reduce_hook(lambda shard, name=name: compressor._exchange(name, shard))
    return compressor
