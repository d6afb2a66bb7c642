"""What a scheme has to know of the optimiser: its learning rates, and whether it has momentum of its own."""

import warnings
import weakref
from importlib import import_module  # torch.optim takes the name of its module away
from typing import Any, Callable, Dict, Iterable, List, Optional

import torch

from ..errors import Error
from ..spec import adapts, defaults_of, gives_signs, minds_rates, name_of, number_of, options_of, sends_a_part, with_option


def momentum_of(optimiser: torch.optim.Optimizer) -> str:
    """In words, the momentum that the optimiser applies; "" for none."""
    for group in optimiser.param_groups:
        if group.get("momentum"):
            return f"momentum={group['momentum']:g}"
        if "betas" in group:
            return f"betas={tuple(group['betas'])}"
    return ""


def refuse_others(optimiser: Any) -> None:
    if optimiser is not None and not hasattr(optimiser, "param_groups"):
        raise Error(f"optimizer={optimiser!r}: want an optimiser of torch's, which has param_groups")


def innermost(optimiser: Any) -> Any:
    """Frameworks wrap an optimiser, and what is asked here is about the one inside."""
    while isinstance(getattr(optimiser, "optimizer", None), torch.optim.Optimizer):
        optimiser = optimiser.optimizer
    return optimiser


def kept_of(optimiser: Any, parameter: torch.Tensor) -> Dict[str, Any]:
    """What it remembers of a parameter; of one that is not torch's nothing may be known."""
    return getattr(optimiser, "state", {}).get(parameter) or {}


class Modes:
    """Those of optimizers, such as schedulefree's, that have other weights in the model for training than for evaluation, and
    swap them in train() and eval(). Which ones the model has they do not see: who puts others there tells them before."""

    def __init__(self, optimisers: Iterable[Any]):
        self._all = [one for one in map(innermost, optimisers) if trains(one) is not None]
        self._evaluated = [one for one in self._all if not trains(one)]

    def __len__(self) -> int:
        return len(self._all)

    def train(self) -> None:
        for one in self._all:
            one.train()

    def evaluate(self) -> None:
        for one in self._all:
            one.eval()

    def back(self) -> None:
        """To what they were when this was made."""
        for one in self._evaluated:
            one.eval()


def trains(optimiser: Any) -> Optional[bool]:
    """Whether the model has the weights to train; None of an optimizer that has no others."""
    said = [getattr(optimiser, "train_mode", None), *(group.get("train_mode") for group in optimiser.param_groups)]
    known = [bool(one) for one in said if one is not None]
    return all(known) if known and callable(getattr(optimiser, "train", None)) else None


def with_its_momentum(optimiser: Optional[torch.optim.Optimizer], spec: str) -> str:
    """The spec with the momentum of a thinwire.torch.SGD, where the scheme has one by default and the spec says none; or
    with the moments of a thinwire.torch.AdamW, of which it says nothing."""
    inner = innermost(optimiser)
    if adapts(spec) and hasattr(inner, "own_moments"):
        for name, value in inner.own_moments().items():
            spec = spec if name in options_of(spec) else with_option(spec, name, repr(float(value)))
        return spec
    own = None if gives_signs(spec) else getattr(inner, "own_momentum", None)
    momentum, nesterov = own() if own else (0.0, False)
    if not momentum or "momentum" in options_of(spec) or not float(defaults_of(name_of(spec)).get("momentum", 0)):
        return spec
    return with_option(with_option(spec, "momentum", repr(float(momentum))), "nesterov", "on" if nesterov else "off")


def settle(optimiser: Optional[torch.optim.Optimizer], spec: str, momentum: float, nesterov: bool, keeper: Any,
           parameters: List[torch.Tensor]) -> None:
    """`keeper` is whoever has the scheme, and says with take_back() when it is over. `parameters` are those of the scheme, or of
    one of several beside each other."""
    settle_momentum(optimiser, spec, momentum, nesterov)
    inner = innermost(optimiser)
    warn_of_late_gradients(inner, spec)
    if not hasattr(inner, "left_to"):
        return
    inner.left_to = keeper
    inner.directed = {*(inner.directed or ()), *map(id, parameters)}
    if gives_signs(spec) or (hasattr(inner, "leave_moments_to") and not adapts(spec)):
        inner.take_back()


def take_back(optimiser: Optional[torch.optim.Optimizer], keeper: Any) -> None:
    """What the optimiser left to the scheme of `keeper`, which is over, is its own again."""
    inner = innermost(optimiser)
    if getattr(inner, "left_to", None) is keeper:
        inner.take_back()


