#!/usr/bin/env python3
"""Local steps in Lightning, Accelerate and the Trainer of transformers, beside the same steps by hand: programs that know
nothing of each other but where they meet, or for Accelerate the two processes of one run.

    test_frameworks_apart.py NAME

Each machine has one batch of its own, so that all that is random is out of it. Whatever the framework evaluates and saves
in the middle of a round are the shared weights of the round before, and a run that is resumed there has the same bits."""

import contextlib
import io
import os
import pathlib
import signal
import sys
import tempfile
import types
import unittest
import warnings

import launched
import models
import ranks
import thinwire
import torch
from torch import nn

MACHINES, EVERY, SAVED, STEPS, MANY, RATE, EPOCH, BEST = 2, 4, 6, 10, 10**6, 1e-2, 3, 1  # it saves in the middle of a round, and ends in one


class Broken(Exception):
    pass


def model_of(seen, fails_at=None, target=None):
    class Model(nn.Module):
        """With `seen`, it notes the weights that it is evaluated with. Its training fails at the pass `fails_at`. With
        `target`, it is evaluated by how far its weights are from it."""

        def __init__(self):
            super().__init__()
            torch.manual_seed(1)
            self.layers = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
            self.passes = 0

        def forward(self, x, labels):
            self.passes += self.training
            if self.passes == fails_at:
                raise Broken
            if not self.training:
                seen.append(flat(self).tolist())
                if target is not None:
                    return {"loss": (flat(self) - target).norm()}
            return {"loss": nn.functional.cross_entropy(self.layers(x), labels)}

    return Model()


def rows(machine):
    generator = torch.Generator().manual_seed(machine)
    return [{"x": torch.randn(6, generator=generator), "labels": torch.randint(3, (), generator=generator)} for _ in range(8)]


def one_row(machine):
    """Of which any order is the same: three batches, and so the ends of epochs lie inside rounds."""
    return rows(machine)[:1] * (8 * EPOCH)


def flat(module):
    return torch.cat([p.detach().reshape(-1) for p in module.parameters()])


def by_hand(rows=rows, steps=STEPS):
    """The shared weights after each round, of which the last one ends early."""
    def worker(machine):
        model, batch = model_of(None), torch.utils.data.default_collate(rows(machine))
        return model, torch.optim.AdamW(model.parameters(), RATE, weight_decay=0.0), lambda: model(**batch)["loss"]

    return models.local_updates([worker(machine) for machine in range(MACHINES)], EVERY, steps)


# ---- a machine's program: trains to the end and returns the weights that it has then, and those that it has saved -----


def trainer(model, machine, out, resume, more):
    from safetensors.torch import load_file
    from transformers import Trainer, TrainerCallback, TrainingArguments
    logged = []

    class Logger(TrainerCallback):
        def on_log(self, args, state, control, logs=None, **more):
            logged.append((logs.get("thinwire/rounds_given"), logs.get("thinwire/rounds_empty")))

    arguments = TrainingArguments(
        output_dir=str(out), max_steps=STEPS, per_device_train_batch_size=8, learning_rate=RATE, weight_decay=0.0,
        lr_scheduler_type="constant", save_steps=SAVED, eval_steps=SAVED, eval_strategy="steps", logging_steps=1, report_to=[],
        disable_tqdm=True, use_cpu=True, max_grad_norm=0.0, save_total_limit=3)
    one = Trainer(model, arguments, train_dataset=rows(machine), eval_dataset=rows(machine), callbacks=[Logger()])
    one.add_callback(thinwire.TrainerCallback(**more))
    one.train(resume_from_checkpoint=str(out / f"checkpoint-{SAVED}") if resume else None)
    assert resume or (logged[0], logged[-1]) == ((0, 0), (3, 0)), logged
    saved = load_file(out / f"checkpoint-{SAVED}/model.safetensors")
    return [saved[name] for name, _ in model.named_parameters()]


