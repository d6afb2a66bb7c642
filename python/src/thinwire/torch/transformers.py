"""thinwire for the Trainer of transformers.

    from thinwire.torch.transformers import Thinwire

    trainer = Trainer(model, arguments, ...)
    trainer.add_callback(Thinwire(trainer, "topk:density=0.01"))

The Trainer has no argument for a communication hook, but its callbacks are told when DDP is in place."""

from pathlib import Path
from typing import Any, Optional

from transformers import TrainerCallback

from . import _ranks
from .compressor import Compressor
from .ddp import attach


class Thinwire(TrainerCallback):
    """Has the trainer's DistributedDataParallel exchange its gradients with the scheme that `spec` names.

    The further arguments are those of `attach`. Every rank writes what its scheme keeps for later steps into the
    trainer's checkpoint, as thinwire-R.pt; trainer.train(resume_from_checkpoint=...) goes on with it."""

    def __init__(self, trainer: Any, spec: str, **more: Any):
        self.spec, self._trainer, self._more = spec, trainer, more
        self.compressor: Optional[Compressor] = None

    @staticmethod
    def _checkpoint(args: Any, state: Any) -> Path:
        return Path(args.output_dir) / f"checkpoint-{state.global_step}"

    def on_train_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        if args.world_size == 1:
            return
        self.compressor = attach(self._trainer.model_wrapped, self.spec, optimizer=self._trainer.optimizer, **self._more)
        if state.global_step:
            _ranks.load_from(self._checkpoint(args, state), self.compressor)

    def on_save(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        if self.compressor is not None:
            _ranks.save_in(self._checkpoint(args, state), self.compressor)

    def on_train_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        if self.compressor is not None:
            if state.is_world_process_zero:
                print(self.compressor.summary(), flush=True)
            self.compressor.close()
            self.compressor = None