def settle_momentum(optimiser: Optional[torch.optim.Optimizer], spec: str, momentum: float, nesterov: bool) -> None:
    """A scheme that corrects momentum gives a direction, and no gradient to take moments of: thinwire.torch.SGD leaves its
    momentum to the scheme, and others that have any are refused."""
    inner = innermost(optimiser)
    if gives_signs(spec):
        refuse_momentum_beside_signs(inner, name_of(spec))
        return
    if adapts(spec) and hasattr(inner, "leave_moments_to"):
        inner.leave_moments_to(name_of(spec), {name: number_of(spec, name) for name in ("momentum", "beta2", "epsilon")})
        return
    if hasattr(inner, "leave_momentum_to") and not adapts(spec):
        inner.leave_momentum_to(name_of(spec), momentum, nesterov)
        return
    if inner is None or not momentum or not momentum_of(inner):
        return
    scheme, name = name_of(spec), type(inner).__name__
    if adapts(spec):
        raise Error(f"{scheme} divides by Adam's moments before it sends, and {name} has {momentum_of(inner)}: write "
                    f"thinwire.torch.AdamW in place of {name}, which leaves the moments to {scheme}")
    for_adam = "dgc-adam, " if hasattr(inner, "leave_moments_to") else ""
    instead = (f"with {name} take {for_adam}powersgd:rank=16, qsgd or fp8" if "betas" in inner.param_groups[0] else
               f"write thinwire.torch.SGD in place of {name}, which leaves it to {scheme}, or give {name} momentum=0")
    raise Error(f"{scheme} applies momentum={momentum:g} before it sends, and {name} has {momentum_of(inner)}: it would be "
                f"applied twice; {instead}")


def refuse_momentum_beside_signs(inner: Any, scheme: str) -> None:
    """What is left to do is a step of plain SGD, whose weight decay then is one of its own."""
    if inner is not None and momentum_of(inner):
        raise Error(f"{scheme} gives the signs of a momentum of its own, and {type(inner).__name__} has {momentum_of(inner)}: "
                    "write torch.optim.SGD(..., momentum=0), whose weight_decay is applied beside the signs")


def rates_of(optimiser: torch.optim.Optimizer, parameters: List[torch.Tensor]) -> Optional[List[float]]:
    """The learning rate of each parameter; None where the optimiser does not have all of them."""
    rates = {id(p): float(group["lr"]) for group in optimiser.param_groups for p in group["params"]}
    found = [rates[id(p)] for p in parameters if id(p) in rates]
    return found if len(found) == len(parameters) else None


def refuse_unknown(optimiser: Optional[torch.optim.Optimizer], spec: str, names: Dict[str, torch.Tensor]) -> None:
    """A scheme that follows the learning rate needs that of every parameter; and an AdamW that leaves its moments, all of them."""
    if optimiser is None:
        return
    known = {id(p) for group in optimiser.param_groups for p in group["params"]}
    for name, parameter in names.items():
        if id(parameter) not in known:
            what = "has the moments" if adapts(spec) else "follows the learning rate"
            raise Error(f"{name_of(spec)} {what} of each parameter, and this {type(optimiser).__name__} "
                        f"does not have {name}; give it an optimiser of all of them")


def steps_any_of(optimiser: torch.optim.Optimizer, parameters: List[torch.Tensor]) -> bool:
    wanted = {id(p) for p in parameters}
    return any(id(p) in wanted for group in optimiser.param_groups for p in group["params"])


def registers_steps(when: str = "pre") -> Any:
    """What tells of every optimiser's steps, before they are taken or after ("post"): torch has it from 2.0 on."""
    return getattr(import_module("torch.optim.optimizer"), f"register_optimizer_step_{when}_hook", None)


def warn_of_unknown_rates(optimiser: Optional[torch.optim.Optimizer], spec: str) -> None:
    """What the scheme holds back would be weighed as if the rate never changed."""
    if optimiser is None and minds_rates(spec) and not registers_steps():
        warnings.warn(f"{name_of(spec)} follows the learning rate, and torch {torch.__version__} does not tell which optimiser "
                      "steps; pass optimizer=, or set revision=off", stacklevel=3)


def warn_of_late_gradients(inner: Any, spec: str) -> None:
    """Adam divides what comes late by what is usual then. docs/pytorch.md has what that costs."""
    if any("betas" in group for group in getattr(inner, "param_groups", ())) and sends_a_part(spec) and not adapts(spec):
        warnings.warn(f"{name_of(spec)} sends most of a gradient many steps late, and {type(inner).__name__} learns badly from "
                      "that: take dgc-adam with thinwire.torch.AdamW, powersgd:rank=16, qsgd or fp8", stacklevel=4)


def at_each_step(noticed: Callable[[Any], None], when: str = "pre") -> Callable[[], None]:
    """Has the bound method `noticed` told of every optimiser before it steps, or after it has ("post"), where torch can do
    that (from 2.0 on), for as long as its object lives. Gives what ends it."""
    register = registers_steps(when)
    if register is None:
        return lambda: None
    weakly = weakref.WeakMethod(noticed)

    def hook(optimiser: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        method = weakly()
        if method:
            method(optimiser)

    return register(hook).remove
