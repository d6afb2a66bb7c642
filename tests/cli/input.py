"""Bad input: exit code 2 and one line that names what is wrong."""
import json
import os
import re
import resource
import shutil
import unittest

from support import CommandLineTest, write_cifar


def limit_file_size():
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10))


class WordsTest(CommandLineTest):
    def test_unknown_words(self):
        self.refuse(2, ["frobnicate", "train"], "frobnicate")
        self.refuse(2, ["juggling", "codec"], "bench", "juggling")
        self.refuse(2, ["zip", "dgc", "adpsgd-random"], "schemes", "zip")
        self.refuse(2, ["zip", "dgc"], "bench", "codec", "--codec", "zip")
        self.refuse(2, ["--codec", "longer"], "bench", "codec", "--codec", f"topk:dense={600 * 'x|'},nonsense=1")
        self.refuse(2, ["--count", "--threads"], "bench", "codec", "--count", "3", "--threads", "8")
        self.refuse(2, ["--count", "flat"], "bench", "codec", "--count", "3", "--table", "resnet50")
        self.refuse(2, ["--gradients", "--table"], "bench", "codec", "--gradients", "x", "--table", "flat")
        self.refuse(2, ["/nonexistent"], "bench", "codec", "--gradients", "/nonexistent")
        self.refuse(2, ["juggling", "cnn", "lm-small", "bilstm-2x256"], "bench", "train", "--model", "juggling")
        self.refuse(2, ["TASK"], "train")
        self.refuse(2, ["--wrkers"], "train", "image", "--wrkers", "2")
        self.refuse(2, ["juggling"], "train", "juggling")
        self.refuse(2, ["tennis", "w2v-bert"], "train", "tennis")
        self.refuse_training(2, ["vgg", "resnet20"], "--model", "vgg")
        self.refuse_training(2, ["linear"], "--schedule", "linear")

    def test_values_out_of_range(self):
        self.refuse_training(2, ["--batch", "0"], "--batch", "0")
        self.refuse_training(2, ["--lr", "fast"], "--lr", "fast")
        self.refuse_training(2, ["--momentum", "1.5"], "--momentum", "1.5")
        self.refuse_training(2, ["--batch", "1000"], "--batch", "1000", "--workers", "2")

    def test_what_counts_beside_another_option_alone(self):
        for task, option, *beside in (
                ("image", "--rank 1", "--join or --transport tcp"), ("image", "--key-file none", "--join, --transport tcp or --seal"),
                ("image", "--forget-lost", "--resume"), ("image", "--dump-steps 3", "--dump-gradients"),
                ("image", "--beta2 0.98", "--optimizer adam, --optimizer adamw or --optimizer muon", "--optimizer sgd"),
                ("image", "--epsilon 0.001", "--optimizer adam, --optimizer adamw or --optimizer muon"),
                ("asr", "--layers 3", "--encoder lstm", "--encoder conformer"),
                ("asr", "--hidden 64", "--encoder lstm", "--encoder conformer"), ("asr", "--window 9", "--model frames"),
                ("asr", "--time-mask 9", "--time-masks"), ("asr", "--frequency-mask 9", "--frequency-masks"),
                ("lm", "--rope-theta 5000", "--model transformer"), ("lm", "--norm-epsilon 0.001", "--model transformer"),
                *(("w2v-bert", option, "--targets gumbel", "--targets random")
                  for option in ("--temperature 2,1,0.5", "--diversity 2", "--code-scale 2", "--distractors 9", "--on-collapse go"))):
            with self.subTest(option):
                words = " ".join(beside[1:]).split() + option.split()
                self.refuse(2, [f"{option} counts only beside {beside[0]}: add that, or leave {option.split()[0]} out"],
                            "train", task, *words)
        self.refuse(2, ["--rank 1 counts only beside --join"], "plan", "image", "--rank", 1)
        self.refuse(2, ["--beta2 0.98 counts only beside --optimizer adam"], "simulate", "image", "--data", self.data, "--beta2", 0.98)

    def test_what_nobody_sees_and_what_is_nearly_nothing(self):
        """One line each: a line end of a script is not printed, and no number becomes another one in silence."""
        for option, value in (("--sync", "dgc\n"), ("--sync", "adpsgd-d1:survive=on\r"), ("--sync", "topk:density=0.1\n"),
                              ("--lr", "0.1\n"), ("--model", "cnn\x1b[31m"), ("--batch", "8\t")):
            self.refuse_training(2, ["has a control character", "leave it out"], option, value)
        for option, value in (("--lr", "1e-400"), ("--weight-decay", "1e-320"), ("--sync", "dgc:momentum=1e-400")):
            self.refuse_training(2, ["1e-", "write 0, or a larger number"], option, value)

    def test_help_takes_the_words_of_a_command(self):
        for words in (("train", "lm"), ("bench", "codec"), ("schemes", "dgc")):
            self.assertTrue(self.run_program("help", *words).stdout.startswith("Usage: "))
        for words in (("train", "lm", "extra"), ("bench", "codec", "extra"), ("tasks", "extra"), ("train", "lm", "more", "extra")):
            self.refuse(2, ["extra", "one word too many"], "help", *words)

    def limits(self, task):
        """Of each option of a task's page that has any: its name, and the least and the most."""
        for entry in self.run_program("help", "train", task).stdout.split("\n  --")[1:]:
            name, _, text = " ".join(entry.split()).partition(" ")
            ends = re.search(r"[(;] ?(?:([-\d.e+]+) to ([-\d.e+]+)|at least ([-\d.e+]+)|at most ([-\d.e+]+))\)", text)
            if ends:
                yield name, ends[1] or ends[3], ends[2] or ends[4]

    def test_the_limits_in_help_are_those_that_hold(self):
        seen = set()
        for task in ("image", "lm", "asr", "w2v-bert"):
            for limit in set(self.limits(task)) - seen:
                seen.add(limit)
                name, *ends = limit
                for end, beyond in zip(ends, (-1, 1)):
                    if end:
                        with self.subTest(task=task, option=name, end=end):
                            self.refuse(2, ["unknown option --then"], "train", task, f"--{name}={end}", "--then")
                            self.refuse(2, [f"--{name}:", " is not "], "train", task, f"--{name}={float(end) + beyond:.15g}")
        self.assertLess({("workers", "1", "16384"), ("crop", "1", "64"), ("limit-train", "1", None)}, seen)

    def test_specs(self):
        self.refuse_training(2, ["zip", "dgc", "adpsgd-random"], "--sync", "zip", "--workers", "2")
        self.refuse_training(2, ["adpsgd-random", "pase"], "--sync", "adpsgd-random:pase=free", "--workers", "2")
        self.refuse_training(2, ["densty"], "--sync", "dgc:densty=0.1", "--workers", "2")
        self.refuse_training(2, ["density", "7"], "--sync", "dgc:density=7", "--workers", "2")

    def test_handicaps(self):
        for bad in ("3:10", "-1:2", "0.5:2", "0:0.9", "0:nan", "0:1e7", "0", "0:2:3", "fast", "0:2,", "0:2,9:2", "0:1,0:2", ""):
            self.refuse_training(2, ["--slow", bad, "RANK:FACTOR"], f"--slow={bad}", "--workers", "2")
        for bad in ("2:1:1", "0:0:1", "0:4:1", "0:1.5:1", "0:1:-1", "0:1", "0:1:1:1", "0:1:inf", "0:1:1,0:1"):
            self.refuse_training(2, ["--pause", bad, "RANK:AT:SECONDS"], f"--pause={bad}", "--workers", "2", "--steps", "3")
        self.refuse_training(2, ["one pause too many"], "--pause", ",".join(17 * ["0:1:0"]), "--steps", "3")

    def test_gossip_has_no_message_ratio(self):
        self.refuse_training(2, ["--expect-ratio", "adpsgd-fixed"], "--sync", "adpsgd-fixed", "--expect-ratio", "2")

    def test_momentum_in_both(self):
        self.refuse_training(2, ["dgc:momentum=0.8"], "--sync", "dgc", "--momentum", "0.8", "--workers", "2")
        self.refuse_training(2, ["dgc:momentum=0"], "--sync", "dgc:momentum=0.9", "--momentum", "0", "--workers", "2")
        self.refuse_training(2, ["dgc:nesterov=on"], "--sync", "dgc", "--nesterov")

    def test_configuration_files(self):
        config = self.folder / "bad.yaml"
        self.refuse_training(2, [config], "--config", config)
        config.write_text("epochs: 2\nepoks: 3\n")
        self.refuse_training(2, [config, "epoks"], "--config", config)

    def test_a_length_on_the_line_counts_more_than_one_of_a_file(self):
        config = self.folder / "run.yaml"
        whole = self.train("--epochs", 1)["steps"]
        config.write_text("steps: 3\nepochs: 7\n")
        for words, steps in ((("--epochs", 1), whole), ((), 3), (("--steps", 2), 2), (("--steps", 2, "--epochs", 1), 2)):
            self.assertEqual(self.train("--config", config, *words)["steps"], steps)

    def test_help_and_version_are_no_errors(self):
        for words in (["--help"], ["version"], ["train", "--help"], ["doctor", "--help"]):
            self.assertTrue(self.succeed(*words))