def best(folder, machine, port):
    """Chosen by epoch and loaded at the end; the training ends when it has not improved for two epochs."""
    from safetensors.torch import load_file
    from transformers import EarlyStoppingCallback, Trainer, TrainingArguments
    model, out = model_of([], target=by_hand(one_row)[BEST]), folder / f"machine{machine}"
    arguments = TrainingArguments(
        output_dir=str(out), num_train_epochs=9, per_device_train_batch_size=8, learning_rate=RATE, weight_decay=0.0,
        lr_scheduler_type="constant", save_strategy="epoch", eval_strategy="epoch", load_best_model_at_end=True,
        report_to=[], disable_tqdm=True, use_cpu=True, max_grad_norm=0.0)
    one = Trainer(model, arguments, train_dataset=one_row(machine), eval_dataset=one_row(machine),
                  callbacks=[EarlyStoppingCallback(early_stopping_patience=2), thinwire.TrainerCallback(**settings(port))])
    one.train()
    saved = load_file(f"{one.state.best_model_checkpoint}/model.safetensors")
    return {"steps": one.state.global_step, "checkpoint": one.state.best_model_checkpoint, "end": flat(model).tolist(),
            "saved": [x for name, _ in model.named_parameters() for x in saved[name].reshape(-1).tolist()],
            "losses": [row["eval_loss"] for row in one.state.log_history if "eval_loss" in row]}


def lightning(model, machine, out, resume, more, before=(), behind=()):
    from lightning.pytorch import LightningModule, Trainer
    from lightning.pytorch.callbacks import ModelCheckpoint
    from thinwire.torch.lightning import LocalUpdates

    class Module(LightningModule):
        def __init__(self):
            super().__init__()
            self.model = model

        def training_step(self, batch, index):
            return self.model(**batch)["loss"]

        def validation_step(self, batch, index):
            self.model(**batch)

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters(), RATE, weight_decay=0.0)

    path = out / f"step={SAVED}.ckpt"
    saves = ModelCheckpoint(out, filename="{step}", every_n_train_steps=SAVED, save_top_k=-1)
    one = Trainer(accelerator="cpu", devices=1, max_steps=STEPS, max_epochs=-1, check_val_every_n_epoch=SAVED, logger=False,
                  num_sanity_val_steps=0, enable_progress_bar=False, enable_model_summary=False,
                  callbacks=[*before, saves, LocalUpdates(**more), *behind])
    one.fit(Module(), *(torch.utils.data.DataLoader(rows(machine), batch_size=8) for _ in range(2)),
            ckpt_path=path if resume else None)
    saved = torch.load(path, weights_only=False)
    saved = saved.get("current_model_state", saved["state_dict"])
    return [saved[f"model.{name}"] for name, _ in model.named_parameters()]


def accelerate(model, machine, out, resume, more):
    from accelerate import Accelerator
    from thinwire.torch.accelerate import LocalSGD
    accelerator = Accelerator(cpu=True)
    optimiser = torch.optim.AdamW(model.parameters(), RATE, weight_decay=0.0)
    wrapped, optimiser = accelerator.prepare(model, optimiser)
    meets = {} if "RANK" in os.environ else {key: more[key] for key in ("join", "workers", "timeout")}
    with LocalSGD(accelerator=accelerator, model=wrapped, local_sgd_steps=EVERY, enabled=True, banner=False, **meets) as local_sgd:
        for _ in range(STEPS):
            optimiser.zero_grad()
            accelerator.backward(wrapped(**torch.utils.data.default_collate(rows(machine)))["loss"])
            optimiser.step()
            local_sgd.step()
    return None


# ---- the same where machines come and go: each trains until it has made some rounds among so many, and saves once -----


class Among:
    def __init__(self, size):
        self.size, self.since, self.loop = size, None, None

    def have_met(self, loop):
        self.loop, rounds = loop, loop.stats()["rounds"]
        self.since = rounds if self.since is None and loop.size == self.size else self.since
        return self.since is not None and rounds >= self.since + 3


class UntilCtrlC(Among):
    """Which machine 0 gets when both have met, and the other one goes on until it is alone."""

    def __init__(self, machine):
        super().__init__(MACHINES)
        self.machine = machine

    def have_met(self, loop):
        if super().have_met(loop) and self.machine == 0:
            signal.raise_signal(signal.SIGINT)
        return self.since is not None and loop.size == 1


