"""thinwire for Accelerate.

    import thinwire.torch.accelerate

    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    compressor = thinwire.torch.accelerate.attach(accelerator, model, "powersgd:rank=16", optimizer=optimizer)

The hooks that Accelerate knows by name are PyTorch's own; its argument for them takes no other."""

import contextlib
import shutil
from pathlib import Path
from typing import Any, Optional

from torch.nn.parallel import DistributedDataParallel

from .._lines import show, tell
from ..spec import with_more
from . import _auto, ddp
from ._checkpoints import Checkpoints, Place, tell_dropped
from .compressor import Compressor
from .outer import OuterLoop


def attach(accelerator: Any, model: DistributedDataParallel, spec: str, *, forget_lost: bool = False,
           **more: Any) -> Compressor:
    """`thinwire.torch.attach`, after accelerator.prepare(), with the accelerator's own scaler. accelerator.save_state()
    then has every rank write what its scheme keeps for later steps beside the rest, as thinwire-R.pt; where the machines
    have a disk each, each has the rest, too. load_state() reads it, also with another number of ranks. `forget_lost`:
    also where a machine is gone for good, without what its ranks held back.

    The stats for accelerator.log() are compressor.scalars(). On one process nothing is exchanged, which a line says."""
    more = {"scaler": accelerator.scaler, **more}
    if accelerator.num_processes == 1:
        accelerator.register_load_state_pre_hook(lambda models, folder: tell_dropped(Place(Path(folder)), spec))
        accelerator.register_save_state_pre_hook(lambda models, weights, folder: _forget(Place(Path(folder))))
        return ddp.attach_alone(model, spec, **more)
    compressor = ddp.attach(model, spec, **more)
    checkpoints = Checkpoints(compressor, forget_lost)
    accelerator.register_save_state_pre_hook(lambda models, weights, folder: _save(accelerator, Path(folder), checkpoints))
    accelerator.register_load_state_pre_hook(lambda models, folder: checkpoints.load(Place(Path(folder))))
    return compressor


class LocalSGD:
    """Accelerate's LocalSGD, with the same arguments and calls: between two averages every process takes
    `local_sgd_steps` steps of its own.

        with LocalSGD(accelerator=accelerator, model=model, local_sgd_steps=8, enabled=True) as local_sgd:
            for batch in loader:
                ...
                optimizer.step()
                local_sgd.step()

    `spec` names another method of local updates, or what carries the average: "local:exchange=bf16", "diloco". With
    local_sgd_steps=None it may be "auto:steps=20000,pass_ms=120", which chooses both. The further arguments are those of
    `OuterLoop`: with join="10.0.0.5:7000" programs on machines of their own meet, each started alone. Of parameters that are
    trained the average is taken, and at the end of buffers."""

    def __init__(self, accelerator: Any, model: Any, local_sgd_steps: Optional[int], enabled: bool = True, spec: str = "local",
                 **more: Any):
        self._joins = more.get("join") is not None
        self.enabled = enabled and (self._joins or accelerator.num_processes > 1)
        if enabled and not self.enabled and more.get("banner", True):
            tell("this run has one process, and LocalSGD exchanges nothing; join= meets other programs")
        self._accelerator, self._model, self._more = accelerator, model, more
        if _auto.is_auto(spec) != (local_sgd_steps is None):
            raise _auto.refuse("it also chooses how many steps there are between two averages: give local_sgd_steps=None with it, "
                               "and a number with any other spec")
        self._spec = spec if local_sgd_steps is None else with_more(spec, f"every={local_sgd_steps}")
        self.loop: Optional[OuterLoop] = None
        self._without_sync = contextlib.ExitStack()

    def __enter__(self) -> "LocalSGD":
        if self.enabled:
            optimizers = list(self._accelerator._optimizers)
            model = self._model if self._joins else self._accelerator.unwrap_model(self._model)
            self.loop = OuterLoop(model, optimizers, self._spec, hook=False, **self._more)
            self._tell_passes()
            if not self._joins:  # else DDP is within a machine
                self._without_sync.enter_context(self._model.no_sync())
        return self

    def _tell_passes(self) -> None:
        passes = self._accelerator.gradient_accumulation_steps
        if passes > 1 and self._tells:
            tell("LocalSGD counts the calls of its step(), as Accelerate's does: where each pass calls it, "
                 f"gradient_accumulation_steps={passes} of them are one step of the optimizer")

    @property
    def _tells(self) -> bool:
        return self._more.get("banner", True) and (self._joins or self._accelerator.is_main_process)

    def step(self) -> None:
        """After each step of the optimizer, or each pass of several that are one."""
        if self.loop is not None:
            self.loop.step()

    def __exit__(self, kind: Any, value: Any, traceback: Any) -> None:
        self._without_sync.close()
        if self.loop is None:
            return
        if kind is not None:
            self.loop.close_after(value)
            return
        with self.loop:  # finish() waits for the others, and may fail or be interrupted
            self.loop.finish()
            if self._tells:
                show(self.loop.summary())


def _forget(place: Place) -> None:
    """What an earlier run of several processes had there is of no use beside this one's."""
    place.remove(place.ranks())


def _save(accelerator: Any, folder: Path, checkpoints: Checkpoints) -> None:
    settings = accelerator.project_configuration
    if not checkpoints.shares(folder.parent):
        settings.save_on_each_node = True
        if settings.automatic_checkpoint_naming and settings.total_limit and accelerator.is_local_main_process:
            _keep(folder, settings.total_limit)
    checkpoints.save(Place(folder), checkpoints.record_at_random())


def _keep(newest: Path, count: int) -> None:
    """Accelerate removes older checkpoints on the disk of rank 0 alone."""
    numbered = sorted(newest.parent.glob("checkpoint_*"), key=lambda path: int(path.name.rpartition("_")[2]))
    for old in numbered[:-count]:
        shutil.rmtree(old)