class DataTest(CommandLineTest):
    def refuse_data(self, *culprits):
        self.refuse(2, culprits, "train", "image", "--quiet", "--workers", "2", "--data", self.folder)

    def test_missing_folder(self):
        missing = self.folder / "missing"
        self.refuse(2, [missing], "train", "image", "--data", missing)

    def test_empty_folder(self):
        self.refuse_data(self.folder)

    def refuse_spoilt(self, source, name, spoil, *culprits):
        """A copy of a data set in which `spoil` has changed the bytes of one file."""
        shutil.rmtree(self.folder)
        shutil.copytree(source, self.folder)
        path = self.folder / name
        path.write_bytes(spoil(path.read_bytes()))
        self.refuse_data(path, *culprits)

    def test_damaged_idx_files(self):
        for split in ("train", "t10k"):
            for name in (f"{split}-images-idx3-ubyte", f"{split}-labels-idx1-ubyte"):
                with self.subTest(name):
                    self.refuse_spoilt(self.data, name, lambda content: content[:-1])
                    self.refuse_spoilt(self.data, name, lambda content: content + b"x")
                    self.refuse_spoilt(self.data, name, lambda content: b"")
                    self.refuse_spoilt(self.data, name, lambda content: b"\x1f\x8b" + content[2:])
                    self.refuse_spoilt(self.data, name, lambda content: b"BM" + content[2:], "IDX")

    def test_labels_out_of_range(self):
        self.refuse_spoilt(self.data, "train-labels-idx1-ubyte", lambda content: content[:-1] + b"\xff", "label 255")
        self.refuse_spoilt(self.data, "t10k-labels-idx1-ubyte", lambda content: content[:-1] + b"\x0b", "label 11")

    def test_damaged_cifar_files(self):
        cifar = write_cifar(self.shared / "cifar")
        for name in ("data_batch_3.bin", "test_batch.bin"):
            with self.subTest(name):
                self.refuse_spoilt(cifar, name, lambda content: content[:-1])
                self.refuse_spoilt(cifar, name, lambda content: content + b"x")
                self.refuse_spoilt(cifar, name, lambda content: b"")
                self.refuse_spoilt(cifar, name, lambda content: b"\x0a" + content[1:], "label 10")

    def test_labels_of_another_set(self):
        shutil.copytree(self.data, self.folder, dirs_exist_ok=True)
        labels = self.folder / "train-labels-idx1-ubyte"
        shutil.copy(self.data / "t10k-labels-idx1-ubyte", labels)
        self.refuse_data(labels)


