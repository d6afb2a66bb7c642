"""Stopping and going on: the same bits as without the stop, and no way to lose what was saved."""
import contextlib
import json
import os
import resource
import shutil
import signal
import unittest

from checkpoint_file import rewrite_texts
from support import (ANSWER, CommandLineTest, await_stop, has_stepped, killing, run_tests, saved_steps, take_library, wait_until,
                     write_cifar)

import parts

KILLER = take_library("kill_in_file")
SENDS_ALL = "dgc-adam:density=1,values=fp32,nesterov=off,warmup_steps=0"
SENDS_MEANS = "dgc-adam:dense=*,leftovers=fp32,nesterov=off"
SCHEMES = ("allreduce", "dgc:density=0.02,momentum=0.9")


def limit_file_size():
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))


class ResumeTest(CommandLineTest):
    def test_resumed_equals_uninterrupted(self):
        self.check_resuming((SCHEMES[0], 1), (SCHEMES[1], 4))

    @parts.extra
    def test_others_resumed_equal_uninterrupted(self):
        self.check_resuming((SCHEMES[0], 2), (SCHEMES[0], 4), (SCHEMES[1], 1), (SCHEMES[1], 2))

    def check_resuming(self, *runs):
        for sync, workers in runs:
            with self.subTest(sync=sync, workers=workers):
                out = self.folder / f"{sync}-{workers}"
                options = ("--sync", sync, "--workers", workers, "--crop", 2, "--schedule", "constant")
                whole = self.train(*options, "--steps", 9)
                self.train(*options, "--steps", 4, "--out", out)
                resumed = self.train(*options, "--steps", 9, "--out", out, "--resume")
                self.assertEqual(resumed["weights_crc32c"], whole["weights_crc32c"])
                self.assertEqual(resumed["metric"], whole["metric"])
                self.assertEqual(resumed["train_loss"], whole["train_loss"])
                self.assertEqual(resumed["bytes"]["dense"], whole["bytes"]["dense"])
                # what the second start's ranks agreed on, and numbers that they shared, were sent too
                again = 48 * (workers.bit_length() - 1) + 48 * (workers - 1) // workers
                self.assertEqual(resumed["bytes"]["sent"] - whole["bytes"]["sent"], again)

    @parts.extra
    def test_batch_norm_models_resume_too(self):
        options = ("--data", write_cifar(self.folder / "cifar"), "--model", "resnet20", "--workers", 2, "--crop", 4,
                   "--flip", "--weight-decay", 1e-4, "--schedule", "constant", "--sync", "dgc")
        whole = self.train(*options, "--steps", 4)
        self.train(*options, "--steps", 2, "--out", self.folder)
        resumed = self.train(*options, "--steps", 4, "--out", self.folder, "--resume")
        self.assertEqual(resumed["weights_crc32c"], whole["weights_crc32c"])
        self.assertEqual(resumed["loss"], whole["loss"])

    def test_other_pixels_are_refused(self):
        data = shutil.copytree(self.data, self.folder / "data")
        out = self.folder / "run"
        self.train("--data", data, "--steps", 2, "--out", out)
        pixels = data / "train-images-idx3-ubyte"
        pixels.write_bytes(pixels.read_bytes()[:-1] + bytes([pixels.read_bytes()[-1] ^ 1]))
        self.refuse_training(2, ["model.safetensors was written with what is in the training data pixels", "must be as they were"],
                             "--data", data, "--steps", 4, "--out", out, "--resume")

    def go_on(self, out, sync, steps, workers=2, told="the moments of AdamW go on with", others=()):
        job = self.complete(*self.train_words("--quiet", "--json", "-", "--out", out, "--resume", "--sync", sync, "--steps", steps,
                                              "--workers", workers, *others))
        self.assertIn(told, job.stderr)
        return json.loads(job.stdout)

    def test_an_adamw_run_goes_on_with_the_scheme_that_owns_its_moments_and_back(self):
        """Bit for bit, as long as the powers of these betas are exact in double."""
        self.check_moments((f"{SENDS_MEANS},momentum=0.75", 2), ("onebit-adam:momentum=0.75,leftovers=fp32,warmup_steps=99", 2))

    @parts.extra
    def test_an_adamw_run_goes_on_so_with_other_numbers_of_workers(self):
        self.check_moments((f"{SENDS_ALL},momentum=0.75", 1), (f"{SENDS_MEANS},momentum=0.75", 4))

    def check_moments(self, *runs):
        adamw = ("--optimizer", "adamw", "--lr", 0.01, "--momentum", 0.75, "--beta2", 0.9375, "--epsilon", 2**-20,
                 "--weight-decay", 0.1, "--schedule", "constant")
        for sync, workers in runs:
            with self.subTest(sync=sync, workers=workers):
                out = self.folder / f"{sync[:12]}-{workers}"
                whole = self.train(*adamw, "--workers", workers, "--steps", 12)
                self.train(*adamw, "--workers", workers, "--steps", 4, "--out", out)
                self.go_on(out, sync, 8, workers)
                self.refuse_training(2, ["whose moments go on with allreduce, fp16, bf16, dgc-adam or onebit-adam,"], "--out", out,
                                     "--resume", "--sync", "powersgd")
                self.assertEqual(self.go_on(out, "allreduce", 12, workers)["weights_crc32c"], whole["weights_crc32c"])

    def test_moments_go_on_among_more_and_fewer_workers(self):
        out = self.folder / "run"
        self.train("--optimizer", "adamw", "--lr", 0.01, "--workers", 2, "--steps", 3, "--out", out)
        self.go_on(out, "dgc-adam", 6, 4, "is of a run with --sync allreduce: the moments of AdamW go on with --sync dgc-adam")
        for sync, steps, workers in (("onebit-adam:warmup_steps=2,refresh=2", 8, 3), ("dgc-adam:state=bf16", 10, 4), ("allreduce", 12, 1)):
            self.assertEqual(self.go_on(out, sync, steps, workers, "what they remembered is taken over")["steps"], steps)
        self.refuse_training(2, ["has --sync allreduce, whose moments go on with dgc-adam or onebit-adam,"], "--out", out, "--resume", "--sync", "topk")

    def test_moments_of_a_lost_worker_are_missed(self):
        out = self.folder / "run"
        self.train("--optimizer", "adamw", "--lr", 0.01, "--workers", 2, "--steps", 3, "--sync", "dgc-adam", "--out", out)
        lost = out / "checkpoints/step-00000003/worker-1.safetensors"
        lost.unlink()
        self.refuse_training(2, ["worker-1.safetensors is missing", "--forget-lost"], "--out", out, "--resume", "--sync", "allreduce",
                             "--steps", 6)
        told = "it remembered is dropped, and what the others remembered is taken over"
        self.assertEqual(self.go_on(out, "allreduce", 6, 2, told, ("--forget-lost",))["steps"], 6)

    def test_a_named_checkpoint(self):
        options = ("--out", self.folder / "run", "--checkpoint-every", 2, "--schedule", "constant")
        whole = self.train(*options, "--steps", 6)
        names = sorted(path.name for path in (self.folder / "run/checkpoints").iterdir())
        self.assertEqual(names, ["step-00000004", "step-00000006"])
        fourth = self.folder / "run/checkpoints/step-00000004"
        again = self.train("--schedule", "constant", "--steps", 6, "--resume", fourth)
        self.assertEqual(again["weights_crc32c"], whole["weights_crc32c"])

    def checkpoints(self, out):
        return sorted(path.name for path in (out / "checkpoints").iterdir())

    def test_a_run_folder_is_continued_in_place(self):
        options = ("--schedule", "constant", "--workers", 2)
        self.train(*options, "--steps", 3, "--out", self.folder)
        resumed = self.train(*options, "--steps", 6, "--resume", self.folder)
        self.assertEqual(resumed["weights_crc32c"], self.train(*options, "--steps", 6)["weights_crc32c"])
        self.assertEqual(self.checkpoints(self.folder), ["step-00000003", "step-00000006"])

    def test_another_runs_checkpoint_does_not_go_into_an_occupied_folder(self):
        for name in ("one", "two"):
            self.train("--steps", 2, "--out", self.folder / name)
        self.refuse_training(2, [self.folder / "two"], "--steps", "3", "--resume", self.folder / "one", "--out",
                             self.folder / "two")
        self.train("--steps", 3, "--resume", self.folder / "one", "--out", self.folder / "three")

    def test_a_finished_run_gives_the_same_summary_again(self):
        first = self.train("--epochs", 1, "--workers", 2, "--out", self.folder)
        again = self.train("--epochs", 1, "--workers", 2, "--resume", self.folder)
        for key in ("steps", "metric", "loss", "train_loss", "weights_crc32c"):
            self.assertEqual(again[key], first[key], key)

    def test_what_does_not_fit(self):
        self.train("--steps", 2, "--workers", 2, "--out", self.folder)
        resume = ("--out", self.folder, "--resume")
        changes = (("model", "cnn", "resnet20"), ("sync", "allreduce", "topk"))
        for option, had, given in changes:
            self.refuse_training(2, [self.folder, f"--{option} {had}", f"--{option} {given}"], f"--{option}", given,
                                 *resume)
        (self.folder / "config.yaml").rename(self.folder / "aside.yaml")
        for option, had, given in changes:  # the checkpoint knows, too
            self.refuse_training(2, ["model.safetensors", f"{option} {had}", f"{option} {given}"], f"--{option}", given,
                                 *resume)
        (self.folder / "aside.yaml").rename(self.folder / "config.yaml")
        self.refuse_training(2, ["training data"], "--workers", "2", "--limit-train", "64", *resume)
        self.refuse_training(2, ["--out"], "--resume")
        self.refuse_training(2, [self.folder / "none"], "--out", self.folder / "none", "--resume")
        self.train("--steps", 3, "--workers", 2, "--weight-decay", 0.1, *resume)

    def test_damage_names_the_checkpoint_before(self):
        options = ("--workers", "2", "--schedule", "constant", "--checkpoint-every", "2")
        self.train(*options, "--steps", 4, "--out", self.folder)
        for name in ("model.safetensors", "worker-1.safetensors"):
            path = self.folder / "checkpoints/step-00000004" / name
            whole = path.read_bytes()
            path.write_bytes(whole[:-5] + bytes([whole[-5] ^ 1]) + whole[-4:])
            older = self.folder / "checkpoints/step-00000002"
            self.refuse_training(2, [path, f"the checkpoint before it is {older}"], *options, "--steps", "4", "--out",
                                 self.folder, "--resume")
            path.write_bytes(whole)

    def test_a_full_disk_loses_nothing(self):
        """The last checkpoint is the best by validation, too."""
        held, out = ("--validation", "0.2"), self.folder / "run.partial"  # named as what a checkpoint is while it grows
        options = ("--workers", "2", "--schedule", "constant", "--checkpoint-every", "2", *held, "--out", out)
        self.train(*options, "--steps", 2)
        config = (out / "config.yaml").read_text()
        self.refuse_training(2, ["config.yaml"], *options, "--steps", "4", "--resume",
                             preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10)))
        self.assertEqual((out / "config.yaml").read_text(), config)
        self.assertFalse((out / "config.yaml.partial").exists())
        self.assertTrue((out / "summary.json").exists())
        self.refuse_training(2, [out / "checkpoints/step-00000004/model.safetensors"], *options, "--steps", "4", "--resume",
                             preexec_fn=limit_file_size)
        names = [path.name for path in (out / "checkpoints").iterdir()]
        self.assertEqual(names, ["step-00000002"])
        self.assertFalse((out / "summary.json").exists())  # the run had gone on behind that end
        resumed = self.train(*options, "--steps", 4, "--resume")
        whole = self.train("--workers", 2, "--schedule", "constant", "--steps", 4, *held)
        self.assertEqual(resumed["weights_crc32c"], whole["weights_crc32c"])


