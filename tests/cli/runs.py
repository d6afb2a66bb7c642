"""Runs that are kept without being asked for, and that go on without being told all again."""
import json
import re
import shutil
import signal

from asr import write_kaldi, write_speech
from checkpoint_file import spoil_tensor, split_file
from lm import write_texts
from support import CommandLineTest, has_stepped, needs_mpi, run_tests, under_mpi, wait_until, write_cifar

SAME = ("steps", "weights_crc32c", "metric", "loss", "train_loss", "sync", "workers")


class RunsTest(CommandLineTest):
    def summary(self, *words, **keywords):
        return json.loads(self.succeed("train", *words, "--quiet", "--json", "-", **keywords))


class AloneTest(RunsTest):
    """`--resume RUN`, and not another word."""
    STEPS = ("--steps", 8, "--checkpoint-every", 3)  # of which the last two stay: 6 and 8

    def tasks(self):
        texts, kaldi = write_texts(self.folder / "texts"), write_kaldi(self.folder / "kaldi")
        speech = write_speech(self.folder / "speech")
        return {
            "image": (*self.train_words()[1:-2], "--crop", 2, "--flip", "--lr", 0.05, "--weight-decay", 1e-4),
            "lm": ("lm", "--data", texts, "--layers", 1, "--hidden", 16, "--batch", 4, "--bptt", 10, "--dropout", 0.2),
            "asr": ("asr", "--data", speech, "--test", speech, "--features", "rate=8000,bins=20", "--layers", 1,
                    "--hidden", 12, "--batch", 2, "--time-masks", 1, "--frequency-masks", 1, "--dropout", 0.3, "--tempo", 0.2),
            "frames": ("asr", "--model", "frames", "--data", kaldi, "--test", kaldi, "--alignment", kaldi / "ali.txt",
                       "--features", "rate=8000,bins=20", "--window", 12, "--layers", 1, "--hidden", 8, "--batch", 4,
                       "--dropout", 0.2),
        }

    def lose_the_end(self, out):
        """The run is where it was after step 6."""
        shutil.rmtree(out / "checkpoints" / "step-00000008")
        self.assertEqual([path.name for path in out.glob("checkpoints/*")], ["step-00000006"])

    def test_every_task_goes_on_as_it_was_begun(self):
        for name, words in self.tasks().items():
            for sync in ("dgc:density=0.02,warmup_steps=4", "dpsgd", "streaming:every=4,fragments=2,delay=1,exchange=topk"):
                with self.subTest(task=name, sync=sync):
                    out = self.folder / f"{name}-{sync[:3]}"
                    whole = self.summary(*words, "--workers", 2, "--sync", sync, *self.STEPS, "--out", out)
                    self.lose_the_end(out)
                    resumed = self.summary("--resume", out)
                    self.assertEqual([resumed[key] for key in SAME], [whole[key] for key in SAME])

    @needs_mpi
    def test_ranks_go_on_as_threads_and_threads_as_ranks(self):
        words = (*self.train_words()[1:-2], "--sync", "dgc:density=0.02", "--clip", 1, *self.STEPS)
        for name, begun, ended in (("a", under_mpi(2), {}), ("b", {}, under_mpi(2))):
            with self.subTest(begun=begun):
                out = self.folder / name
                workers = () if begun else ("--workers", 2)
                whole = self.summary(*words, *workers, "--out", out, **begun)
                self.lose_the_end(out)
                resumed = self.summary("--resume", out, **ended)
                self.assertEqual([resumed[key] for key in SAME], [whole[key] for key in SAME])

    @needs_mpi
    def test_ranks_that_read_different_runs_are_told(self):
        """As on machines with disks of their own, of which one has not the file."""
        words = (*self.train_words()[1:-2], "--steps", 2)
        for name, rate in (("0", 0.05), ("1", 0.01)):
            self.summary(*words, "--workers", 2, "--lr", rate, "--out", self.folder / name)
        job = under_mpi(2)
        shell = f'exec "$0" train --quiet --steps 3 --resume {self.folder}/$OMPI_COMM_WORLD_RANK'
        job["launcher"] += ("sh", "-c", shell)
        done = self.run_program(**job)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn('rank 1 was started with "--lr 0.01" where rank 0 has "--lr 0.05"', done.stderr)

    def test_a_checkpoint_goes_on_in_a_folder_of_its_own(self):
        out, place = self.folder / "run", self.folder / "place"
        place.mkdir()
        whole = self.summary(*self.train_words()[1:-2], *self.STEPS, "--out", out)
        resumed = self.summary("--resume", out / "checkpoints/step-00000006", cwd=place)
        self.assertEqual([resumed[key] for key in SAME], [whole[key] for key in SAME])
        self.assertTrue((place / "runs/image-1/checkpoints/step-00000008").exists())
        self.assertEqual(len(list(out.glob("checkpoints/*"))), 2)

    def test_a_run_goes_on_from_another_folder(self):
        """What was told of where its data are still holds."""
        here, out = self.data.parent, self.folder / "run"
        words = ("image", "--data", self.data.name, "--batch", 8)
        self.assertFalse((self.folder / self.data.name).exists())
        whole = self.summary(*words, *self.STEPS, "--out", out, cwd=here)
        self.lose_the_end(out)
        resumed = self.summary("--resume", "run", cwd=self.folder)
        self.assertEqual([resumed[key] for key in SAME], [whole[key] for key in SAME])
        self.assertIn(f'data: "{self.data}"', (out / "config.yaml").read_text().splitlines())

    def test_the_run_in_out_says_its_task(self):
        out = self.folder / "run"
        self.summary(*self.train_words()[1:-2], "--steps", 2, "--out", out)
        for steps, words in ((3, ("--resume",)), (4, ("--resume=",))):
            self.assertEqual(self.summary(*words, "--out", out, "--steps", steps)["steps"], steps)

    def test_what_a_run_may_change_wins(self):
        out = self.folder / "run"
        words = (*self.train_words()[1:-2], "--schedule", "constant", "--workers", 2, "--sync", "dgc")
        self.summary(*words, "--steps", 4, "--out", out)
        shutil.copytree(out, self.folder / "epochs")
        whole = self.summary(*words, "--steps", 9, "--lr", 0.05, "--out", "none")
        self.assertEqual(self.summary("--resume", self.folder / "epochs", "--epochs", 1)["steps"], 12)
        self.assertEqual(self.summary("--resume", out, "--steps", 9)["steps"], 9)
        self.assertNotEqual(whole["weights_crc32c"], "")
        done = self.run_program("train", "--resume", out, "--steps", 11, "--workers", 4, "--quiet", "--json", "-")
        self.assertEqual((done.returncode, json.loads(done.stdout)["workers"]), (0, 4))
        self.assertIn("is of 2 workers, this run has 4", done.stderr)

    def test_the_line_wins_over_a_file_and_a_file_over_the_run(self):
        out = self.folder / "run"
        self.summary(*self.train_words()[1:-2], "--steps", 2, "--lr", 0.01, "--clip", 1, "--out", out)
        (self.folder / "more.yaml").write_text("steps: 5\nlr: 0.02\n")
        self.summary("--resume", out, "--config", self.folder / "more.yaml", "--lr", 0.04)
        told = (out / "config.yaml").read_text().splitlines()
        for line in ("steps: 5", "lr: 0.04", "clip: 1", "batch: 8"):
            self.assertIn(line, told)

    def test_what_stays_is_refused_with_both_values(self):
        out = self.folder / "run"
        self.summary(*self.train_words()[1:-2], "--steps", 2, "--sync", "dgc", "--out", out)
        for option, had, given in (("batch", "--batch 8", "4"), ("model", "--model cnn", "resnet20"), ("seed", "--seed 1", "2"),
                                   ("sync", "--sync dgc", "dgc:density=0.01"), ("crop", "the default of --crop (none)", "2")):
            self.refuse(2, [out, f"--{option} {given}", had], "train", "--resume", out, f"--{option}", given)
        self.refuse(2, [out, "task image", "lm"], "train", "lm", "--resume", out)  # before its options are looked at
        self.refuse(2, ["lm", "task image"], "train", "--resume", out, "lm")
        self.summary("image", "--resume", out, "--batch", 8, "--steps", 3)

    def test_a_run_says_the_spec_that_it_ran_by(self):
        """With what the length and the momentum of the run make of it, which a run that is longer makes anew."""
        words = (*self.train_words()[1:-2], "--workers", 2, "--momentum", 0)
        said, ends = [], []
        for steps, sync in ((40, "dgc"), (4, "dgc"), (4, None)):
            out = self.folder / f"run{len(said)}"
            ends.append(self.summary(*words, "--steps", steps, "--sync", sync or said[-1]["sync-as-run"], "--out", out))
            told = (out / "config.yaml").read_text()
            said.append(dict(re.findall(r'^(sync\S*): "(.*)"$', told, flags=re.MULTILINE)))
        first, second, again = said
        self.assertEqual(first["sync-in-full"], second["sync-in-full"])
        self.assertNotEqual(first["sync-as-run"], second["sync-as-run"])
        self.assertIn("momentum=0,", second["sync-as-run"])
        self.assertEqual(again["sync-in-full"], second["sync-as-run"])
        self.assertEqual([ends[2][key] for key in SAME if key != "sync"], [ends[1][key] for key in SAME if key != "sync"])

    def test_the_runs_of_before(self):
        """They did not say their task, nor what their spec meant."""
        out = self.folder / "run"
        words = (*self.train_words()[1:-2], "--sync", "dgc:density=0.02", "--workers", 2)
        whole = self.summary(*words, *self.STEPS, "--out", out)
        self.lose_the_end(out)
        told = (out / "config.yaml").read_text()
        older = re.sub(r"^(task|sync-in-full|sync-as-run):.*\n", "", told, flags=re.MULTILINE)
        self.assertEqual(told.count("\n"), older.count("\n") + 3)
        (out / "config.yaml").write_text(older)
        resumed = self.summary("--resume", out)
        self.assertEqual([resumed[key] for key in SAME], [whole[key] for key in SAME])

    def test_a_configuration_knows_its_task(self):
        self.summary(*self.train_words()[1:-2], "--steps", 2, "--out", self.folder / "run")
        again = self.summary("--config", self.folder / "run/config.yaml", "--out", self.folder / "again")
        self.assertEqual(again["task"], "image")
        self.refuse(2, ["config.yaml", "task image", "lm"], "train", "lm", "--config", self.folder / "run/config.yaml")
        self.refuse(2, ["TASK"], "train", "--steps", 2)
        mine = self.folder / "mine" / "config.yaml"
        mine.parent.mkdir()
        told = (self.folder / "run/config.yaml").read_text()
        mine.write_text(told)
        self.refuse(2, ["--out", mine.parent, "choose another folder"], "train", "--config", mine, "--out", mine.parent)
        self.assertEqual(mine.read_text(), told)
        self.assertEqual(list(mine.parent.iterdir()), [mine])
        self.refuse(2, ["nowhere"], "train", "--resume", self.folder / "nowhere")


