"""A machine that is gone for good: the rest go on from the last checkpoint without its files, alone or with a new machine,
and every machine has on its own disk what it takes to do so. Folders stand for the disks."""
import fcntl
import json
import shutil
import unittest

from joining import Joining
from support import needs_mpi, run_tests, under_mpi, wait_until

DGC = "dgc:density=0.05,warmup_steps=0"


class DisksTest(Joining):
    def setUp(self):
        super().setUp()
        self.disks = [self.folder / f"disk-{number}" for number in range(3)]

    def words(self, sync, steps, *more):
        return ("--sync", sync, "--schedule", "constant", "--steps", steps, *more)

    def run_on(self, disks, *options):
        """Ranks that know nothing of each other's disk; the summary."""
        return self.finish_all([self.start_joined(*options, "--rank", rank, "--out", disk, workers=len(disks))
                                for rank, disk in enumerate(disks)])

    def names(self, disk, step):
        return sorted(path.name for path in (disk / f"checkpoints/step-{step:08}").iterdir())

    def go_on(self, disk, *options, **keywords):
        """Alone, as a person would: whatever is not said is in the folder. The summary, and what was told."""
        done = self.complete("train", "--resume", disk, "--workers", 1, "--quiet", "--json", "-", *options, **keywords)
        return json.loads(done.stdout), done.stderr.splitlines()

    def whole(self, sync, workers, steps=8):
        """The weights of a run that has all files, two workers for four steps and then so many for the rest."""
        out = self.folder / f"whole-{workers}"
        self.train(*self.words(sync, 4), "--workers", 2, "--out", out)
        resume = self.run_program(*self.train_words("--resume", *self.words(sync, steps), "--workers", workers, "--out",
                                                    out, "--quiet", "--json", "-"))
        return json.loads(resume.stdout)["weights_crc32c"]


