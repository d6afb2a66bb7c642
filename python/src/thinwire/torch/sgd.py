"""SGD for a scheme that has applied the momentum already."""

from typing import Any

import torch


class SGD(torch.optim.Optimizer):
    """Stochastic gradient descent whose gradients are directions: the scheme of `compressor` has their momentum in them.

    With a scheme that leaves momentum to the optimiser (`momentum` is then for this optimiser to apply) it is
    torch.optim.SGD. With one that applies momentum itself, such as dgc, only the weight decay runs through a buffer
    here, with the scheme's momentum: on all ranks alike, and outside of what is compressed."""

    def __init__(self, params: Any, lr: float, weight_decay: float = 0.0, momentum: float = 0.0, nesterov: bool = False,
                 *, compressor: Any):
        applied, nesterov_there = compressor.momentum
        self.takes_directions = bool(applied)
        if applied:
            momentum, nesterov = applied, nesterov_there
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay, "momentum": momentum, "nesterov": nesterov})

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.add_(self._direction(group, parameter), alpha=-group["lr"])
        return loss

    def _direction(self, group: dict, parameter: torch.Tensor) -> torch.Tensor:
        """What goes through the buffer: weight decay and, unless the scheme did that, the gradient."""
        given = parameter.grad
        if not group["momentum"] or (self.takes_directions and not group["weight_decay"]):
            return given.add(parameter, alpha=group["weight_decay"])
        force = parameter * group["weight_decay"]
        if not self.takes_directions:
            force += given
        velocity = self._through_buffer(group, parameter, force)
        return given + velocity if self.takes_directions else velocity

    def _through_buffer(self, group: dict, parameter: torch.Tensor, force: torch.Tensor) -> torch.Tensor:
        state = self.state[parameter]
        buffer = state.get("momentum_buffer")
        if buffer is None:
            buffer = state["momentum_buffer"] = torch.zeros_like(parameter)
        buffer.mul_(group["momentum"]).add_(force)
        return force.add(buffer, alpha=group["momentum"]) if group["nesterov"] else buffer
