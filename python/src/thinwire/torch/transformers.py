"""thinwire for the Trainer of transformers.

    from thinwire.torch.transformers import Thinwire

    trainer = Trainer(model, arguments, ...)
    trainer.add_callback(Thinwire(trainer, "powersgd:rank=16"))

The Trainer has no argument for a communication hook, but its callbacks are told when DDP is in place."""

from pathlib import Path
from typing import Any, Dict, Optional

from transformers import TrainerCallback

from ..spec import for_run
from ._checkpoints import Checkpoints, Place, Record, say, tell_dropped
from .compressor import Compressor
from .ddp import attach, attach_alone

KEY = "thinwire"  # in trainer_state.json, among the states of callbacks
LOGGED = [f"thinwire/{name}" for name in ("fallback", "steps_skipped", "bytes_sent", "seconds_wait", "ratio")]  # on the screen, too


class Thinwire(TrainerCallback):
    """Has the trainer's DistributedDataParallel exchange its gradients with the scheme that `spec` names.

    The further arguments are those of `attach`; the optimiser, and with fp16 the scaler, are the trainer's. Every rank
    writes what its scheme keeps for later steps into the trainer's checkpoint, as thinwire-R.pt; where the machines have a
    disk each, each of them has the whole checkpoint. trainer.train(resume_from_checkpoint=...) goes on with it, also with
    another number of ranks. `forget_lost`: also where a machine is gone for good, without what its ranks held back. The
    trainer's loggers get the stats as thinwire/..."""

    def __init__(self, trainer: Any, spec: str, *, forget_lost: bool = False, **more: Any):
        self.spec = self._spec = spec
        self._trainer, self._forget_lost, self._more = trainer, forget_lost, more
        self.compressor: Optional[Compressor] = None
        self._checkpoints: Optional[Checkpoints] = None

    @staticmethod
    def _place(args: Any, state: Any) -> Place:
        return Place(Path(args.output_dir) / f"checkpoint-{state.global_step}")

    def on_train_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        trainer = self._trainer
        # The callback may be used again, for a run of another length.
        self.spec = for_run(self._spec, state.max_steps) if state.max_steps > 0 else self._spec
        options = {"optimizer": trainer.optimizer, "scaler": trainer.accelerator.scaler, **self._more}
        if args.world_size == 1:
            self.compressor = attach_alone(trainer.model, self.spec, **options)
            if state.global_step:
                tell_dropped(self._place(args, state), self.spec)
        else:
            self.compressor = attach(trainer.model_wrapped, self.spec, **options)
            self._checkpoints = Checkpoints(self.compressor, self._forget_lost)
            self._begin(args, state)
        self._log_first()

    def _begin(self, args: Any, state: Any) -> None:
        assert self._checkpoints is not None
        if not self._checkpoints.shares(args.output_dir) and not args.save_on_each_node:
            say(f"the machines do not share {args.output_dir}: each has whole checkpoints there (save_on_each_node)")
            args.save_on_each_node = True
        if state.global_step:
            self._checkpoints.load(self._place(args, state), self._record(state))

    @staticmethod
    def _record(state: Any) -> Optional[Record]:
        """Of the checkpoint that is resumed, as its trainer_state.json has it."""
        noted = (getattr(state, "stateful_callbacks", None) or {}).get(KEY, {}).get("attributes")
        record = Record(noted["run"], noted["step"], noted["ranks"]) if noted else None
        return record if record and record.step == str(state.global_step) else None  # or else dense steps came after it

    def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Before the trainer saves: what a checkpoint of this step has in its trainer_state.json."""
        if self._checkpoints is not None and getattr(state, "stateful_callbacks", None) is not None:  # older versions have none
            record = self._checkpoints.record(state.global_step)
            state.stateful_callbacks[KEY] = {"args": {}, "attributes": record._asdict()}

    def _log_first(self) -> None:
        """What a callback adds to the logs is for those after it."""
        callbacks = self._trainer.callback_handler.callbacks
        callbacks.remove(self)
        callbacks.insert(0, self)

    def on_log(self, args: Any, state: Any, control: Any, logs: Optional[Dict[str, float]] = None, **more: Any) -> None:
        if self.compressor is not None and logs is not None:
            scalars = self.compressor.scalars()
            logs.update({name: scalars[name] for name in LOGGED if name in scalars})

    def on_save(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        if self._checkpoints is not None:
            self._checkpoints.save(self._place(args, state), self._checkpoints.record(state.global_step))

    def on_train_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        if self.compressor is not None:
            if state.is_world_process_zero:
                print(self.compressor.summary(), flush=True)
            self.compressor.close()
        self.compressor = self._checkpoints = None
