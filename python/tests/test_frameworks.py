#!/usr/bin/env python3
"""Lightning, Accelerate and the Trainer of transformers themselves: a scaler that works, bf16, loggers that are told during
training, and checkpoints by another number of processes, after dense steps, on two disks and after one of them is lost.

    test_frameworks.py NAME

Each launch plays some runs in the same processes, and each run leaves what it saw in FOLDER/RUN-R.json."""

import contextlib
import io
import json
import math
import os
import pathlib
import shutil
import sys
import tempfile
import types
import unittest
from unittest import mock

import launched
import models  # noqa: F401: skips it where there is no torch
import ranks
import thinwire
import torch
from thinwire.torch.compressor import Compressor
from torch import nn

SPEC = "topk:density=0.1,min_dims=0,min_elements=1"
BEARABLE = 2.0 ** 13  # a scale above it gives rank 1 an infinite loss
LIMIT = 2.0 ** 16  # which a scaler begins with
AUTO = "auto:pass_ms=20,rate=1Mbit,latency=5ms"


class Seen:
    """What a run saw: losses, logs, scales, and how far the weights had moved before each step."""

    def __init__(self):
        self.losses, self.logs, self.scales, self.moved = [], [], [], []


def model_of(seen, rank, scaler):
    """A model that has its loss from its own forward pass, as the Trainer wants it."""
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(1)
            self.layers = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
            self.begin = [p.detach().clone() for p in self.parameters()]

        def forward(self, x, labels):
            loss = nn.functional.cross_entropy(self.layers(x).float(), labels)
            seen.losses.append(float(loss.detach()))
            seen.moved.append(any(not torch.equal(p.detach(), b) for p, b in zip(self.parameters(), self.begin)))
            if scaler is not None:
                seen.scales.append(scaler.get_scale())
                loss = loss * (float("inf") if rank == 1 and scaler.get_scale() > BEARABLE else 1.0)
            return {"loss": loss}

    return Model()


def rows(count=16):
    generator = torch.Generator().manual_seed(1)
    x, teacher = torch.randn(count, 64, generator=generator), torch.randn(64, 10, generator=generator)
    return [{"x": one, "labels": label} for one, label in zip(x, (x @ teacher).argmax(1))]


def scaler_of(precision):
    return torch.amp.GradScaler("cpu", init_scale=LIMIT) if precision == "fp16" else None


# A run of each framework: `steps` of them, with a checkpoint at the end, and the last `kept` stay; `resume` goes on from
# that of step so-and-so.

def lightning(seen, out, spec, steps, rank, size, disks, resume, precision, kept, more):
    from lightning.pytorch import LightningModule, Trainer
    from lightning.pytorch.callbacks import ModelCheckpoint
    from lightning.pytorch.loggers import CSVLogger
    from lightning.pytorch.plugins.precision import MixedPrecision
    from thinwire.torch.lightning import Thinwire

    scaler = scaler_of(precision)

    class Module(LightningModule):
        def __init__(self):
            super().__init__()
            self.model = model_of(seen, rank, scaler)

        def training_step(self, batch, index):
            return self.model(**batch)["loss"]

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters(), 1e-2)

    class Logger(CSVLogger):
        def log_metrics(self, metrics, step=None):
            seen.logs.append(metrics)

    precisions = {"fp16": [MixedPrecision("16-mixed", "cpu", scaler)], "bf16": [MixedPrecision("bf16-mixed", "cpu")]}
    saves = ModelCheckpoint(out, filename="{step}", every_n_train_steps=1 if kept else steps, save_top_k=kept or -1,
                            monitor="step" if kept else None, mode="max")
    if disks:  # rank 0 tells the others where to save, and so the same name has to be another disk
        out.mkdir(exist_ok=True)
        os.chdir(out)
        out = pathlib.Path("/proc/self/cwd")
        saves.dirpath = str(out)
    trainer = Trainer(accelerator="cpu", devices=1 if disks else size, num_nodes=size if disks else 1,
                      strategy="ddp" if size > 1 else "auto", max_steps=steps, max_epochs=-1, log_every_n_steps=1,
                      logger=Logger(out), enable_progress_bar=False, enable_model_summary=False,
                      plugins=precisions.get(precision), callbacks=[saves] + ([Thinwire(spec, **more)] if spec else []))
    trainer.fit(Module(), torch.utils.data.DataLoader(rows(), batch_size=8),
                ckpt_path=out / f"step={resume}.ckpt" if resume else None)