class LostTest(DisksTest):
    def test_each_disk_has_what_it_takes(self):
        self.run_on(self.disks[:2], *self.words("allreduce", 4))
        for rank, disk in enumerate(self.disks[:2]):
            self.assertEqual(self.names(disk, 4), ["model.safetensors", f"worker-{rank}.safetensors"])
            self.assertIn('sync: "allreduce"', (disk / "config.yaml").read_text())
            self.assertEqual([path.name for path in disk.glob(".first-*")], [])
        models = [(disk / "checkpoints/step-00000004/model.safetensors").read_bytes() for disk in self.disks[:2]]
        self.assertEqual(models[0], models[1])
        self.assertTrue((self.disks[0] / "metrics.jsonl").exists())
        self.assertFalse((self.disks[1] / "metrics.jsonl").exists())

    def test_what_killed_elections_left_is_swept_up(self):
        """A run that was killed while its ranks looked whose disk is whose; alone and over sockets. One that is locked is
        of a run that lives, and a person may call a file as he likes."""
        for workers in (1, 2):
            with self.subTest(workers=workers):
                out = self.folder / f"run-{workers}"
                out.mkdir()
                left, living, persons, full = (out / f".first-{name}" for name in ("0" * 15 + "a", "f" * 16, "draft", "1" * 16))
                for path in (left, living, persons, full):
                    path.write_text("a word" if path == full else "")
                with living.open() as held:
                    fcntl.flock(held, fcntl.LOCK_EX)
                    if workers == 1:
                        self.train(*self.words("allreduce", 2), "--out", out)
                    else:
                        self.run_on([out, self.folder / "other"], *self.words("allreduce", 2))
                self.assertEqual(sorted(out.glob(".first-*")), sorted((living, persons, full)))

    def test_whoever_is_left_goes_on_alone(self):
        """Rank 0's machine, or the other; nothing is held back, so the bits are those of a run that lost nothing."""
        whole = self.whole("allreduce", 1)
        for lost in (0, 1):
            with self.subTest(lost=lost):
                self.run_on(self.disks[:2], *self.words("allreduce", 4))
                shutil.rmtree(self.disks[lost])
                left = self.disks[1 - lost]
                self.refuse(2, [left, f"worker-{lost}.safetensors is missing", "--forget-lost"], "train", "--resume", left,
                            "--workers", 1, "--steps", 8)
                summary, told = self.go_on(left, "--forget-lost", "--steps", 8)
                self.assertEqual((summary["weights_crc32c"], summary["steps"]), (whole, 8))
                self.assertEqual(len(told), 1)
                self.assertIn(f"the files of worker {lost} are lost, so what it held back is dropped, and what the others "
                              "held back is shared out, and it goes on at step 4", told[0])
                self.assertEqual(self.names(left, 8), ["model.safetensors", "worker-0.safetensors"])
                shutil.rmtree(left)

    def test_a_new_machine_takes_the_place(self):
        """It has nothing, not even the options: it is started with the command that the run was begun with."""
        whole = self.whole("allreduce", 2)
        for sync in ("allreduce", DGC):
            with self.subTest(sync=sync):
                self.run_on(self.disks[:2], *self.words(sync, 4))
                shutil.rmtree(self.disks[0])
                summary = self.run_on_new(sync, 8)
                if sync == "allreduce":
                    self.assertEqual(summary["weights_crc32c"], whole)
                for rank, disk in enumerate(self.disks[1:]):
                    self.assertEqual(self.names(disk, 8), ["model.safetensors", f"worker-{rank}.safetensors"])
                again = self.finish_all([self.start_program("train", "--resume", disk, "--join", self.meeting, "--workers", 2,
                                                            "--rank", rank, "--steps", 9, "--quiet", "--json", "-")
                                         for rank, disk in enumerate(self.disks[1:])])
                self.assertEqual(again["steps"], 9)
                for disk in self.disks[1:]:
                    shutil.rmtree(disk)

    def run_on_new(self, sync, steps):
        jobs = [self.start_joined(*self.words(sync, steps), "--resume", "--forget-lost", "--rank", rank, "--out", disk, workers=2)
                for rank, disk in enumerate(self.disks[1:])]
        done = self.complete_all(jobs)
        self.assertIn("the files of worker 0 are lost, so what it held back is dropped", done[0].stderr)
        return json.loads(done[0].stdout)

    def test_a_machine_that_is_killed_for_good(self):
        jobs = [self.start_joined(*self.words(DGC, 10 ** 6), "--checkpoint-every", 2, "--rank", rank, "--out", disk, workers=2)
                for rank, disk in enumerate(self.disks[:2])]
        wait_until(lambda: list(self.disks[1].glob("checkpoints/step-????????/model.safetensors")), "a checkpoint", jobs[1])
        jobs[0].kill()
        self.assertEqual(self.finish(jobs[1]).returncode, 3)
        shutil.rmtree(self.disks[0])
        step = max(int(path.name[5:]) for path in self.disks[1].glob("checkpoints/step-????????"))
        summary, told = self.go_on(self.disks[1], "--forget-lost", "--steps", step + 2)
        self.assertEqual((summary["steps"], len(told)), (step + 2, 1))

    def test_by_gossip(self):
        self.run_on(self.disks[:2], *self.words("dpsgd", 4))
        shutil.rmtree(self.disks[0])
        self.refuse(2, ["worker-0.safetensors is missing", "--forget-lost"], "train", "--resume", self.disks[1], "--workers", 1,
                    "--steps", 8)
        summary, told = self.go_on(self.disks[1], "--forget-lost", "--steps", 8)
        self.assertEqual((summary["steps"], len(told)), (8, 1))
        self.assertIn("the files of worker 0 are lost, so what it remembered is dropped, and what the others remembered is kept",
                      told[0])

    def test_threads(self):
        out = self.folder / "run"
        self.train(*self.words("allreduce", 4), "--workers", 4, "--out", out)
        for rank in (0, 2):
            (out / f"checkpoints/step-00000004/worker-{rank}.safetensors").unlink()
        copy = shutil.copytree(out, self.folder / "copy")
        _, told = self.go_on(out, "--forget-lost", "--steps", 6)
        self.assertIn("the files of workers 0 and 2 are lost, so what they held back is dropped", told[0])
        for rank in (1, 3):
            (copy / f"checkpoints/step-00000004/worker-{rank}.safetensors").unlink()
        self.refuse(2, ["worker-0.safetensors is missing, as are all other"], "train", "--resume", copy, "--forget-lost")

    def test_files_follow_the_ranks(self):
        """Without any loss: ranks that meet in another order, and more workers than before, on two disks."""
        whole = self.whole(DGC, 2)
        self.run_on(self.disks[:2], *self.words(DGC, 4))
        swapped = self.finish_all([self.start_joined(*self.words(DGC, 8), "--resume", "--rank", rank, "--out", disk, workers=2)
                                   for rank, disk in enumerate(reversed(self.disks[:2]))])
        self.assertEqual(swapped["weights_crc32c"], whole)


@needs_mpi
class RanksTest(DisksTest):
    def test_under_mpirun(self):
        out = self.folder / "run"
        self.train(*self.words(DGC, 4), "--out", out, **under_mpi(3))
        (out / "checkpoints/step-00000004/worker-1.safetensors").unlink()
        done = self.complete("train", "--resume", out, "--forget-lost", "--steps", 6, "--quiet", "--json", "-", **under_mpi(2))
        self.assertIn("the files of worker 1 are lost", done.stderr)


if __name__ == "__main__":
    run_tests()