class OtherWorkersTest(CommandLineTest):
    def test_what_was_tried_on_one_worker_ends_with_the_start(self):
        handicap = ("--slow", "1:2", "--pause", "1:2:0.01")
        self.train("--workers", 2, "--steps", 2, *handicap, "--out", self.folder / "run")
        self.complete(*self.train_words("--quiet", "--workers", 1, "--steps", 4, "--resume", self.folder / "run"))

    def test_fewer_and_more_go_on(self):
        """Half as many workers take twice as many steps for an epoch. What is told is one line."""
        out = self.folder / "run"
        options = ("--quiet", "--json", "-", "--sync", "dgc", "--schedule", "constant", "--out", out)
        self.train("--workers", 4, "--epochs", 1, *options[3:])
        self.assertEqual([path.name for path in out.glob("checkpoints/*")], ["step-00000006"])
        for workers, epochs, begun, ended in ((2, 2, 12, 24), (8, 3, 6, 9)):
            done = self.complete(*self.train_words("--workers", workers, "--epochs", epochs, "--resume", *options))
            told, = done.stderr.splitlines()
            self.assertIn(f"this run has {workers}: what they held back is shared out, and it goes on at step {begun}, "
                          f"epoch {epochs - 1}", told)
            summary = json.loads(done.stdout)
            self.assertEqual((summary["workers"], summary["steps"], summary["epochs"]), (workers, ended, epochs))


