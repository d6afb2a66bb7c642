"""An outer loop inside a framework, which evaluates and saves where it likes: then its model has the shared weights."""

import contextlib
from pathlib import Path
from typing import Any, Dict, Optional

import torch

from ..errors import Error
from . import _auto, _state
from .outer import OuterLoop

OWN = _state.ABOUT + "own"  # this worker's weights in a state, where the framework's checkpoint has the shared ones


class Local:
    """The outer loop of a run whose framework owns the loop. What it saves is a state of the loop, in which this
    worker's own weights are, too. `steps` are those of this program's run, as far as the framework knows them."""

    def __init__(self, model: Any, optimizer: Any, spec: str, saved: Optional[Dict[str, Any]], steps: float, **more: Any):
        changes = more.get("join") is not None and more.get("workers") is None  # its members come and go
        if not changes:  # else each has steps of its own, and all the same spec
            spec = _auto.of_framework(spec, steps)
        if saved is not None and "join" in more and not changes:
            more = {"rank": int(saved[_state.ABOUT + "rank"]), **more}
        self.loop = OuterLoop(model, optimizer, spec, **more)
        self._shown = contextlib.ExitStack()
        self.is_shown = False  # whether the model has the shared weights
        self._is_over = False
        if saved is not None:
            try:
                if not changes:
                    self._refuse_other_workers(saved)
                self._put_own(saved)
                self.loop.load_state_dict({key: value for key, value in saved.items() if key != OWN})
            except BaseException:
                self.loop.close()
                raise

    def _refuse_other_workers(self, saved: Dict[str, Any]) -> None:
        before, now = (saved[_state.ABOUT + "rank"], saved.get(_state.ABOUT + "size")), (self.loop.rank, self.loop.size)
        if before != now:
            raise Error(f"this checkpoint is of worker {before[0]} of {before[1]}, and this is worker {now[0]} of {now[1]}: in a "
                        "framework as many workers go on as have saved, each from its own checkpoint", 9, "TW_ERROR_STATE")

    def _put_own(self, saved: Dict[str, Any]) -> None:
        own, trained = saved[OWN], self.loop.trained()
        for name, parameter in trained.items():
            there = own.get(name)
            if not isinstance(there, torch.Tensor) or (there.shape, there.dtype) != (parameter.shape, parameter.dtype):
                raise Error(f"{name} of {tuple(parameter.shape)} in {parameter.dtype} is not in the saved state of this worker: it "
                            "is of another model", 9, "TW_ERROR_STATE")
        for name, parameter in trained.items():
            parameter.detach().copy_(own[name])

    def state(self) -> Optional[Dict[str, Any]]:
        """None once the run is over: the model then has all there is."""
        if self._is_over:
            return None
        self.hide()
        own = {name: one.detach().cpu().clone() for name, one in self.loop.trained().items()}
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

    def close(self, end: Optional[BaseException] = None) -> None:
        """Without finish() the others get a PeerError, unless `end` is no failure: as OuterLoop.close_after()."""
        self.hide()
        self.loop.close_after(end)

    def scalars(self) -> Dict[str, float]:
        return {f"thinwire/{name}": float(value) for name, value in self.loop.stats().items()}


def read(path: Path) -> Optional[Dict[str, Any]]:
    """The state in a file; None where there is none."""
    if not path.exists():
        return None
    if not path.is_file():
        raise Error(f"{path} is no file; want the state of a run with local updates", 9, "TW_ERROR_STATE")
    state = _state.read_file(path, "a run with local updates")
    if not isinstance(state, dict) or not isinstance(state.get(_state.ABOUT + "rank"), int) or not isinstance(state.get(OWN), dict):
        raise Error(f"{path} is no state of a run with local updates", 9, "TW_ERROR_STATE")
    return state


def write(path: Path, state: Optional[Dict[str, Any]]) -> None:
    """Where the run is over, what stands there goes."""
    if state is None:
        path.unlink(missing_ok=True)
    else:
        _state.write_whole(path, state)
