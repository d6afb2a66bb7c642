"""thinwire for Lightning.

    from thinwire.torch.lightning import Thinwire

    Trainer(strategy="ddp", callbacks=[Thinwire("dgc:density=0.001")])

A DDPStrategy takes a communication hook, too, but leaves it out on CPUs without a word, and saves nothing of it."""

from typing import Any, Dict, List, Optional

from lightning.pytorch import Callback

from ..errors import Error
from . import _ranks
from .compressor import Compressor
from .ddp import attach


class Thinwire(Callback):
    """Has the trainer's DistributedDataParallel exchange its gradients with the scheme that `spec` names.

    The further arguments are those of `attach`. The trainer's checkpoints then hold what the schemes of all ranks keep
    for later steps, and a run that is resumed from one goes on with it, also with another number of ranks."""

    def __init__(self, spec: str, **more: Any):
        self.spec, self._more = spec, more
        self.compressor: Optional[Compressor] = None
        self._states: Optional[List[Dict[str, Any]]] = None

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        if trainer.world_size == 1:
            return
        if len(trainer.optimizers) != 1:
            raise Error(f"thinwire works beside one optimiser, and this module has {len(trainer.optimizers)}")
        self.compressor = attach(trainer.strategy.model, self.spec, optimizer=trainer.optimizers[0], **self._more)
        if self._states is not None:
            _ranks.give_back(self.compressor, self._states)
            self._states = None

    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: Dict[str, Any]) -> None:
        if self.compressor is not None:
            checkpoint["thinwire"] = _ranks.gathered(self.compressor)

    def on_load_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: Dict[str, Any]) -> None:
        """The module is not wrapped yet."""
        self._states = checkpoint.get("thinwire")

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        if self.compressor is not None:
            if trainer.is_global_zero:
                print(self.compressor.summary(), flush=True)
            self.compressor.close()
            self.compressor = None
