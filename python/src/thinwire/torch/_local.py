"""An outer loop inside a framework, which evaluates and saves where it likes: then its model has the shared weights."""

import contextlib
from pathlib import Path
from typing import Any, Dict, Optional

import torch

from ..errors import Error
from . import _state
from .outer import OuterLoop, unwrapped

OWN = _state.ABOUT + "own"  # this worker's weights in a state, where the framework's checkpoint has the shared ones


class Local:
    """The outer loop of a run whose framework owns the loop. What it saves is a state of the loop, in which this
    worker's own weights are, too."""

    def __init__(self, model: Any, optimizer: Any, spec: str, saved: Optional[Dict[str, Any]], **more: Any):
        if more.get("join") is not None and more.get("workers") is None:
            raise Error("in a framework join= wants workers=N beside it: members that come and go are OuterLoop's alone, since a "
                        "framework's checkpoints are of a number of workers that stays")
        if saved is not None and "join" in more:
            more = {"rank": int(saved[_state.ABOUT + "rank"]), **more}
        self.loop = OuterLoop(model, optimizer, spec, **more)
        self._module = unwrapped(model)
        self._shown = contextlib.ExitStack()
        self.is_shown = False  # whether the model has the shared weights
        self._is_over = False
        if saved is not None:
            try:
                self._put_own(saved)
                self.loop.load_state_dict({key: value for key, value in saved.items() if key != OWN})
            except BaseException:
                self.loop.close()
                raise

    def _trained(self) -> Dict[str, torch.nn.Parameter]:
        return {name: one for name, one in self._module.named_parameters() if one.requires_grad}

    def _put_own(self, saved: Dict[str, Any]) -> None:
        own = saved.get(OWN, {})
        for name, parameter in self._trained().items():
            if name not in own or own[name].shape != parameter.shape:
                raise Error(f"{name} of {tuple(parameter.shape)} is not in the saved state of this worker: it is of another "
                            "model", 5, "TW_ERROR_STATE")
            parameter.detach().copy_(own[name])

    def state(self) -> Optional[Dict[str, Any]]:
        """None once the run is over: the model then has all there is."""
        if self._is_over:
            return None
        self.hide()
        own = {name: one.detach().cpu().clone() for name, one in self._trained().items()}
        return {**self.loop.state_dict(), OWN: own}

    def show(self) -> None:
        """The model has the shared weights until hide(). Buffers stay this worker's, so that a worker may evaluate alone."""
        if not self._is_over:
            self.hide()
            self._shown.enter_context(self.loop.averaged(buffers=False))
            self.is_shown = True

    def hide(self) -> None:
        self._shown.close()
        self.is_shown = self._is_over

    def finish(self) -> None:
        """The model has the shared weights for good."""
        if not self._is_over:
            self.hide()
            self.loop.finish()
            self._is_over = self.is_shown = True

    def close(self) -> None:
        """Without finish() the others get a PeerError."""
        self.hide()
        self.loop.close()

    def scalars(self) -> Dict[str, float]:
        return {f"thinwire/{name}": float(value) for name, value in self.loop.stats().items()}


def read(path: Path) -> Optional[Dict[str, Any]]:
    """The state in a file; None where there is none."""
    if not path.exists():
        return None
    state = torch.load(path, map_location="cpu", weights_only=True)
    if not isinstance(state, dict) or not isinstance(state.get(_state.ABOUT + "rank"), int) or not isinstance(state.get(OWN), dict):
        raise Error(f"{path} is no state of a run with local updates", 5, "TW_ERROR_STATE")
    return state


def write(path: Path, state: Optional[Dict[str, Any]]) -> None:
    """Where the run is over, what stands there goes."""
    if state is None:
        path.unlink(missing_ok=True)
    else:
        _state.write_whole(path, state)