class MeaningTest(RunsTest):
    """A spec is what it means, not how it is written."""
    def begin(self, sync):
        words = (*self.train_words()[1:-2], "--schedule", "constant", "--workers", 2, "--sync")
        out = self.folder / "run"
        self.summary(*words, sync, "--steps", 3, "--out", out)
        return out, self.summary(*words, sync, "--steps", 5, "--out", "none")["weights_crc32c"]

    def in_full(self, scheme):
        page = self.run_program("schemes", scheme).stdout.splitlines()[1:]
        options = [line.split()[:2] for line in page]
        return f"{scheme}:" + ",".join(f"{name}={value}".replace('""', "") for name, value in options)

    def test_all_defaults_may_be_written_out_and_left_out(self):
        out, whole = self.begin("dgc-bold")
        shutil.copytree(out, self.folder / "twin")
        spelled = self.in_full("dgc-bold")
        self.assertIn("density=0.001,", spelled)
        self.assertEqual(self.summary("--resume", out, "--steps", 5, "--sync", spelled)["weights_crc32c"], whole)
        again = self.summary("--resume", self.folder / "twin", "--steps", 5, "--sync", "dgc-bold:momentum=9e-1")
        self.assertEqual(again["weights_crc32c"], whole)

    def test_defaults_that_were_others_then(self):
        """A version to come may have other defaults. Here the run says that `dgc` meant something else to it."""
        out, whole = self.begin("dgc:density=0.02,warmup_steps=2")
        config = (out / "config.yaml").read_text()
        (out / "config.yaml").write_text(config.replace('sync: "dgc:density=0.02,warmup_steps=2"', 'sync: "dgc"'))
        self.refuse(2, [out, "--sync dgc:density=0.02"], "train", "--resume", out, "--steps", 5, "--sync", "dgc")
        shutil.copytree(out, self.folder / "twin")
        self.assertEqual(self.summary("--resume", out, "--steps", 5)["weights_crc32c"], whole)
        spelled = self.summary("--resume", self.folder / "twin", "--steps", 5, "--sync", "dgc:warmup_steps=2,density=2e-2")
        self.assertEqual(spelled["weights_crc32c"], whole)