def changing_trainer(model, machine, out, resume, more, among):
    from safetensors.torch import load_file
    from transformers import Trainer, TrainerCallback, TrainingArguments

    class Watch(TrainerCallback):
        def on_step_end(self, args, state, control, **more):
            control.should_save = state.global_step == SAVED and not resume
            control.should_training_stop = among.have_met(local._local.loop)

    arguments = TrainingArguments(
        output_dir=str(out), max_steps=MANY, per_device_train_batch_size=8, learning_rate=RATE, lr_scheduler_type="constant",
        save_strategy="no", report_to=[], disable_tqdm=True, use_cpu=True)
    one, place = Trainer(model, arguments, train_dataset=rows(machine), callbacks=[Watch()]), out / f"checkpoint-{SAVED}"
    local = thinwire.TrainerCallback(**more)
    one.add_callback(local)
    one.train(resume_from_checkpoint=str(place) if resume else None)
    return load_file(place / "model.safetensors"), torch.load(place / "thinwire.pt", weights_only=True)


def changing_lightning(model, machine, out, resume, more, among):
    from lightning.pytorch import Callback, LightningModule, Trainer
    from thinwire.torch.lightning import KEY_OF_ROUNDS, LocalUpdates
    local, path = LocalUpdates(**more), out / "saved.ckpt"

    class Module(LightningModule):
        def __init__(self):
            super().__init__()
            self.layers = model.layers

        def training_step(self, batch, index):
            return model(**batch)["loss"]

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters(), RATE)

    class Watch(Callback):
        def on_train_batch_end(self, trainer, *what):
            if trainer.global_step == SAVED and not resume:
                trainer.save_checkpoint(path)
            trainer.should_stop = among.have_met(local._local.loop)

    one = Trainer(accelerator="cpu", devices=1, max_steps=MANY, max_epochs=-1, logger=False, enable_checkpointing=False,
                  enable_progress_bar=False, enable_model_summary=False, callbacks=[local, Watch()])
    one.fit(Module(), torch.utils.data.DataLoader(rows(machine), batch_size=8), ckpt_path=path if resume else None)
    saved = torch.load(path, weights_only=False)
    return saved["state_dict"], saved[KEY_OF_ROUNDS]


def changing_accelerate(model, machine, out, resume, more, among):
    from accelerate import Accelerator
    from thinwire.torch.accelerate import LocalSGD
    accelerator = Accelerator(cpu=True)
    wrapped, optimiser = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), RATE))
    more = {**more, "spec": more["spec"].split(":")[0]}
    with LocalSGD(accelerator=accelerator, model=wrapped, local_sgd_steps=EVERY, enabled=True, **more) as local_sgd:
        have_met = False
        while not have_met:
            optimiser.zero_grad()
            accelerator.backward(wrapped(**torch.utils.data.default_collate(rows(machine)))["loss"])
            optimiser.step()
            local_sgd.step()
            have_met = among.have_met(local_sgd.loop)
    return {}, {}


def come_and_go(name, folder, machine, port, size=MACHINES, resume=False):
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        model, more = model_of([]), settings(port)
        del more["workers"]
        among = Among(size)
        saved, state = globals()[f"changing_{name}"](model, machine, folder / f"machine{machine}", resume, more, among)
    return {"end": flat(model).tolist(), "rounds": among.loop.stats()["rounds"], "hash": among.loop.hash,
            "rounds_saved": state["outer/numbers"][0].item() if state else 0,
            "alike": all(saved[key].equal(state[f"theta/{key}"]) for key in saved),
            "alone": sum("this program has trained alone" in str(one.message) for one in told)}


