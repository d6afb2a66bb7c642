"""thinwire for Lightning.

    from thinwire.torch.lightning import Thinwire

    Trainer(strategy="ddp", callbacks=[Thinwire("dgc")])

A DDPStrategy takes a communication hook, too, but leaves it out on CPUs without a word, and saves nothing of it.
LocalUpdates is for programs that train on a machine each, and exchange once in many steps."""

from pathlib import Path
from typing import Any, Dict, List, Optional

from lightning.pytorch import Callback, callbacks

from .._lines import show
from ..errors import Error
from . import _auto, _local
from ._checkpoints import Checkpoints, Record, beside, tell_dropped
from .compressor import Compressor
from .ddp import attach, attach_alone

BESIDE_AVERAGE = "current_model_state"  # where WeightAveraging has the weights that are trained, in a checkpoint
AVERAGES = tuple(getattr(callbacks, name) for name in ("StochasticWeightAveraging", "WeightAveraging") if hasattr(callbacks, name))
KEY, KEY_OF_ROUNDS = "thinwire_checkpoint", "thinwire_local_updates"  # in Lightning's own


class _Told(Callback):
    """Tells the trainer's loggers what this callback measures."""

    _logged = 0

    def _measures(self) -> Any:
        """What has scalars(); None before and after the training."""
        raise NotImplementedError

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Not by pl_module.log_dict(), which takes longer than the rest of what thinwire does in Python in a step."""
        measures, step, every = self._measures(), trainer.global_step, trainer.log_every_n_steps
        if measures is None or step == self._logged or not every or step % every:  # 0: never
            return
        self._logged = step
        for logger in trainer.loggers:
            logger.log_metrics(measures.scalars(), step=step - 1)  # Lightning counts from 0 in there


class Thinwire(_Told):
    """Has the trainer's DistributedDataParallel exchange its gradients with the scheme that `spec` names.

    The further arguments are those of `attach`; the optimiser, and with fp16 the scaler, are the trainer's. Beside a
    checkpoint FILE.ckpt every rank writes what its scheme keeps for later steps, as FILE.ckpt.thinwire-R.pt; where the
    machines have a disk each, each of them has the checkpoint, too. A run that is resumed goes on with them, also with
    another number of ranks. `forget_lost`: also where a machine is gone for good, without what its ranks held back.
    The trainer's loggers get the stats as thinwire/..."""

    def __init__(self, spec: str, *, forget_lost: bool = False, **more: Any):
        self.spec = self._spec = spec
        self._forget_lost, self._more = forget_lost, more
        self.compressor: Optional[Compressor] = None
        self._checkpoints: Optional[Checkpoints] = None
        self._is_resumed = False
        self._record: Optional[Record] = None

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        if len(trainer.optimizers) != 1:
            raise Error(f"thinwire works beside one optimiser, and this module has {len(trainer.optimizers)}")
        scaler = getattr(trainer.precision_plugin, "scaler", None)  # of fp16: a step that is not finite is its to skip
        # The callback may be used again, for a run of another length.
        self.spec = _auto.of_framework(self._spec, trainer.estimated_stepping_batches)
        more = {"optimizer": trainer.optimizers[0], "scaler": scaler, **self._more}
        if trainer.world_size == 1:
            self.compressor = attach_alone(pl_module, self.spec, **more)
        else:
            self.compressor = attach(trainer.strategy.model, self.spec, **more)
            self._checkpoints = Checkpoints(self.compressor, self._forget_lost)
            _save_with(trainer.strategy, self._checkpoints)
        if self._is_resumed:
            self._resume(trainer)

    def _resume(self, trainer: Any) -> None:
        self._is_resumed, place = False, beside(trainer.ckpt_path)
        if self._checkpoints is not None:
            self._checkpoints.load(place, self._record)
        else:
            tell_dropped(place, self.spec)

    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: Dict[str, Any]) -> None:
        if self._checkpoints is not None:
            checkpoint[KEY] = tuple(self._checkpoints.record(trainer.global_step))

    def on_load_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: Dict[str, Any]) -> None:
        """The module is not wrapped yet."""
        self._is_resumed, record = True, checkpoint.get(KEY)
        self._record = Record(*record) if record else None

    def _measures(self) -> Optional[Compressor]:
        return self.compressor

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """After the last checkpoint, which comes after on_train_end."""
        if self.compressor is not None:
            if trainer.is_global_zero:
                show(self.compressor.summary())
            self.compressor.close()
        self.compressor = self._checkpoints = None


