"""thinwire for the Trainer of transformers.

    from thinwire.torch.transformers import Thinwire

    trainer = Trainer(model, arguments, ...)
    trainer.add_callback(Thinwire(trainer, "powersgd:rank=16"))

The Trainer has no argument for a communication hook, but its callbacks are told when DDP is in place. TrainerCallback is for
programs that train on a machine each, and exchange once in many steps."""

import functools
from pathlib import Path
from typing import Any, Dict, List, Optional

import transformers

from .._lines import show, tell
from ..errors import Error
from . import _auto, _local
from ._checkpoints import Checkpoints, Place, Record, say, tell_dropped
from .compressor import Compressor
from .ddp import attach, attach_alone

KEY = "thinwire"  # in trainer_state.json, among the states of callbacks
LOGGED = [f"thinwire/{name}" for name in ("fallback", "steps_skipped", "bytes_sent", "seconds_wait", "ratio")]  # on the screen, too
LOGGED_OF_ROUNDS = [f"thinwire/{name}" for name in ("rounds", "rounds_given", "rounds_empty", "bytes_sent", "seconds_wait", "cosine")]


class Thinwire(transformers.TrainerCallback):
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
        self._stats: Optional[_Stats] = None

    @staticmethod
    def _place(args: Any, state: Any) -> Place:
        return Place(Path(args.output_dir) / f"checkpoint-{state.global_step}")

    def on_train_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        trainer = self._trainer
        self._close()  # of a train() that failed, or begins once more by auto_find_batch_size
        # The callback may be used again, for a run of another length.
        self.spec = _auto.of_framework(self._spec, state.max_steps)
        options = {"optimizer": trainer.optimizer, "scaler": trainer.accelerator.scaler, **self._more}
        if args.world_size == 1:
            self.compressor = attach_alone(trainer.model, self.spec, **options)
            if state.global_step:
                tell_dropped(self._place(args, state), self.spec)
        else:
            self.compressor = attach(trainer.model_wrapped, self.spec, **options)
            self._checkpoints = Checkpoints(self.compressor, self._forget_lost)
            self._begin(args, state)
        self._stats = _Stats(trainer, self.compressor, LOGGED)

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

    def on_save(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        if self._checkpoints is not None:
            self._checkpoints.save(self._place(args, state), self._checkpoints.record(state.global_step))

    def on_train_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        if self.compressor is not None and state.is_world_process_zero:
            show(self.compressor.summary())
        self._close()

    def _close(self) -> None:
        if self.compressor is not None:
            self.compressor.close()
        if self._stats is not None:
            self._stats.remove()
        self.compressor = self._checkpoints = self._stats = None


class TrainerCallback(transformers.TrainerCallback):
    """Has several Trainers, each of a program and a machine of its own, train one model together: each takes steps of its
    own, and once in a while they go on from shared weights.

        trainer.add_callback(thinwire.TrainerCallback("diloco:every=50", join="10.0.0.5:7000", workers=2))

    The further arguments are those of `OuterLoop`. Under torchrun, which has one process group for all machines, the
    trainer would average gradients in every step: start each machine's program by itself. The programs should read
    different data, such as ``dataset.shard(workers, machine)``, and have the same number of steps. Without `workers` they
    come and go, each with steps and data of its own.

    What is evaluated, saved and chosen as the best model are the shared weights. Each program writes what its loop keeps
    into its own checkpoints, as thinwire.pt, and goes on bit for bit with trainer.train(resume_from_checkpoint=True), on
    all machines from the same step. When the training ends, all have the same weights. Until then buffers are each
    program's own, of which a BatchNorm's change the scores. The trainer's loggers get the stats as thinwire/... Other
    callbacks that ask for an evaluation or a checkpoint are to be added before this one."""

    def __init__(self, spec: str, **more: Any):
        self.spec, self._more = spec, more
        self._trainer: Any = None  # of the run under way
        self._local: Optional[_local.Local] = None
        self._saved: Optional[Dict[str, Any]] = None
        self._stats: Optional[_Stats] = None
        _have_trainers_tell()

    @staticmethod
    def _path(args: Any, state: Any) -> Path:
        return Path(args.output_dir) / f"checkpoint-{state.global_step}" / "thinwire.pt"

    def on_train_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        trainer, path = self._trainer, self._path(args, state)
        if trainer is None:
            raise Error("this train() does not call that of transformers.Trainer, and so nobody would say when it fails: write an "
                        "OuterLoop into it")
        self._close()  # where auto_find_batch_size begins once more, what was done before counts as lost
        saved = _local.read(path) if state.global_step else None
        if state.global_step and saved is None:
            tell(f"there is no {path}: all go on from the weights of the first worker")
        self._local = _local.Local(trainer.model_wrapped, trainer.optimizer, self.spec, saved, state.max_steps, **self._more)
        self._stats = _Stats(trainer, self._local, LOGGED_OF_ROUNDS)

    def on_step_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        if self._local is not None:
            self._local.hide()

    def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Before the trainer evaluates and saves."""
        if self._local is None:
            return
        if control.should_training_stop:
            self._local.finish()
        if control.should_save:
            self._saved = self._local.state()
        if control.should_save or control.should_evaluate or control.should_training_stop:
            self._local.show()

    on_epoch_begin, on_epoch_end = on_step_begin, on_step_end

    def on_save(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        if self._local is None:
            return
        if not self._local.is_shown:
            raise Error("a callback behind thinwire.TrainerCallback asked for this checkpoint, which has the weights of one worker "
                        "alone: add thinwire's after it")
        _local.write(self._path(args, state), self._saved)
        self._saved = None

    def on_train_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Where the trainer has put the best checkpoint into the model by now, that stays there."""
        if self._local is not None:
            model = self._trainer.model
            best = args.load_best_model_at_end and state.best_model_checkpoint
            kept = {name: value.detach().clone() for name, value in model.state_dict().items()} if best else None
            self._local.finish()
            if kept is not None:
                model.load_state_dict(kept)
            show(self._local.loop.summary())
            self._close()

    def _close(self, end: Optional[BaseException] = None) -> None:
        if self._local is not None:
            self._local.close(end)
        if self._stats is not None:
            self._stats.remove()
        self._local = self._stats = None


@functools.cache
def _have_trainers_tell() -> None:
    """A Trainer tells its callbacks neither which one it is nor that its train() has failed. From here on each one of this
    process tells the thinwire.TrainerCallback among its own: where it fails, the others do not wait for this program's end."""
    train = transformers.Trainer.train

    @functools.wraps(train)
    def telling(trainer: Any, *words: Any, **more: Any) -> Any:
        told = [one for one in trainer.callback_handler.callbacks if isinstance(one, TrainerCallback)]
        for one in told:
            one._trainer = trainer
        try:
            return train(trainer, *words, **more)
        except BaseException as error:
            for one in told:
                one._close(error)
            raise
        finally:
            for one in told:
                one._trainer = None

    transformers.Trainer.train = telling


class _Stats(transformers.TrainerCallback):
    """Adds to the trainer's logs, until it is removed, those of the source's scalars that are named."""

    def __init__(self, trainer: Any, source: Any, names: List[str]):
        self._handler, self._source, self._names = trainer.callback_handler, source, names
        # What it adds is for those after it. The old list is being walked. A run that failed may have left its own there.
        self._handler.callbacks = [self, *(one for one in self._handler.callbacks if not isinstance(one, _Stats))]

    def remove(self) -> None:
        self._handler.callbacks = [one for one in self._handler.callbacks if one is not self]

    def on_log(self, args: Any, state: Any, control: Any, logs: Optional[Dict[str, float]] = None, **more: Any) -> None:
        if logs is not None:
            scalars = self._source.scalars()
            logs.update({name: scalars[name] for name in self._names if name in scalars})