class FilesTest(CommandLineTest):
    def test_unwritable_folder(self):
        self.refuse_training(2, ["/proc/run"], "--out", "/proc/run", "--workers", "2")
        occupied = self.folder / "file"
        occupied.touch()
        self.refuse_training(2, [occupied, "is a file"], "--out", occupied)
        self.refuse_training(2, [occupied, "is a file"], "--out", occupied / "run")

    def test_a_folder_without_checkpoints(self):
        done = self.refuse(2, [self.folder, "holds no checkpoint"], "generate", self.folder)
        self.assertNotIn("resume", done.stderr)

    def test_the_first_folder_that_cannot_be_made_is_named(self):
        self.refuse_training(2, ['"/proc/run"'], "--out", "/proc/run/of/mine")
        self.refuse_training(2, ["--out names no folder"], "--out", "")

    def test_a_full_disk_names_the_file(self):
        self.refuse_training(2, [self.folder / "config.yaml"], "--out", self.folder, preexec_fn=limit_file_size)

    def test_a_summary_that_has_no_place_is_refused_before_the_run(self):
        path = "/nonexistent/summary"
        done = self.refuse(2, [path], *self.train_words("--steps", 1, "--json", path))
        self.assertEqual(done.stdout, "")

    def test_unwritable_summary(self):
        self.refuse_training(2, ["/nonexistent/summary"], "--steps", "1", "--json", "/nonexistent/summary")
        self.refuse_training(2, ["/dev/full"], "--steps", "1", "--json", "/dev/full")

    def test_json_takes_the_place_of_json_only(self):
        run, page = self.folder / "run", self.folder / "page.json"
        for _ in range(2):
            self.assertEqual(self.run_program(*self.train_words("--steps", 1, "--json", page)).returncode, 0)
        self.assertEqual(json.loads(page.read_text())["steps"], 1)
        notes, journal = self.folder / "notes.txt", run / "metrics.jsonl"
        notes.write_text("{} and more\n")
        self.refuse_training(2, [notes, "no JSON", "another file"], "--steps", "1", "--json", notes)
        self.assertEqual(notes.read_text(), "{} and more\n")
        run.mkdir()
        self.refuse(2, [journal, "no JSON"], *self.train_words("--quiet", "--steps", 1, "--json", journal, "--out", run))
        self.assertGreater(len(journal.read_text().splitlines()), 1)
        link = self.folder / "link.json"  # stays, and what it leads to is replaced: nothing, a longer and a shorter file
        link.symlink_to("there.json")
        for before in ("", json.dumps(9999 * "x"), "{}"):
            if before:
                (self.folder / "there.json").write_text(before)
                os.link(self.folder / "there.json", self.folder / f"old {len(before)}")
            self.assertEqual(self.run_program(*self.train_words("--steps", 1, "--json", link)).returncode, 0)
            self.assertEqual(json.loads((self.folder / "there.json").read_text())["steps"], 1)
            self.assertTrue(link.is_symlink())
            if before:  # a whole file has taken its place
                self.assertEqual((self.folder / f"old {len(before)}").read_text(), before)
        self.refuse(2, ["--step-time"], "simulate", "none", "--workers", 2, "--json", self.folder / "new.json")
        self.assertFalse((self.folder / "new.json").exists())


class WorkersTest(CommandLineTest):
    """Too many for the data: told before one is made, which a limit shows that leaves no room for their threads."""

    def limit(self):
        resource.setrlimit(resource.RLIMIT_AS, (400 << 20, 400 << 20))

    def test_more_than_the_data_bear(self):
        if self.run_program("--version", preexec_fn=self.limit).returncode != 0:
            self.skipTest("a sanitizer needs all addresses")
        self.refuse_training(2, ["4096 workers", "32768 images", "only 192"], "--workers", "4096",
                             preexec_fn=self.limit)
        text = self.folder / "text"
        text.write_text("one two three\n" * 1000)
        self.refuse(2, ["tokens, too few"], "train", "lm", "--data", text, "--workers", "4096", "--quiet",
                    preexec_fn=self.limit)
        self.refuse(2, ["4096 workers"], "simulate", "image", "--data", self.data, "--workers", "2,4096", "--steps", "1",
                    "--step-time", "0.1", preexec_fn=self.limit)


if __name__ == "__main__":
    unittest.main()