class BelongingTest(CommandLineTest):
    """Files of different ranks, runs and checkpoints are not taken for one checkpoint."""
    OPTIONS = ("--workers", "2", "--sync", "dgc", "--schedule", "constant")
    STAMP = ("rank", "workers", "run", "model checksum")

    def save(self, name, *options):
        out = self.folder / name
        self.train(*self.OPTIONS, "--steps", 2, "--out", out, *options)
        return out / "checkpoints/step-00000002"

    def refuse_to_resume(self, checkpoint, *culprits):
        self.refuse_training(2, culprits, *self.OPTIONS, "--steps", "3", "--resume", checkpoint)

    def test_swapped_and_duplicated(self):
        checkpoint = self.save("run")
        first, second = (checkpoint / f"worker-{rank}.safetensors" for rank in range(2))
        first.rename(checkpoint / "aside")
        shutil.copy(second, first)
        self.refuse_to_resume(checkpoint, first, "its rank is 1", "0")
        second.unlink()
        (checkpoint / "aside").rename(second)
        self.refuse_to_resume(checkpoint, first, "its rank is 1", "0")

    def test_another_run_of_the_same_step(self):
        checkpoint = self.save("run")
        for name, options in (("seed", ("--seed", 2)), ("again", ()), ("rate", ("--lr", 0.001))):
            other = self.save(name, *options)
            file = checkpoint / "worker-1.safetensors"
            kept = file.read_bytes()
            shutil.copy(other / file.name, file)
            self.refuse_to_resume(checkpoint, file, "its run is")
            file.write_bytes(kept)
        self.train(*self.OPTIONS, "--steps", 3, "--resume", checkpoint)

    def test_another_course_of_the_same_run(self):
        """Both come from one checkpoint, whose run they go on with."""
        start = self.save("run")
        courses = []
        for name, rate in (("one", 0.03), ("two", 0.001)):
            self.train(*self.OPTIONS, "--steps", 3, "--lr", rate, "--resume", start, "--out", self.folder / name)
            courses.append(self.folder / name / "checkpoints/step-00000003")
        file = courses[0] / "worker-0.safetensors"
        shutil.copy(courses[1] / file.name, file)
        self.refuse_to_resume(courses[0], file, "its model checksum is")

    def test_checkpoints_of_version_0_1(self):
        """They do not say what belongs to them; they are taken, but not mixed with those that do."""
        checkpoint = self.save("run")
        model, worker = checkpoint / "model.safetensors", checkpoint / "worker-1.safetensors"
        stamped = worker.read_bytes()

        rewrite_texts(model, lambda texts: texts.pop("run"))
        self.refuse_to_resume(checkpoint, "worker-", "of a later version")
        for rank in range(2):
            rewrite_texts(checkpoint / f"worker-{rank}.safetensors", lambda texts: [texts.pop(key) for key in self.STAMP])
        resumed = self.train(*self.OPTIONS, "--steps", 3, "--resume", checkpoint)
        self.assertEqual(resumed["weights_crc32c"], self.train(*self.OPTIONS, "--steps", 3)["weights_crc32c"])
        worker.write_bytes(stamped)
        self.refuse_to_resume(checkpoint, worker, "of a later version")


