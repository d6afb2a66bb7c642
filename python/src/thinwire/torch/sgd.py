"""SGD that leaves its momentum to a scheme which applies it before it sends."""

from typing import Any, Optional, Set, Tuple

import torch

from ..errors import Error


class SGD(torch.optim.Optimizer):
    """torch.optim.SGD, in whose place it stands, for any scheme:

        optimizer = thinwire.torch.SGD(model.parameters(), 0.1, momentum=0.9, weight_decay=1e-4)
        thinwire.torch.attach(ddp, "dgc", optimizer=optimizer)

    Where the scheme applies momentum itself, as dgc does, it applies this one: gradients then are directions, and only the
    weight decay runs through a buffer here, with the same momentum, on all ranks alike and outside of what is compressed.
    With momentum=0 the scheme applies what its spec says. Without a scheme, and with one that leaves momentum to the
    optimiser, it is applied here. `compressor` is for an optimiser that is made after attach(), and need not be told."""

    _scheme, _applied = "", (0.0, False)  # by which scheme, and what: momentum, and whether in Nesterov's form
    left_to: Any = None  # whose scheme it is
    directed: Optional[Set[int]] = None  # which parameters it has: others keep the momentum here. None: nobody has said, and so all

    def __init__(self, params: Any, lr: float = 1e-3, momentum: float = 0.0, dampening: float = 0.0,
                 weight_decay: float = 0.0, nesterov: bool = False, *, compressor: Any = None, **others: Any):
        refuse(lr, momentum, dampening, weight_decay, nesterov, others)
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "nesterov": nesterov})
        if compressor is not None:
            applied = getattr(compressor, "momentum", None)
            if applied is None:
                raise Error(f"compressor={compressor!r}: it is what attach() gave, or nothing")
            self.leave_momentum_to(getattr(compressor, "spec", "the scheme").split(":")[0], *applied)

    @property
    def takes_directions(self) -> bool:
        """Whether gradients come with their momentum applied: those of the scheme's parameters."""
        return bool(self._applied[0])

    def own_momentum(self) -> Tuple[float, bool]:
        """What it was made with, the same for all groups of parameters."""
        of_groups = {(group["momentum"], bool(group["nesterov"])) for group in self.param_groups}
        if len(of_groups) == 1:
            return of_groups.pop()
        momenta = sorted({momentum for momentum, _ in of_groups})
        raise Error(f"the groups of this SGD have the momenta {momenta}, or Nesterov's form in some alone, and a scheme that "
                    "applies momentum has one for all: give all groups the same")

    def take_back(self) -> None:
        """The scheme is over."""
        self._scheme, self._applied, self.left_to, self.directed = "", (0.0, False), None, None

    def leave_momentum_to(self, scheme: str, momentum: float, nesterov: bool) -> None:
        """`momentum` is what the scheme applies, and 0 where it applies none."""
        own, own_form = self.own_momentum() if momentum else (0.0, False)
        if own and (abs(own - momentum) > 1e-6 or own_form != nesterov):
            raise Error(f"this SGD has {in_words(own, own_form)}, and {scheme} applies {in_words(momentum, nesterov)} before it "
                        "sends: give both the same; attach(..., optimizer=optimizer) does, where the spec says none")
        self._scheme, self._applied = scheme, (momentum, nesterov)

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self.leave_momentum_to(self._scheme, *self._applied)  # a scheduler may have changed the momentum here
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.add_(self._direction(group, parameter), alpha=-group["lr"])
        return loss

    def _direction(self, group: dict, parameter: torch.Tensor) -> torch.Tensor:
        """What goes through the buffer: weight decay and, unless the scheme did that, the gradient."""
        given = parameter.grad
        directed = self.takes_directions and (self.directed is None or id(parameter) in self.directed)
        momentum, nesterov = self._applied if self.takes_directions else (group["momentum"], group["nesterov"])
        if not momentum or (directed and not group["weight_decay"]):
            return given.add(parameter, alpha=group["weight_decay"]) if group["weight_decay"] else given
        force = parameter * group["weight_decay"]
        if not directed:
            force += given
        velocity = self._through_buffer(parameter, force, momentum, nesterov)
        return given + velocity if directed else velocity

    def _through_buffer(self, parameter: torch.Tensor, force: torch.Tensor, momentum: float, nesterov: bool) -> torch.Tensor:
        state = self.state[parameter]
        buffer = state.get("momentum_buffer")
        if buffer is None:
            buffer = state["momentum_buffer"] = torch.zeros_like(parameter)
        buffer.mul_(momentum).add_(force)
        return force.add(buffer, alpha=momentum) if nesterov else buffer


def in_words(momentum: float, nesterov: bool) -> str:
    return f"momentum={momentum:g}{' in Nesterov form' if nesterov else ''}"


def refuse(lr: Any, momentum: Any, dampening: Any, weight_decay: Any, nesterov: Any, others: dict) -> None:
    for name, value in (("lr", lr), ("momentum", momentum), ("weight_decay", weight_decay)):
        if isinstance(value, bool) or not isinstance(value, (int, float, torch.Tensor)) or not 0 <= float(value) < float("inf"):
            raise Error(f"thinwire.torch.SGD: {name}={value!r}: want a number from 0 up")
    for name in [*others, *(["dampening"] if dampening else [])]:
        raise Error(f"thinwire.torch.SGD has no {name}: it takes lr, momentum, weight_decay and nesterov, as torch.optim.SGD "
                    "does, and compressor")
    if nesterov and not momentum:
        raise Error("thinwire.torch.SGD: nesterov=True is a form of momentum, and momentum is 0 here: want one above 0")