class KeptTest(RunsTest):
    """Without --out."""
    def words(self, *options):
        return ("train", *self.train_words()[1:-2], "--steps", 2, *options)

    def runs(self):
        return sorted(path.name for path in self.folder.glob("runs/*"))

    def test_the_next_number_is_taken_and_told(self):
        for number in (1, 2, 3):
            done = self.run_program(*self.words(), cwd=self.folder)
            self.assertEqual((done.returncode, done.stderr), (0, f"thinwire: this run is kept in runs/image-{number}\n"))
            self.assertTrue((self.folder / f"runs/image-{number}/checkpoints/step-00000002").exists())
            if number == 2:
                shutil.rmtree(self.folder / "runs/image-1")
                self.assertEqual(self.run_program(*self.words("--quiet"), cwd=self.folder).stderr, "")
        self.assertEqual(self.runs(), ["image-1", "image-2", "image-3"])

    def test_runs_that_begin_at_once_have_a_folder_each(self):
        jobs = [self.start_program(*self.words("--quiet"), cwd=self.folder) for _ in range(4)]
        self.assertEqual([self.finish(job).returncode for job in jobs], [0] * 4)
        self.assertEqual(self.runs(), [f"image-{number}" for number in (1, 2, 3, 4)])
        for name in self.runs():
            self.assertTrue((self.folder / "runs" / name / "summary.json").exists())

    @needs_mpi
    def test_ranks_share_one(self):
        done = self.complete(*self.words(), cwd=self.folder, **under_mpi(2))
        self.assertEqual(done.stderr.count("this run is kept in runs/image-1"), 1)
        self.assertEqual(self.runs(), ["image-1"])
        self.assertEqual(len(list(self.folder.glob("runs/image-1/checkpoints/*/worker-*"))), 2)

    def test_nothing_is_kept_where_that_is_asked(self):
        done = self.run_program(*self.words("--out", "none"), cwd=self.folder)
        self.assertEqual((done.returncode, done.stderr, list(self.folder.iterdir())), (0, "", []))

    def test_a_folder_that_cannot_be_made(self):
        (self.folder / "runs").write_text("a file")
        self.refuse(2, ['"runs"'], *self.words("--quiet"), cwd=self.folder)

    def test_what_stops_it_tells_how_it_goes_on(self):
        for number, reason in enumerate((signal.SIGHUP, signal.SIGTERM, signal.SIGINT), 1):
            job = self.start_program(*self.words("--steps", 10 ** 9), cwd=self.folder)
            out = self.folder / f"runs/image-{number}"
            wait_until(lambda: has_stepped(out), "a first step", job)
            job.send_signal(reason)
            done = self.finish(job)
            self.assertEqual(done.returncode, 130, done.stderr)
            command = re.search(r"thinwire (train --resume \S+) goes on", done.stdout).group(1).split()
            step = int(re.search(r"interrupted after step (\d+)", done.stdout).group(1))
            resumed = self.summary(*command[1:], "--steps", step + 1, cwd=self.folder)
            self.assertEqual(resumed["steps"], step + 1)

    def test_a_folder_may_be_called_none(self):
        first = self.words("--steps", 2, "--out", "./none")
        self.assertEqual(self.run_program(*first, cwd=self.folder).returncode, 0)
        self.assertEqual(self.run_program("train", "--resume", "none", "--steps", 3, cwd=self.folder).returncode, 0)
        self.assertTrue((self.folder / "none/checkpoints/step-00000003").exists())
        self.refuse(2, ["--out none"], *self.words("--resume", "--out", "none"), cwd=self.folder)

    def test_a_run_that_cannot_begin_takes_no_folder(self):
        self.refuse(2, ["nowhere"], *self.words("--init-from", "nowhere"), cwd=self.folder)
        self.assertFalse((self.folder / "runs/image-1").exists())

    def test_density_and_warm_up_follow_from_the_length_of_the_run(self):
        """The rule and its numbers are in tests/compress/test_for_run.c."""
        def planned(steps, sync, *options):
            told = self.succeed(*self.words("--steps", steps, "--sync", sync, "--warmup", 0, "--out", "none", *options))
            line, = (line for line in told.splitlines() if f"{steps} steps of" in line)
            return line
        self.assertIn(", with --sync dgc:density=0.25,warmup_steps=1", planned(39, "dgc"))
        self.assertIn(", with --sync sdagc:density=0.5,warmup_steps=0", planned(3, "sdagc:density=0.5"))
        self.assertNotIn("--sync", planned(3, "dgc:density=0.5,warmup_steps=1"))
        self.assertNotIn("--sync", planned(3, "dgc-bold:warmup_steps=1"))

    def test_a_run_shorter_than_its_warm_ups_says_so(self):
        def said(*options):
            told = self.succeed(*self.words(*options, "--out", "none"))
            return [line for line in told.splitlines() if "warm-up is" in line]
        line, = said("--sync", "dgc-bold")
        self.assertIn("400 steps of the learning rate (--warmup), and 400 of dgc-bold (warmup_steps)", line)
        line, = said("--sync", "allreduce", "--warmup", 5)
        self.assertIn("5 steps of the learning rate (--warmup); give more --steps, or", line)
        told = self.succeed("train", *self.train_words()[1:-2], "--epochs", 1, "--out", "none")
        self.assertIn("400 steps of the learning rate (--warmup); give more --epochs, or", told)
        line, = said("--sync", "dgc:warmup_steps=3", "--warmup", 0)
        self.assertIn("which takes 3 of dgc (warmup_steps); give", line)
        self.assertEqual(said("--sync", "dgc:warmup_steps=1", "--warmup", 1), [])