class IncompleteTest(CommandLineTest):
    OPTIONS = ("--workers", "2", "--schedule", "constant")

    def test_one_does_not_hide_the_whole_ones(self):
        self.check_missing("model")

    @parts.extra
    def test_one_without_a_worker_does_not_hide_the_whole_ones(self):
        self.check_missing("worker-0", "worker-1")

    def check_missing(self, *names):
        whole = self.train(*self.OPTIONS, "--steps", 5)["weights_crc32c"]
        for name in names:
            out = self.folder / name
            self.train(*self.OPTIONS, "--steps", 4, "--checkpoint-every", 2, "--out", out)
            (out / "checkpoints/step-00000004" / f"{name}.safetensors").unlink()
            done = self.complete(*self.train_words(*self.OPTIONS, "--quiet", "--json", "-", "--steps", 5, "--out", out,
                                                   "--resume"))
            self.assertEqual(json.loads(done.stdout)["weights_crc32c"], whole)
            self.assertEqual(len(done.stderr.splitlines()), 1)
            self.assertIn(f"step-00000004/{name}.safetensors is missing", done.stderr)

    def test_where_there_is_no_other_it_is_refused(self):
        self.train(*self.OPTIONS, "--steps", 2, "--out", self.folder)
        (self.folder / "checkpoints/step-00000002/worker-1.safetensors").unlink()
        self.refuse_training(2, ["worker-1.safetensors is missing"], *self.OPTIONS, "--out", self.folder, "--resume")