def accelerate(seen, out, spec, steps, rank, size, disks, resume, precision, kept, more):
    from accelerate import Accelerator
    from accelerate.utils import ProjectConfiguration
    import thinwire.torch.accelerate

    accelerator = Accelerator(cpu=True, mixed_precision="bf16" if precision == "bf16" else "no",
                              project_config=ProjectConfiguration(str(out), automatic_checkpoint_naming=bool(kept), total_limit=kept))
    accelerator.scaler = scaler_of(precision)  # of its own accord it has one on GPUs alone
    model = model_of(seen, rank, accelerator.scaler)
    model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), 1e-2))
    compressor = thinwire.torch.accelerate.attach(accelerator, model, spec, optimizer=optimizer, **more) if spec else None
    if resume:
        accelerator.load_state(str(out / f"step-{resume}"))
    for step in range(resume or 0, steps):
        batch = torch.utils.data.default_collate(rows()[8 * rank:][:8])
        optimizer.zero_grad()
        accelerator.backward(model(**batch)["loss"])
        optimizer.step()
        seen.logs.append(compressor.scalars() if compressor else {})
        if kept:
            accelerator.save_state()
    if not kept:
        accelerator.save_state(str(out / f"step-{steps}"))
    if compressor:
        compressor.close()


def trainer(seen, out, spec, steps, rank, size, disks, resume, precision, kept, more):
    from transformers import Trainer, TrainerCallback, TrainingArguments
    from thinwire.torch.transformers import Thinwire

    class Logger(TrainerCallback):
        def on_log(self, args, state, control, logs=None, **more):
            seen.logs.append(dict(logs))

    scaler = scaler_of(precision)
    arguments = TrainingArguments(
        output_dir=str(out), max_steps=steps, per_device_train_batch_size=8, learning_rate=1e-2, save_steps=1 if kept else steps,
        save_total_limit=kept, logging_steps=1, report_to=[], disable_tqdm=True, use_cpu=True, bf16=precision == "bf16", max_grad_norm=0.0)
    one = Trainer(model_of(seen, rank, scaler), arguments, train_dataset=rows(), callbacks=[Logger()])
    one.accelerator.scaler = scaler
    if spec:
        one.add_callback(Thinwire(one, spec, **more))
    one.train(resume_from_checkpoint=str(out / f"checkpoint-{resume}") if resume else None)


# Runs

def run(name, folder, rank, size, to, job, spec=SPEC, steps=4, resume=None, precision=None, disks=False, kept=None, **more):
    seen, said, told = Seen(), io.StringIO(), ""
    os.environ["LOCAL_RANK"], os.environ["NODE_RANK"] = ("0", str(rank)) if disks else (str(rank), "0")
    with contextlib.redirect_stderr(said):
        try:
            globals()[name](seen, folder / (f"{to}{rank}" if disks else to), spec, steps, rank, size, disks, resume, precision, kept,
                            more)
        except thinwire.Error as error:
            told = str(error)
    about = [line for line in said.getvalue().splitlines() if line.startswith("thinwire")]
    (folder / f"{job}-{rank}.json").write_text(json.dumps({**vars(seen), "said": about, "error": told}))


LAUNCHES = {  # of how many processes, and what they do
    "begin": (2, [dict(to="fp16", steps=8, precision="fp16"), dict(to="bf16", steps=8, precision="bf16"), dict(to="shared"),
                  dict(to="dense", spec=None), dict(to="disk", disks=True), dict(to="few", kept=2, disks=True),
                  dict(to="auto", spec=f"{AUTO},steps=3000")]),
    "alone": (1, [dict(to="shared", job="alone", steps=8, resume=4)]),
    "again": (2, [dict(to="shared", job="again", steps=12, resume=8), dict(to="dense", job="thin", steps=8, resume=4),
                  dict(to="disk", job="two disks", steps=8, resume=4, disks=True)]),
    "lost": (2, [dict(to="disk", job="refused", steps=12, resume=8, disks=True),
                 dict(to="disk", job="forgotten", steps=12, resume=8, disks=True, forget_lost=True)]),
}


def play(name, launch, folder):
    rank, (size, jobs) = int(os.environ["RANK"]), LAUNCHES[launch]
    for number, job in enumerate(jobs):
        launched.meet_anew(folder, f"{launch}{number}", rank, size)
        run(name, folder, rank, size, **{"job": job["to"], **job})
        launched.forget_group()