def leave_by_ctrl_c(name, folder, machine, port):
    """How the training of a machine ends, and what it says and warns of."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # what a shell starts in the background ignores it
    more = {**settings(port), "spec": f"sparseloco:every={EVERY}", "quorum": 1}
    del more["workers"]
    among, ended = UntilCtrlC(machine), "end"
    with warnings.catch_warnings(record=True) as told, contextlib.redirect_stderr(io.StringIO()) as said:
        warnings.simplefilter("always")
        try:
            globals()[f"changing_{name}"](model_of([]), machine, folder / f"machine{machine}", False, more, among)
        except (KeyboardInterrupt, SystemExit):
            ended = "interrupted"
    return {"ended": ended, "has_left": among.loop._finished, "said": said.getvalue(), "told": [str(one.message) for one in told]}


def go_on_alone(name, folder, machine, port):
    return come_and_go(name, folder, machine, port, 1, True) if machine == 0 else {}


def settings(port):
    return {"spec": f"local:every={EVERY}", "join": f"127.0.0.1:{port}", "workers": MACHINES, "timeout": ranks.SECONDS}


def play(name, folder, machine, port, resume=False):
    seen = []
    model = model_of(seen)
    saved = globals()[name](model, machine, folder / f"machine{machine}", resume, settings(port))
    return {"end": flat(model).tolist(), "seen": seen, "saved": saved and [x for one in saved for x in one.reshape(-1).tolist()]}


def resume(name, folder, machine, port):
    return play(name, folder, machine, port, True)


def break_off(name, folder, machine, port):
    """The training of machine 0 fails, and its program goes on until the other one has noticed."""
    from thinwire import PeerError
    try:
        globals()[name](model_of([], fails_at=SAVED if machine == 0 else None), machine, folder / f"machine{machine}", False,
                        settings(port))
    except (Broken, PeerError) as error:
        if machine == 0:
            ranks.meet("noticed", 1)
        else:
            ranks.reached("noticed")
        return type(error).__name__
    return "nothing"


def plan(name, folder, machine, port):
    """A run of so few steps that no method has been measured in one."""
    from thinwire import Error
    try:
        spec = "auto:pass_ms=20,rate=1Mbit,latency=5ms"
        globals()[name](model_of([]), machine, folder / f"machine{machine}", False, {**settings(port), "spec": spec})
    except Error as error:
        return str(error)
    return "nothing"


def average(name, folder, machine, port):
    """Beside a callback that has an average of this machine's own, in either order."""
    from lightning.pytorch.callbacks import EMAWeightAveraging
    def with_average(where):
        model, out = model_of([]), folder / f"machine{machine}"
        trained = lightning(model, machine, out, False, settings(port), **{where: [EMAWeightAveraging(decay=0.5)]})
        averaged = torch.load(out / f"step={SAVED}.ckpt", weights_only=False)["state_dict"]
        return [torch.cat([x.reshape(-1) for x in some]).tolist() for some in (model.parameters(), trained, averaged.values())]
    return ranks.refused(lambda: with_average("behind")), *with_average("before")


def choose(name, folder, machine, port):
    return best(folder, machine, port)


def run(machine, size, what, folder, port):
    return globals()[what](NAME, folder, machine, port)


# ---- the test ----------------------------------------------------------------------------------------------------------