class LongRunTest(CommandLineTest):
    """Something happens to a run that has no end of its own. What dgc does must not follow from the run's length: the run
    that it is held against has an end, and may be hundreds of steps long, as fast as the machine is."""
    OPTIONS = ("--workers", 2, "--sync", "dgc:density=0.02,warmup_steps=40", "--schedule", "constant")

    def start_run(self, *options, **keywords):
        """A run whose banner is out, and the file that it prints into."""
        words = self.train_words("--epochs", 1000000, "--schedule", "constant", *options)
        printed = self.folder.with_suffix(".printed")
        with printed.open("w") as file:
            job = self.start_program(*words, stdout=file, **keywords)
        wait_until(lambda: "fp32 step" in printed.read_text(), "the banner", job)
        return job, printed

    def assert_resumable(self, out):
        step = saved_steps(out)[-1]
        options = (*self.OPTIONS, "--steps", step + 2)
        resumed = self.train(*options, "--out", out, "--resume")
        self.assertEqual(resumed["weights_crc32c"], self.train(*options)["weights_crc32c"])


class LockTest(LongRunTest):
    def test_a_second_run_is_refused_and_told_who_runs(self):
        job, _ = self.start_run(*self.OPTIONS, "--out", self.folder)
        kept = sorted(path.name for path in self.folder.iterdir() if path.name != "checkpoints")
        for resume in ((), ("--resume",)):
            self.refuse_training(2, [self.folder, f"process {job.pid} on", "since 20"], *self.OPTIONS, "--out",
                                 self.folder, *resume)
        self.assertEqual(sorted(path.name for path in self.folder.iterdir() if path.name != "checkpoints"), kept)
        job.send_signal(signal.SIGINT)
        self.assert_interrupted(self.finish(job))
        self.assert_resumable(self.folder)

    def test_a_killed_run_holds_nothing(self):
        job, _ = self.start_run(*self.OPTIONS, "--checkpoint-every", 1, "--out", self.folder)
        wait_until(lambda: saved_steps(self.folder), "a checkpoint", job)
        job.kill()
        self.finish(job)
        self.assertIn(f"process {job.pid} on", (self.folder / "run.lock").read_text())
        self.assert_resumable(self.folder)


class LossTest(LongRunTest):
    """The run folder is moved away, or removed, under the run."""

    def lose(self, lose, *options):
        out = self.folder / "run"
        job, _ = self.start_run(*options, "--out", out, "--checkpoint-every", 10 ** 9)
        lose(out)
        done = self.finish(job)
        self.assertEqual((done.returncode, len(done.stderr.splitlines())), (2, 1), done.stderr)
        for culprit in (f"{out}/metrics.jsonl is gone", f"{out}/checkpoints"):
            self.assertIn(culprit, done.stderr)
        return out

    def test_it_is_told_and_nothing_is_lost(self):
        for number, lose in enumerate((lambda out: out.rename(self.folder / "moved"), shutil.rmtree)):
            with self.subTest(number):
                out = self.lose(lose, *self.OPTIONS)
                self.assert_resumable(out)
                shutil.rmtree(out)

    def test_another_run_in_its_place_loses_nothing(self):
        out = self.folder / "run"
        job, _ = self.start_run(*self.OPTIONS, "--out", out, "--checkpoint-every", 10 ** 9)
        other = self.folder / "other"
        self.train("--steps", 4, "--seed", 7, "--checkpoint-every", 2, "--out", other, "--schedule", "constant")
        out.rename(self.folder / "moved")
        other.rename(out)
        done = self.finish(job)
        self.assertEqual((done.returncode, len(done.stderr.splitlines())), (2, 1), done.stderr)
        self.assertIn(f"--out {out} was moved", done.stderr)
        names = sorted(path.name for path in (out / "checkpoints").iterdir())
        self.assertEqual(names, ["step-00000002", "step-00000004"])

    def test_by_gossip_too(self):
        self.lose(lambda out: out.rename(self.folder / "moved"), "--workers", 2, "--sync", "dpsgd")