def newest_model(out):
    return sorted(out.glob("checkpoints/*/model.safetensors"))[-1]


def read_tensors(out):
    """The weights of a run's newest checkpoint: name to shape and bytes."""
    header, data = split_file(newest_model(out))
    return {name: (entry["shape"], data[slice(*entry["data_offsets"])]) for name, entry in header.items()
            if name != "__metadata__" and entry["dtype"] == "F32" and not name.startswith("optimiser.")}


class InitialTest(RunsTest):
    """--init-from: with a rate of 0 a run ends with the weights it began with."""
    STILL = ("--lr", 0, "--warmup", 0, "--steps", 1)

    def begin(self, *options):
        words = (*self.train_words()[1:-2], "--steps", 3, *options, "--out", self.folder / "old")
        return self.summary(*words)

    def test_a_run_begins_with_the_weights_of_another(self):
        old = self.begin()
        for sync in ("allreduce", "dpsgd"):
            new = self.summary(*self.train_words()[1:-2], "--workers", 2, "--sync", sync, *self.STILL, "--seed", 5,
                               "--init-from", self.folder / "old", "--out", self.folder / sync)
            self.assertEqual((new["steps"], new["weights_crc32c"]), (1, old["weights_crc32c"]))

    def test_a_checkpoint_that_was_copied_has_a_name_of_its_own(self):
        old = self.begin()
        shutil.copytree(self.folder / "old/checkpoints/step-00000003", self.folder / "mine")
        new = self.summary(*self.train_words()[1:-2], *self.STILL, "--init-from", self.folder / "mine", "--out", "none")
        self.assertEqual(new["weights_crc32c"], old["weights_crc32c"])

    def test_running_statistics_come_along(self):
        cifar = ("image", "--data", write_cifar(self.folder / "cifar"), "--model", "resnet20", "--batch", 8)
        old = self.summary(*cifar, "--steps", 3, "--out", self.folder / "old")
        new = self.summary(*cifar, *self.STILL, "--workers", 2, "--seed", 9, "--init-from", self.folder / "old", "--out",
                           self.folder / "new")
        self.assertEqual(new["weights_crc32c"], old["weights_crc32c"])
        old, new = read_tensors(self.folder / "old"), read_tensors(self.folder / "new")
        moved = [name for name in old if old[name] != new[name]]
        self.assertTrue(all("running" in name for name in moved), moved)

    def test_a_last_layer_of_another_shape_is_new(self):
        self.begin()
        few = self.folder / "few"
        shutil.copytree(self.data, few)
        for split in ("train", "t10k"):
            path = few / f"{split}-labels-idx1-ubyte"
            labels = path.read_bytes()
            path.write_bytes(labels[:8] + bytes(label % 4 for label in labels[8:]))
        words = ("image", "--data", few, "--batch", 8, *self.STILL)
        self.summary(*words, "--out", self.folder / "fresh")
        done = self.complete("train", *words, "--init-from", self.folder / "old", "--out", self.folder / "new")
        line, = done.stderr.splitlines()
        self.assertIn("a new last layer", line)
        old, fresh, new = (read_tensors(self.folder / name) for name in ("old", "fresh", "new"))
        head = [name for name in new if new[name][0] != old[name][0]]
        self.assertTrue(head)
        layer = head[0].rpartition(".")[0] + "."
        for name in new:
            self.assertEqual(new[name], fresh[name] if name.startswith(layer) else old[name], name)

    def test_what_does_not_fit_is_refused_by_name(self):
        self.begin()
        old = self.folder / "old"
        text = self.folder / "text.txt"
        text.write_text("a b c d\n" * 200)
        lm = ("lm", "--data", text, "--layers", 1, "--batch", 2, "--bptt", 5, "--steps", 2, "--hidden")
        self.summary(*lm, 8, "--out", self.folder / "lm")
        refused = ((("image", "--data", write_cifar(self.folder / "cifar")), old, ["conv1.weight", "x1x", "x3x"]),
                   ((*self.train_words()[1:-2], "--model", "resnet20"), old, ["model.safetensors"]),
                   (self.train_words()[1:-2], self.folder / "lm", ["task lm, not image"]),
                   ((*lm, 12), self.folder / "lm", ["model.safetensors", "8", "12"]),
                   (self.train_words()[1:-2], self.folder / "nowhere", ["nowhere"]))
        for words, past, culprits in refused:
            self.refuse(2, culprits, "train", *words, "--quiet", "--init-from", past, "--out", "none")
        self.refuse(2, ["--init-from", "--resume"], "train", "--resume", old, "--init-from", old)

    def test_weights_that_are_no_numbers_are_refused(self):
        self.begin()
        old = self.folder / "old"
        spoil_tensor(newest_model(old), "conv1.weight", float("nan"))
        for sync in ("allreduce", "dpsgd"):
            self.refuse(2, ["model.safetensors", "conv1.weight", "NaN"], *self.train_words(), "--sync", sync, "--workers", 2,
                        "--init-from", old, "--out", self.folder / "new")
        self.assertFalse((self.folder / "new/checkpoints").exists())


if __name__ == "__main__":
    run_tests()
