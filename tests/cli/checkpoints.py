"""Stopping and going on: the same bits as without the stop, and no way to lose what was saved."""
import resource
import signal
import unittest

from support import CommandLineTest, wait_until, write_cifar

SCHEMES = ("allreduce", "dgc:density=0.02,momentum=0.9")


def limit_file_size():
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))


class ResumeTest(CommandLineTest):
    def test_resumed_equals_uninterrupted(self):
        for sync in SCHEMES:
            for workers in (1, 2, 4):
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
                    # the second start's handshake was sent too
                    self.assertAlmostEqual(resumed["bytes"]["sent"], whole["bytes"]["sent"], delta=100)

    def test_batch_norm_models_resume_too(self):
        options = ("--data", write_cifar(self.folder / "cifar"), "--model", "resnet20", "--workers", 2, "--crop", 4,
                   "--flip", "--weight-decay", 1e-4, "--schedule", "constant", "--sync", "dgc")
        whole = self.train(*options, "--steps", 4)
        self.train(*options, "--steps", 2, "--out", self.folder)
        resumed = self.train(*options, "--steps", 4, "--out", self.folder, "--resume")
        self.assertEqual(resumed["weights_crc32c"], whole["weights_crc32c"])
        self.assertEqual(resumed["loss"], whole["loss"])

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

    def test_going_back_gives_up_what_came_after(self):
        """Were the later checkpoint kept, the next --resume would continue the course that was left."""
        options = ("--schedule", "constant", "--out", self.folder, "--checkpoint-every", 2)
        self.train(*options, "--steps", 6)
        self.train(*options, "--steps", 5, "--lr", 0.001, "--resume", self.folder / "checkpoints/step-00000004")
        self.assertEqual(self.checkpoints(self.folder), ["step-00000004", "step-00000005"])

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

    def test_an_earlier_run_is_not_written_over(self):
        self.train("--steps", 2, "--out", self.folder)
        self.refuse_training(2, [self.folder, "--resume"], "--steps", "2", "--out", self.folder)

    def test_what_does_not_fit(self):
        self.train("--steps", 2, "--workers", 2, "--out", self.folder)
        resume = ("--out", self.folder, "--resume")
        self.refuse_training(2, ["model.safetensors", "workers 2"], "--workers", "4", *resume)
        self.refuse_training(2, ["model.safetensors", "model cnn"], "--workers", "2", "--model", "resnet20", *resume)
        self.refuse_training(2, ["model.safetensors", "sync allreduce"], "--workers", "2", "--sync", "topk", *resume)
        self.refuse_training(2, ["training data"], "--workers", "2", "--limit-train", "64", *resume)
        self.refuse_training(2, ["--out"], "--resume")
        self.refuse_training(2, [self.folder / "none"], "--out", self.folder / "none", "--resume")
        self.train("--steps", 3, "--workers", 2, "--weight-decay", 0.1, *resume)

    def test_damage(self):
        self.train("--steps", 2, "--workers", 2, "--out", self.folder)
        for name in ("model.safetensors", "worker-1.safetensors"):
            path = self.folder / "checkpoints/step-00000002" / name
            whole = path.read_bytes()
            damaged = bytearray(whole)
            damaged[-5] ^= 1
            for content in (damaged, whole[:-1], whole[:20], b"", b"\xff" * len(whole)):
                path.write_bytes(content)
                self.refuse_training(2, [path], "--workers", "2", "--out", self.folder, "--resume")
            path.write_bytes(whole)
        self.train("--steps", 3, "--workers", 2, "--out", self.folder, "--resume")

    def test_a_full_disk_loses_nothing(self):
        options = ("--workers", "2", "--schedule", "constant", "--checkpoint-every", "2", "--out", self.folder)
        self.train(*options, "--steps", 2)
        config = (self.folder / "config.yaml").read_text()
        self.refuse_training(2, ["config.yaml"], *options, "--steps", "4", "--resume",
                             preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10)))
        self.assertEqual((self.folder / "config.yaml").read_text(), config)
        self.assertFalse((self.folder / "config.yaml.partial").exists())
        self.refuse_training(2, ["model.safetensors"], *options, "--steps", "4", "--resume", preexec_fn=limit_file_size)
        names = [path.name for path in (self.folder / "checkpoints").iterdir()]
        self.assertEqual(names, ["step-00000002"])
        resumed = self.train(*options, "--steps", 4, "--resume")
        whole = self.train("--workers", 2, "--schedule", "constant", "--steps", 4)
        self.assertEqual(resumed["weights_crc32c"], whole["weights_crc32c"])


class KillTest(CommandLineTest):
    def test_a_killed_run_leaves_a_whole_checkpoint(self):
        """Killed again and again while it does nothing but write checkpoints."""
        options = ("--workers", 2, "--sync", "dgc", "--schedule", "constant")
        words = self.train_words(*options, "--quiet", "--epochs", 1000, "--checkpoint-every", 1, "--out", self.folder)
        step = 0
        for resume in ([], ["--resume"], ["--resume"]):
            job = self.start_program(*words, *resume)
            wait_until(lambda: self.newest() >= step + 3, "three more checkpoints", job)
            self.end(job)
            step = self.newest()
        step += 2
        resumed = self.train(*options, "--steps", step, "--out", self.folder, "--resume")
        self.assertEqual(resumed["weights_crc32c"], self.train(*options, "--steps", step)["weights_crc32c"])

    def newest(self):
        names = [path.name for path in self.folder.glob("checkpoints/step-????????")]
        return max((int(name[5:]) for name in names), default=0)


class InterruptTest(CommandLineTest):
    def interrupt(self, signal_number, *options):
        """Sends the signal once the banner is out; returns the exit code and what was printed."""
        words = self.train_words("--epochs", 1000000, "--schedule", "constant", *options)
        printed = self.folder / "printed"
        with printed.open("w") as file:
            job = self.start_program(*words, stdout=file)
        wait_until(lambda: "fp32 step" in printed.read_text(), "the banner", job)
        job.send_signal(signal_number)
        done = self.finish(job)
        self.assertEqual(done.stderr, "")
        return done.returncode, printed.read_text()

    def test_interrupted_run_is_resumable(self):
        for signal_number in (signal.SIGINT, signal.SIGTERM):
            out = self.folder / str(int(signal_number))
            code, _ = self.interrupt(signal_number, "--workers", 2, "--sync", "dgc", "--out", out)
            self.assertEqual(code, 130)
            step = max(int(path.name[5:]) for path in (out / "checkpoints").iterdir())
            options = ("--workers", 2, "--sync", "dgc", "--schedule", "constant", "--steps", step + 2)
            resumed = self.train(*options, "--out", out, "--resume")
            self.assertEqual(resumed["weights_crc32c"], self.train(*options)["weights_crc32c"])

    def test_without_a_folder_it_says_that_nothing_is_kept(self):
        code, stdout = self.interrupt(signal.SIGINT, "--workers", 2)
        self.assertEqual(code, 130)
        self.assertIn("nothing is kept", stdout)


if __name__ == "__main__":
    unittest.main()