class InterruptTest(LongRunTest):
    def interrupt(self, signal_number, *options):
        """Sends the signal once the banner is out; returns what was printed."""
        job, printed = self.start_run(*options)
        job.send_signal(signal_number)
        self.assert_interrupted(self.finish(job))
        return printed.read_text()

    def test_interrupted_run_is_resumable(self):
        self.check_interrupting(signal.SIGINT)

    @parts.extra
    def test_run_that_is_interrupted_by_another_signal_is_resumable(self):
        self.check_interrupting(signal.SIGTERM, signal.SIGHUP)

    def check_interrupting(self, *signals):
        for signal_number in signals:
            out = self.folder / str(int(signal_number))
            self.interrupt(signal_number, *self.OPTIONS, "--out", out)
            self.assert_resumable(out)

    def test_the_first_signal_is_answered_at_once(self):
        """Though the step that the run is in has no end."""
        with open(self.folder / "said", "w") as said:
            job = self.start_program(*self.train_words("--workers", 2, "--steps", 9, "--pause", "0:2:1000000", "--out",
                                                       self.folder / "run"), stderr=said)
        wait_until(lambda: has_stepped(self.folder / "run"), "the first step", job)
        job.send_signal(signal.SIGINT)
        wait_until(lambda: ANSWER in (self.folder / "said").read_text(), "an answer", job)

    def test_a_later_signal_is_heard_where_nobody_reads_the_answer(self):
        """As from a terminal that is halted. The step that the run is in has no end."""
        reading, writing = os.pipe()
        job = self.start_program(*self.train_words("--workers", 2, "--steps", 9, "--pause", "0:2:1000000", "--out",
                                                   self.folder / "run"), stderr=writing)
        wait_until(lambda: has_stepped(self.folder / "run"), "the first step", job)
        os.set_blocking(writing, False)
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(writing, b"x")
        os.set_blocking(writing, True)

        def has_ended():
            job.send_signal(signal.SIGINT)
            return job.poll() is not None

        wait_until(has_ended, "the end that the second signal brings")
        self.assertEqual(job.wait(), -signal.SIGINT)
        os.close(reading)
        os.close(writing)

    @unittest.skipUnless(KILLER, "needs what stops a program from within")
    def test_signals_after_the_end_of_whoever_reads_are_no_second_wish(self):
        """Several at once, as it writes the checkpoint that it ends with: the program takes them for one wish. One that comes
        two seconds after the first of them, or later, would be a second wish, and end it at once."""
        ends, out = self.folder / "ends", self.folder / "run"
        words = self.train_words("--epochs", 1000000, *self.OPTIONS, "--out", out, "--checkpoint-every", 10 ** 9)
        job = self.start_program(*words, env=killing(KILLER, "write 1 0", ends, os.devnull, int(signal.SIGSTOP)))
        self.assertIn("thinwire", job.stdout.readline())
        wait_until(lambda: has_stepped(out), "the first step", job)
        ends.touch()
        job.stdout.close()
        await_stop(job)
        for one in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCONT):
            job.send_signal(one)
        self.assert_interrupted(self.finish(job))
        self.assert_resumable(out)

    def test_the_end_of_whoever_reads_is_a_wish_to_stop(self):
        """As in `thinwire train ... | head`."""
        words = self.train_words("--epochs", 1000000, *self.OPTIONS, "--out", self.folder)
        job = self.start_program(*words)
        self.assertIn("thinwire", job.stdout.readline())
        job.stdout.close()
        done = self.finish(job)
        self.assertEqual((done.returncode, done.stderr), (130, ""))
        self.assert_resumable(self.folder)

    def test_under_nohup_the_end_of_the_terminal_is_ignored(self):
        job, _ = self.start_run(*self.OPTIONS, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
        with open(f"/proc/{job.pid}/status") as status:
            ignored = next(line for line in status if line.startswith("SigIgn"))
        self.assertTrue(int(ignored.split()[1], 16) & 1 << signal.SIGHUP - 1)
        job.send_signal(signal.SIGINT)
        self.assertEqual(self.finish(job).returncode, 130)

    def test_without_a_folder_it_says_that_nothing_is_kept(self):
        self.assertIn("nothing is kept", self.interrupt(signal.SIGINT, "--workers", 2))


if __name__ == "__main__":
    run_tests()