class LocalUpdates(_Told):
    """Has several Trainers, each of a program and a machine of its own, train one module together: each takes steps of
    its own, and once in a while they go on from shared weights.

        Trainer(callbacks=[LocalUpdates("diloco:every=50", join="10.0.0.5:7000", workers=2)])

    The further arguments are those of `OuterLoop`. The programs should read different data and have the same number of
    steps. Without `workers` they come and go, each with steps and data of its own. What is validated and saved are the shared
    weights; the checkpoint has what the loop keeps, too, and fit(ckpt_path=...) goes on bit for bit, on all machines from the
    same step. When fit() ends, all have the same weights. Until then buffers are each program's own, of which a
    BatchNorm's change the scores. The trainer's loggers get the stats as thinwire/..."""

    def __init__(self, spec: str, **more: Any):
        self.spec, self._more = spec, more
        self._local: Optional[_local.Local] = None
        self._saved: Optional[Dict[str, Any]] = None

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        if len(trainer.optimizers) != 1:
            raise Error(f"thinwire works beside one optimiser, and this module has {len(trainer.optimizers)}")
        self._refuse_later_averages(trainer.callbacks)
        self._local = _local.Local(trainer.strategy.model, trainer.optimizers[0], self.spec, self._saved,
                                   trainer.estimated_stepping_batches, **self._more)
        self._saved = None
        self._local.loop.begin()  # training_step is no forward pass of the module's

    def _refuse_later_averages(self, all_of_them: List[Callback]) -> None:
        for one in all_of_them[all_of_them.index(self) + 1:]:
            if isinstance(one, AVERAGES):
                name = type(one).__name__
                raise Error(f"{name} puts an average of this machine's own into the model when the training ends: write LocalUpdates behind "
                            f"{name} in the list of callbacks, and all machines have the mean of these averages then")

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        if self._local is not None:
            self._local.show()

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        if self._local is not None:
            self._local.hide()

    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: Dict[str, Any]) -> None:
        if self._local is None:
            return
        checkpoint[KEY_OF_ROUNDS] = self._local.state()
        self._local.show()
        shared = {name: value.detach().clone() for name, value in pl_module.state_dict().items()}
        self._local.hide()
        checkpoint.get(BESIDE_AVERAGE, checkpoint["state_dict"]).update(shared)

    def on_load_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: Dict[str, Any]) -> None:
        self._saved = checkpoint.get(KEY_OF_ROUNDS)

    def _measures(self) -> Optional[_local.Local]:
        return self._local

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        if self._local is not None:
            self._local.finish()
            show(self._local.loop.summary())

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        self._close()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """After which there is no teardown, and the others are not to wait for this program's end."""
        self._close(exception)

    def _close(self, end: Optional[BaseException] = None) -> None:
        if self._local is not None:
            self._local.close(end)
        self._local = None


def _save_with(strategy: Any, checkpoints: Checkpoints) -> None:
    """Lightning tells no callback in which file it saves, nor which one it removes: the strategy is told. (This one alone;
    the trainer's next fit gives it this once more, about other checkpoints.)"""
    save, remove = type(strategy).save_checkpoint, type(strategy).remove_checkpoint

    def is_saved_here(path: Any) -> bool:
        """By the first rank of each machine that does not see rank 0's disk."""
        return checkpoints.is_apart(Path(path).parent) and strategy.local_rank == 0 and not strategy.is_global_zero

    def save_checkpoint(checkpoint: Dict[str, Any], filepath: Any, storage_options: Optional[Any] = None) -> None:
        save(strategy, checkpoint, filepath, storage_options)
        checkpoints.shares(Path(filepath).parent)
        if is_saved_here(filepath):
            strategy.checkpoint_io.save_checkpoint(checkpoint, filepath, storage_options=storage_options)
        if KEY in checkpoint:
            checkpoints.save(beside(filepath), Record(*checkpoint[KEY]))

    def remove_checkpoint(filepath: Any) -> None:
        remove(strategy, filepath)
        if is_saved_here(filepath):
            strategy.checkpoint_io.remove_checkpoint(filepath)
        place = beside(filepath)
        place.remove(place.ranks())

    strategy.save_checkpoint, strategy.remove_checkpoint = save_checkpoint, remove_checkpoint