class SpecTest(unittest.TestCase):
    """What a framework knows of the length of the run, told on one process: nothing is exchanged there."""

    def callback_for(self, spec):
        """And what begins a run of so many steps."""
        module = torch.nn.Linear(2, 2)
        optimizer = torch.optim.SGD(module.parameters(), 0.1)
        if NAME == "lightning":
            from thinwire.torch.lightning import Thinwire
            callback = Thinwire(spec, banner=False)
            begin = lambda steps: callback.on_train_start(
                types.SimpleNamespace(optimizers=[optimizer], precision_plugin=None, world_size=1,
                                      estimated_stepping_batches=steps), module)
        else:
            from thinwire.torch.transformers import Thinwire
            trainer = types.SimpleNamespace(optimizer=optimizer, model=module, accelerator=types.SimpleNamespace(scaler=None),
                                            callback_handler=types.SimpleNamespace(callbacks=[]))
            callback = Thinwire(trainer, spec, banner=False)
            trainer.callback_handler.callbacks.append(callback)
            begin = lambda steps: callback.on_train_begin(
                types.SimpleNamespace(world_size=1), types.SimpleNamespace(max_steps=steps, global_step=0), None)
        return callback, begin

    def specs_for(self, spec, *lengths):
        """Of one callback, which is used for runs of these lengths: its own, and what it comes to."""
        callback, begin = self.callback_for(spec)
        for steps in lengths:
            begin(steps)
            yield callback.spec, callback.compressor.spec

    def test_what_a_run_that_failed_has_left_is_closed(self):
        if NAME != "trainer":
            self.skipTest("the others tell their callbacks")
        closed, begun = [], []
        callback, begin = self.callback_for("dgc")
        with mock.patch.object(Compressor, "close", lambda compressor: closed.append(compressor)):
            for steps in (8, 9):
                begin(steps)
                begun.append(callback.compressor)
        self.assertEqual(closed, begun[:1])

    def test_the_scheme_follows_the_length_of_the_run(self):
        if NAME == "accelerate":
            self.skipTest("accelerate does not know it")
        unknown = math.inf if NAME == "lightning" else -1
        self.assertEqual(list(self.specs_for("dgc", 10000, 4685, unknown)),
                         [(spec, spec) for spec in ("dgc:density=0.04,warmup_steps=400", "dgc:density=0.18,warmup_steps=234", "dgc")])
        self.assertEqual(list(self.specs_for(AUTO, 4685, unknown)), [(f"{AUTO},steps=4685", "allreduce"), (AUTO, "allreduce")])
        self.assertEqual(list(self.specs_for(f"{AUTO},steps=9", 4685)), [(f"{AUTO},steps=9", "allreduce")])