class ApartTest(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)

    def played(self, what="play"):
        """What each machine has left."""
        with ranks.Machines(run, MACHINES, what, self.folder, ranks.free_port()) as machines:
            return machines.results()

    def close(self, values, wanted):
        self.assertEqual(len(values), len(wanted))
        self.assertLess(max(abs(a - b) for a, b in zip(values, wanted)), 1e-5)

    def test_the_shared_weights_are_those_by_hand(self):
        shared = [one.tolist() for one in by_hand()]
        if NAME == "accelerate":
            first = launched.forked_as_torchrun_does(MACHINES, lambda: play(NAME, self.folder, int(os.environ["RANK"]), 0))
        else:
            first = self.played()
        for one in first:
            self.assertEqual(one["end"], first[0]["end"])
            self.close(one["end"], shared[-1])
        if NAME == "accelerate":
            for one in self.played():
                self.close(one["end"], shared[-1])
            return
        for one in first:
            self.assertEqual(one["saved"], first[0]["saved"])
            self.close(one["saved"], shared[SAVED // EVERY])
            self.close(one["seen"][0], shared[SAVED // EVERY])
        for one in self.played("resume"):
            self.assertEqual(one["end"], first[0]["end"])

    def test_machines_that_come_and_go(self):
        first, other = self.played("come_and_go")
        for key in "end", "hash", "rounds":
            self.assertEqual(first[key], other[key])
        self.assertTrue(first["alike"] and other["alike"])
        self.assertEqual((first["alone"], other["alone"]), (0, 0))
        if NAME == "accelerate":  # it saves nothing of a loop
            return
        alone, _ = self.played("go_on_alone")
        self.assertGreaterEqual(alone["rounds"], alone["rounds_saved"] + 3)
        self.assertEqual(alone["alone"], 1)

    def test_who_is_ended_by_ctrl_c_hands_over_what_it_held_back(self):
        first, other = self.played("leave_by_ctrl_c")
        self.assertEqual((first["ended"], first["has_left"], other["ended"]), ("interrupted", True, "end"))
        self.assertRegex(first["said"], r"\nthinwire sparseloco:every=4: \d+ steps, \d+ rounds( of the group's \d+)?, .* with weights \w{8}\n")
        self.assertNotIn("what this machine had for the others is lost", first["said"])
        if "the group goes on without " not in first["said"] + other["said"]:  # as without one that is silent for some seconds
            self.assertNotIn("given up", "".join(other["told"]))

    @unittest.skipIf(sys.argv[1] == "accelerate", "a with statement sees to it")
    def test_who_fails_leaves_the_others_at_once(self):
        self.assertEqual(self.played("break_off"), ["Broken", "PeerError"])

    @unittest.skipIf(sys.argv[1] == "accelerate", "it does not know how many steps there are")
    def test_a_plan_is_for_the_steps_of_the_framework(self):
        for text in self.played("plan"):
            self.assertIn(f"has been measured in a run of {STEPS} steps", text)

    @unittest.skipUnless(sys.argv[1] == "trainer", "the others tell their callbacks")
    def test_a_train_that_tells_of_no_failure_is_refused(self):
        with self.assertRaisesRegex(thinwire.Error, "does not call that of transformers.Trainer.*: write an OuterLoop into it"):
            thinwire.TrainerCallback("local:every=4").on_train_begin(types.SimpleNamespace(output_dir=""), types.SimpleNamespace(global_step=0), None)

    @unittest.skipUnless(sys.argv[1] == "trainer", "the others find no batch that fits")
    def test_a_training_that_begins_once_more_has_one_loop(self):
        """As one whose batch was too large. The first loop has the port of the second, and its group."""
        from transformers import Trainer, TrainerCallback, TrainingArguments
        loops = []

        class Full(TrainerCallback):
            def on_step_end(self, args, state, control, **more):
                loops.append(local._local.loop)
                if len(loops) == SAVED:
                    raise RuntimeError("CUDA out of memory.")

        arguments = TrainingArguments(output_dir=self.folder, max_steps=STEPS, auto_find_batch_size=True, save_strategy="no",
                                      report_to=[], disable_tqdm=True, use_cpu=True)
        one = Trainer(model_of([]), arguments, train_dataset=rows(0), callbacks=[Full()])
        local = thinwire.TrainerCallback(f"local:every={EVERY}", join=f"127.0.0.1:{ranks.free_port()}", patience=5.0)
        one.add_callback(local)
        one.train()
        self.assertEqual(loops, SAVED * loops[:1] + STEPS * loops[-1:])
        self.assertEqual([loop._finished for loop in (loops[0], loops[-1])], [False, True])

    @unittest.skipUnless(sys.argv[1] == "lightning", "the others have no such callback")
    def test_averages_of_a_callback_become_their_mean_at_the_end(self):
        (text, end, trained, averaged), (_, other_end, other_trained, other_averaged) = self.played("average")
        self.assertIn("write LocalUpdates behind EMAWeightAveraging in the list of callbacks", text)
        self.assertEqual(end, other_end)
        self.assertEqual(trained, other_trained)
        self.close(trained, by_hand()[SAVED // EVERY].tolist())
        self.assertGreater(max(abs(a - b) for a, b in zip(averaged, other_averaged)), 1e-4)  # each has its own

    @unittest.skipUnless(sys.argv[1] == "trainer", "the others choose no model themselves")
    def test_the_best_model_is_chosen_among_shared_weights(self):
        shared = by_hand(one_row, 12)
        losses = [float((one - shared[BEST]).norm()) for one in shared]
        first, other = self.played("choose")
        self.assertEqual(first["end"], other["end"])
        for one in first, other:
            self.assertEqual((one["steps"], pathlib.Path(one["checkpoint"]).name), (12, "checkpoint-6"))
            self.assertEqual(one["end"], one["saved"])
            self.close(one["end"], shared[BEST].tolist())
            self.close(one["losses"], losses)


if __name__ == "__main__":
    NAME = sys.argv.pop(1)
    launched.load(NAME)
    unittest.main()
