"""AdamW that leaves its moments to a scheme which divides by them before it sends."""

from typing import Any, Dict, List, Optional, Set

import torch

from ..errors import Error


def torchs_step() -> Any:
    """As it is written: torch has it tell the hooks of a step, once for each class, and they are told of this one's."""
    step = torch.optim.AdamW.step
    return step.__wrapped__ if getattr(step, "hooked", False) else step  # type: ignore[attr-defined]


class AdamW(torch.optim.AdamW):
    """torch.optim.AdamW, in whose place it stands, for any scheme:

        optimizer = thinwire.torch.AdamW(model.parameters(), 3e-4, betas=(0.9, 0.95), weight_decay=0.1)
        thinwire.torch.attach(ddp, "dgc-adam", optimizer=optimizer)

    Where the scheme gives Adam's direction in the place of a gradient, as dgc-adam does, it has the betas and the epsilon of
    this optimiser, of which the rate and the weight decay are left. With any other scheme it is torch.optim.AdamW."""

    _scheme = ""  # the one that has the moments
    _applied: Dict[str, float] = {}  # and with which numbers
    left_to: Any = None  # whose scheme it is
    directed: Optional[Set[int]] = None  # which parameters it has: of others the moments are here. None: nobody has said, and so all

    @property
    def takes_directions(self) -> bool:
        """Whether gradients come as Adam's direction: those of the scheme's parameters."""
        return bool(self._scheme)

    def own_moments(self) -> Dict[str, float]:
        """What it was made with, the same for all groups of parameters, as a spec says it."""
        of_groups = {(*map(float, group["betas"]), float(group["eps"])) for group in self.param_groups}
        if len(of_groups) > 1:
            raise Error(f"the groups of this AdamW have the betas and eps {sorted(of_groups)}, and a scheme that has the moments "
                        "has one for all: give all groups the same")
        return dict(zip(("momentum", "beta2", "epsilon"), of_groups.pop()))

    def take_back(self) -> None:
        """The scheme is over. The moments begin anew."""
        self._scheme, self._applied, self.left_to, self.directed = "", {}, None, None

    def leave_moments_to(self, scheme: str, applied: Dict[str, float]) -> None:
        """`applied` is what the scheme has in the place of `own_moments`."""
        for word in ("amsgrad", "maximize"):
            if any(group.get(word) for group in self.param_groups):
                raise Error(f"this AdamW has {word}=True, and {scheme} has no such form: want {word}=False")
        for name, own in self.own_moments().items():
            if abs(own - applied[name]) > 1e-6 * own:
                raise Error(f"this AdamW has {name}={own:g}, and {scheme} {name}={applied[name]:g}: give both the same; "
                            "attach(..., optimizer=optimizer) does, where the spec says none; and a schedule that moves "
                            "momentum has to leave it, as OneCycleLR does with cycle_momentum=False")
        self._scheme, self._applied = scheme, applied

    def step(self, closure: Any = None) -> Any:
        if not self.takes_directions:
            return torchs_step()(self, closure)
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self.leave_moments_to(self._scheme, self._applied)  # a scheduler may have changed them here
        if not getattr(self, "found_inf", None):  # a GradScaler leaves it to a fused AdamW to skip a step, and to unscale
            self._follow()
        return loss

    @torch.no_grad()
    def _follow(self) -> None:
        given = [(one, group) for group in self.param_groups for one in group["params"] if one.grad is not None]
        directed = [(one, group) for one, group in given if self.directed is None or id(one) in self.directed]
        scale = float(getattr(self, "grad_scale", None) or 1)
        for parameter, group in directed:
            if scale != 1:
                parameter.grad.div_(scale)  # where the gradient is, as torch does
            parameter.mul_(1 - group["lr"] * group["weight_decay"]).add_(parameter.grad, alpha=-group["lr"])
        if len(directed) < len(given):
            self._step_others([parameter for parameter, _ in directed])

    def _step_others(self, stepped: List[torch.Tensor]) -> None:
        """As torch does, which sees no gradient of those that have stepped."""
        gradients = [parameter.grad for parameter in stepped]
        try:
            for parameter in stepped:
                parameter.grad = None
            torchs_step()(self)
        finally:
            for parameter, gradient in zip(stepped, gradients):
                parameter.grad = gradient