class LoggersTest(unittest.TestCase):
    def test_loggers_of_lightning_that_are_to_hear_nothing(self):
        """Of either callback, in a process that is alone: the training goes through, and they hear nothing."""
        if NAME != "lightning":
            self.skipTest("this is about Lightning's Trainer")
        from lightning.pytorch import LightningModule, Trainer
        from lightning.pytorch.loggers import CSVLogger
        from thinwire.torch.lightning import LocalUpdates, Thinwire
        heard, steps = [], []

        class Module(LightningModule):
            def __init__(self):
                super().__init__()
                self.layer = nn.Linear(2, 1)

            def training_step(self, batch, index):
                steps.append(index)
                return self.layer(batch).sum()

            def configure_optimizers(self):
                return torch.optim.SGD(self.parameters(), 0.1)

        class Logger(CSVLogger):
            def log_metrics(self, metrics, step=None):
                heard.append(metrics)

        callbacks = (lambda: Thinwire("dgc", banner=False),
                     lambda: LocalUpdates("local:every=2", join=f"127.0.0.1:{ranks.free_port()}", workers=1, banner=False))
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(io.StringIO()):
            quiet = {"logger": Logger(folder), "enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False}
            for callback in callbacks:
                for more in ({"log_every_n_steps": 0, **quiet}, {"barebones": True}):
                    trainer = Trainer(accelerator="cpu", devices=1, max_steps=4, callbacks=[callback()], **more)
                    trainer.fit(Module(), torch.utils.data.DataLoader(torch.ones(8, 2), batch_size=2))
        self.assertEqual((len(steps), heard), (16, []))


class FrameworkTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(temporary.cleanup)
        cls.folder = pathlib.Path(temporary.name)
        cls.lost = None
        for launch, (size, _) in LAUNCHES.items():
            if launch == "lost":
                cls.replace_the_second_machine()
            launched.forked_as_torchrun_does(size, play, NAME, launch, cls.folder)

    @classmethod
    def replace_the_second_machine(cls):
        """By one with a copy of the first one's disk."""
        cls.lost, = (path.relative_to(cls.folder / "disk1") for path in (cls.folder / "disk1").rglob("*thinwire-1.pt")
                     if "8" in str(path.relative_to(cls.folder / "disk1")))
        shutil.rmtree(cls.folder / "disk1")
        shutil.copytree(cls.folder / "disk0", cls.folder / "disk1")

    def saw(self, job, size=2):
        return [json.loads((self.folder / f"{job}-{rank}.json").read_text()) for rank in range(size)]

    def check_went_on(self, job, steps, size=2):
        seen = self.saw(job, size)
        for one in seen:
            self.assertEqual(one["error"], "")
            self.assertEqual(len(one["losses"]), steps)
        self.assertTrue(all(one["said"] == [] for one in seen[1:]))
        return [line for line in seen[0]["said"] if line.startswith("thinwire:")]

    def test_fp16_has_the_scaler_lower_its_scale_on_all_ranks(self):
        for one in self.saw("fp16"):
            self.assertEqual(one["scales"], [LIMIT, LIMIT / 2, LIMIT / 4] + [BEARABLE] * 5)
            self.assertEqual(one["moved"], [False] * 4 + [True] * 4)
            self.assertEqual(one["error"], "")

    def test_bf16_autocast_learns_and_loggers_are_told_meanwhile(self):
        for one in self.saw("bf16"):
            self.assertLess(sum(one["losses"][-3:]), sum(one["losses"][:3]))
        logs = [log for log in self.saw("bf16")[0]["logs"] if "thinwire/bytes_sent" in log]
        self.assertGreaterEqual(len(logs), 4)
        sent = [log["thinwire/bytes_sent"] for log in logs]
        self.assertEqual(sent, sorted(sent))
        self.assertGreater(sent[-1], sent[0])

    def test_it_plans(self):
        first, other = self.saw("auto")
        self.assertEqual((first["error"], other["error"], other["said"]), ("", "", []))
        self.assertIn("thinwire: auto takes ", first["said"][0])
        self.assertEqual(first["losses"][0], self.saw("shared")[0]["losses"][0])

    def test_two_processes_then_one_then_two(self):
        alone = self.check_went_on("alone", 4, size=1)
        self.assertEqual(len(alone), 1)
        self.assertRegex(alone[0], "thinwire-0.pt and its like held back for topk is dropped: this is the only process$")
        banner, = (line for line in self.saw("alone", 1)[0]["said"] if "so nothing is exchanged" in line)
        self.assertIn("this is the only process", banner)
        again, = self.check_went_on("again", 4)
        self.assertIn("begins with nothing held back", again)

    def test_a_dense_run_goes_on_with_thinwire(self):
        said, = self.check_went_on("thin", 4)
        self.assertIn("thinwire-0.pt and its like are not there, for the run was dense until now or had one process", said)

    def test_two_disks(self):
        """Without an option of the framework's. (The Trainer is given one, and says so.)"""
        self.check_went_on("disk", 4)
        said = self.check_went_on("two disks", 4)
        self.assertEqual([line for line in said if "save_on_each_node" not in line], [])

    def test_old_checkpoints_go_from_both_disks(self):
        """Each disk has two whole ones, and what its own rank kept beside them."""
        self.check_went_on("few", 4)
        for rank in range(2):
            kept = [path for path in (self.folder / f"few{rank}").rglob("*thinwire-*.pt")]
            self.assertEqual(len(kept), 2, kept)
            self.assertTrue(all(path.name.endswith(f"thinwire-{rank}.pt") for path in kept), kept)
            self.assertEqual(len(self.whole_ones(self.folder / f"few{rank}")), 2)

    @staticmethod
    def whole_ones(folder):
        """The files of weights below it."""
        return [path for path in folder.rglob("*") if path.suffix == ".ckpt" or path.name == "model.safetensors"]

    def test_a_lost_disk(self):
        for one in self.saw("refused"):
            self.assertIn(f"there is no {self.folder}/disk1/{self.lost}, in which rank 1 of 2 kept what it held back", one["error"])
        said = [line for line in self.check_went_on("forgotten", 4) if "save_on_each_node" not in line]
        self.assertEqual(said, [f"thinwire: what rank 1 of 2 held back is dropped, since there is no {self.folder}/disk1/{self.lost}"])


if __name__ == "__main__":
    NAME = sys.argv.pop(1)
    launched.load(NAME)
    unittest.main()
