"""Adapters beside a transformer that is there: only they learn, travel and are saved. Whether peft has the same losses is
asked in python/tests/test_peft.py."""
import json
import random
import shlex
import shutil
import signal
import struct
import unittest

from checkpoint_file import crc32c, join_file, spoil_tensor, split_file
from llama_folder import SIZES, LlamaFolderTest, read_tensors
from support import free_place, wait_until

COUNTS = {"q": (16, 16), "k": (16, 8), "v": (16, 8), "o": (16, 16), "gate": (16, 64), "up": (16, 64), "down": (64, 16)}


def adapter_elements(rank, targets=tuple(COUNTS)):
    return 2 * sum(rank * sum(COUNTS[target]) for target in targets)


def write_other_source(path, count):
    """As write_source, but other words follow."""
    generator, text, word = random.Random(11), [], 0
    for _ in range(count):
        word = (5 * word + generator.randrange(3) + 4) % 12
        text.append(f"w{word}")
    path.write_text(" ".join(text) + "\n")


def floats(values):
    return struct.unpack(f"<{len(values) // 4}f", values)


class AdapterTest(LlamaFolderTest):
    def setUp(self):
        super().setUp()
        self.base, self.out = self.folder / "base", self.folder / "adapted"
        self.base_summary = self.train("--model", "transformer", *SIZES, "--lr", 0.01, "--warmup", 5, "--steps", 20, "--out",
                                       self.base)

    def begin(self, *options, lora="rank=2", out=None):
        return ("--init-from", self.base, "--lora", lora, "--lr", 0.01, "--warmup", 5, "--out", out or self.out, *options)

    def newest(self, out):
        return sorted((out / "checkpoints").iterdir())[-1] / "model.safetensors"

    def export(self, out, name):
        self.succeed("export", out, self.folder / name, "--transformers", "--checkpoint", "last")
        return read_tensors(self.folder / name / "model.safetensors")


class PlanTest(AdapterTest):
    def test_a_plan_begins_with_the_base(self):
        """Without it the command that is printed would be refused; with it that command runs."""
        words = ("plan", "lm", "--data", self.texts, "--batch", 4, "--lora", "rank=2", "--workers", 2, "--steps", 2, "--link",
                 "1Mbit,1ms", "--step-time", 0.01, "--quiet")
        self.refuse(2, ["adapters", "--init-from RUN"], *words, "--model", "transformer", *SIZES)
        told = self.succeed(*words, "--init-from", self.base)
        self.assertIn(f" {adapter_elements(2)} parameters", told)
        self.assertIn("adapters", self.run_program(*words, "--init-from", self.base, "--steps", 300).stdout)
        program, *rest = shlex.split(told.splitlines()[-1])
        self.assertEqual((program, self.run_program(*rest, "--quiet", "--out", "none").returncode), ("thinwire", 0))


class TrainingTest(AdapterTest):
    def test_a_rank_above_the_smaller_side_is_no_low_rank(self):
        words = ("train", "lm", "--data", self.texts, "--batch", 4, "--steps", 1)
        self.refuse(2, ["k_proj is 8 by 16", "at most 8"], *words, *self.begin(lora="rank=9"))
        self.train(*self.begin("--steps", 1, lora="rank=16,targets=q+o+down"))

    def test_new_adapters_change_no_bit(self):
        """Of the loss: B is zero."""
        summary = self.train(*self.begin("--lr", 0, "--steps", 1))
        self.assertEqual(summary["loss"], self.base_summary["loss"])

    def test_adapters_learn_and_what_is_beside_them_does_not(self):
        """Of a network that has learned one source, adapters make one of another."""
        other = self.folder / "other.txt"
        write_other_source(other, 6000)
        shutil.rmtree(self.base)
        self.train("--model", "transformer", *SIZES, "--lr", 0.01, "--warmup", 5, "--steps", 200, "--out", self.base)
        options = ("--data", other, "--batch", 2, "--workers", 2, "--steps", 200)
        before = self.train(*self.begin(*options, "--lr", 0, out="none"))
        summary = self.train(*self.begin(*options, "--lr", 0.02))
        self.assertLess(summary["loss"], before["loss"] - 0.5)
        before, after = self.export(self.base, "one"), self.export(self.out, "two")
        changed = {name.split(".")[-2] for name in before if before[name] != after[name]}
        self.assertEqual(changed, {f"{target}_proj" for target in COUNTS})

    def test_only_the_targets_have_adapters(self):
        self.train(*self.begin("--steps", 3, lora="rank=3,targets=v+down"))
        names = [name for name, (dtype, _, _) in read_tensors(self.newest(self.out)).items() if dtype == "F32"]
        weights = [name for name in names if not name.startswith("optimiser.")]
        self.assertEqual({name.split(".")[-3] for name in weights}, {"v_proj", "down_proj"})
        self.assertEqual(len(weights), 2 * 2 * 2)

    def test_only_adapters_travel(self):
        """With every way to agree. Of a dense mean each of two workers sends half of it twice; gossip sends all, and at the
        end a mean."""
        for sync, lora, most in (("allreduce", "rank=2", 10), ("allreduce", "rank=1,targets=q+v", 10), ("dpsgd", "rank=2", 12),
                                 ("powersgd:rank=1", "rank=2", 10), ("diloco:every=5", "rank=2", 3)):
            with self.subTest(sync=sync, lora=lora):
                summary = self.train(*self.begin("--steps", 10, "--batch", 2, "--workers", 2, "--sync", sync, lora=lora,
                                                 out="none"))
                targets = ("q", "v") if "targets" in lora else tuple(COUNTS)
                elements = adapter_elements(int(lora[5]), targets)
                self.assertEqual(summary["parameters"], elements)
                self.assertLess(summary["bytes"]["sent"], (most + 1) * 4 * elements)
                if sync == "allreduce":
                    self.assertEqual(summary["bytes"]["dense"], 10 * 4 * elements)

    def test_the_banner_counts(self):
        done = self.run_program(*self.train_words(*self.begin("--steps", 1, "--batch", 2, "--workers", 2)))
        frozen = sum(len(values) // 4 for name, (_, _, values) in read_tensors(self.newest(self.base)).items()
                     if name.startswith(("model.", "lm_head")))
        self.assertIn(f"{adapter_elements(2)} parameters and {frozen} frozen ones", done.stdout)
        self.assertIn(f"would send {4 * adapter_elements(2) / 1000:.3g} kB", done.stdout)

    def test_the_best_and_not_the_last_is_judged(self):
        """The training text leads away from what is validated."""
        texts = self.folder / "texts"
        shutil.copytree(self.texts, texts)
        write_other_source(texts / "source.train.txt", 4000)
        told = self.succeed(*self.train_words(*self.begin("--data", texts, "--epochs", 3, "--batch", 20, "--lr", 0.02)))
        self.assertIn("(weights of step 20)", told)


class CheckpointTest(AdapterTest):
    def test_resumed_equals_uninterrupted(self):
        for sync in ("allreduce", "powersgd:rank=1", "dpsgd", "diloco:every=4"):
            with self.subTest(sync=sync):
                options = ("--sync", sync, "--workers", 2, "--batch", 2, "--checkpoint-every", 6)
                spec = "rank=2,dropout=0.3"
                whole = self.train(*self.begin(*options, "--steps", 12, lora=spec, out=self.folder / "whole"))
                self.train(*self.begin(*options, "--steps", 12, lora=spec))
                shutil.rmtree(sorted((self.out / "checkpoints").iterdir())[-1])
                resumed = self.summary_of("train", "--resume", self.out)
                for key in ("weights_crc32c", "loss", "steps"):
                    self.assertEqual(resumed[key], whole[key])
                for out in (self.out, self.folder / "whole"):
                    shutil.rmtree(out)

    def summary_of(self, *words):
        return json.loads(self.succeed(*words, "--quiet", "--json"))

    def test_a_checkpoint_holds_adapters_and_says_what_they_are_beside(self):
        self.train(*self.begin("--steps", 3))
        elements = sum(len(values) // 4 for name, (dtype, _, values) in read_tensors(self.newest(self.out)).items()
                       if dtype == "F32" and not name.startswith("optimiser."))
        self.assertEqual(elements, adapter_elements(2))
        texts = self.metadata(self.out)
        self.assertEqual(texts["base"], str(self.newest(self.base)))
        sums = [crc32c(name.encode() + values) for name, (_, _, values) in self.export(self.base, "one").items()]
        self.assertEqual(texts["base checksum"], f"{sum(sums) & 0xFFFFFFFF:08x}")

    def test_export_merges(self):
        """W + alpha / rank * B A, also where a run begins with a run of adapters."""
        self.train(*self.begin("--steps", 20, lora="rank=2,alpha=4"))
        adapters, before = read_tensors(self.newest(self.out)), self.export(self.base, "one")
        after = self.export(self.out, "two")
        for target, (inputs, outputs) in COUNTS.items():
            stem = f"model.layers.1.{'mlp' if target in ('gate', 'up', 'down') else 'self_attn'}.{target}_proj."
            a, b = (floats(adapters[f"{stem}lora_{letter}.weight"][2]) for letter in "AB")
            old, new = (floats(tensors[stem + "weight"][2]) for tensors in (before, after))
            for place in range(inputs * outputs):
                row, column = divmod(place, inputs)
                expected = old[place] + 2 * sum(b[2 * row + r] * a[inputs * r + column] for r in range(2))
                self.assertAlmostEqual(new[place], expected, delta=1e-6)
        self.train("--init-from", self.out, "--lr", 0, "--warmup", 0, "--steps", 1, "--out", self.folder / "third")
        self.assertEqual(self.export(self.folder / "third", "three"), after)

    def test_adapters_beside_merged_adapters(self):
        self.train(*self.begin("--steps", 20))
        second = self.folder / "second"
        self.train("--init-from", self.out, "--lora", "rank=1", "--lr", 0, "--warmup", 0, "--steps", 1, "--out", second)
        self.assertEqual(self.export(second, "two"), self.export(self.out, "one"))

    def test_other_weights_are_refused(self):
        self.train(*self.begin("--steps", 3))
        self.train("--model", "transformer", *SIZES, "--seed", 9, "--steps", 20, "--out", self.folder / "other")
        shutil.copy(self.newest(self.folder / "other"), self.newest(self.base))
        for words in (("generate", self.out, "--tokens", 3), ("train", "--resume", self.out, "--steps", 5, "--quiet")):
            self.refuse(2, ["checksum", self.metadata(self.out)["base checksum"]], *words)
        self.newest(self.base).unlink()
        for words in (("generate", self.out, "--tokens", 3), ("train", "--resume", self.out, "--steps", 5, "--quiet")):
            self.refuse(2, [self.base], *words)

    def test_another_network_of_the_same_weights_is_refused(self):
        self.make_folder()
        self.train("--init-from", self.llama, "--lora", "rank=2", "--steps", 3, "--out", self.out)
        self.change_config(rope_theta=500000)
        for words in (("generate", self.out, "--tokens", 3), ("train", "--resume", self.out, "--steps", 5, "--quiet")):
            self.refuse(2, ["theta=500000", self.metadata(self.out)["base network"]], *words)
        self.change_config(rope_theta=10000)
        self.succeed("generate", self.out, "--tokens", 3)
        self.train("--resume", self.out, "--steps", 5)

    def test_adapters_for_peft(self):
        self.train(*self.begin("--steps", 3, lora="rank=2,alpha=5,targets=q+v"))
        folder = self.folder / "peft"
        self.succeed("export", self.out, folder, "--peft")
        config = json.loads((folder / "adapter_config.json").read_text())
        self.assertEqual((config["r"], config["lora_alpha"], config["target_modules"]), (2, 5, ["q_proj", "v_proj"]))
        own, theirs = read_tensors(self.newest(self.out)), read_tensors(folder / "adapter_model.safetensors")
        self.assertEqual(len(theirs), 2 * 2 * 2)
        for name, entry in theirs.items():
            self.assertEqual(entry, own[name.removeprefix("base_model.model.")])
        self.refuse(2, ["--lora"], "export", self.base, self.folder / "new", "--peft")
        self.refuse(2, [folder, "--peft"], "export", self.out, folder, "--peft")
        self.refuse(2, ["--transformers"], "export", self.out, self.folder / "new", "--peft", "--transformers")
        name = "model.layers.1.self_attn.q_proj.lora_B.weight"
        spoil_tensor(self.newest(self.out), name, float("nan"))
        for option in ("--peft", "--transformers"):
            self.refuse(2, ["NaN", self.newest(self.out)], "export", self.out, self.folder / "new", option)


class RefusalTest(AdapterTest):
    def test_wrong_words(self):
        for spec, culprits in (("", ["rank"]), ("alpha=3", ["rank"]), ("rank=0", ["rank=0"]), ("rank=1.5", ["rank=1.5"]),
                               ("rank=2,dropout=1", ["dropout=1"]), ("rank=2,targets=w", ["targets=w", "gate"]),
                               ("rank=2,targets=", ["targets="]), ("rank=2,size=3", ["size", "alpha"]), ("8", ["8", "rank"]),
                               ("rank=4,rank=5", ["rank is given twice"]),
                               ("rank=2,targets=q+v+q", ["q is given twice"]),
                               ("rank=2,targets=q,targets=v", ["targets", "given twice"]), ("rank=x", ["rank=x"]),
                               ("rank=2,alpha=nan", ["alpha=nan"])):
            self.refuse_training(2, culprits, "--init-from", self.base, "--lora", spec, "--steps", 1, "--out", "none")

    def test_what_does_not_go_together(self):
        self.refuse_training(2, ["--init-from"], "--model", "transformer", "--lora", "rank=2", "--steps", 1, "--out", "none")
        self.refuse_training(2, ["--lora", "transformer", "small", "--init-from"], "--model", "small", "--lora", "rank=2",
                             "--steps", 1, "--out", "none")
        self.train(*self.begin("--steps", 2))
        self.refuse(2, ["adapters", "simulate none"], "simulate", "lm", "--data", self.texts, "--batch", 4, "--lora", "rank=2",
                    "--model", "transformer", *SIZES, "--workers", 2, "--steps", 1, "--step-time", 0.01)
        self.refuse(2, ["lora", "rank=3"], "train", "--resume", self.out, "--lora", "rank=3", "--steps", 4, "--quiet")

    def test_a_group_trains_beside_the_same_weights(self):
        """Which each worker has from wherever it likes."""
        other = self.folder / "other"
        self.train("--model", "transformer", *SIZES, "--steps", 1, "--seed", 7, "--out", other)
        meeting = free_place()

        def come(name, *options):
            with open(self.folder / name, "w") as said:
                return self.start_program(*self.train_words(*self.begin("--sync", "diloco:every=4", "--steps", 20000, "--join",
                                                                        meeting, *options)), stdout=said, stderr=said)

        def says(name, words):
            return words in (self.folder / name).read_text()

        first = come("first")
        wait_until(lambda: says("first", "1 worker from step 0 on"), "a group", first)
        first.send_signal(signal.SIGSTOP)
        second = come("second", "--init-from", other, "--out", "none")
        wait_until(lambda: says("second", "coming to the group"), "a newcomer", second)
        first.send_signal(signal.SIGCONT)
        self.finish(second)
        self.assertEqual(second.returncode, 2)
        self.assertRegex((self.folder / "second").read_text(),
                         r"--init-from has weights of checksum \w{8}, and the group trains beside those of \w{8}\n$")
        first.send_signal(signal.SIGTERM)
        self.finish(first)
        self.assertEqual(first.returncode, 130, (self.folder / "first").read_text())

    def test_a_default_of_the_run_is_told_in_words(self):
        vocabulary = "all, 4,096 pieces, and as many ids as the network of --init-from has"
        for option, value, past in (("--dropout", 0.3, "the model's"), ("--vocabulary", 9, vocabulary)):
            self.refuse(2, [f"{option} {value}: the run in {self.base} has the default of {option} ({past}),"],
                        "train", "--resume", self.base, option, value, "--steps", 21, "--quiet")

    def test_adapters_that_cannot_be(self):
        self.train(*self.begin("--steps", 2, lora="rank=2,targets=q"))
        path = self.newest(self.out)
        whole = path.read_bytes()
        def refuse_with(change, *culprits, words=("generate", path, "--tokens", 3)):
            path.write_bytes(whole)
            header, data = split_file(path)
            change(header, data)
            tensors = {name: entry for name, entry in header.items() if name != "__metadata__"}
            total = sum(crc32c(tensor.encode() + data[slice(*entry["data_offsets"])]) for tensor, entry in tensors.items())
            header["__metadata__"]["checksum"] = f"{total & 0xFFFFFFFF:08x}"
            header["__metadata__"].pop("checksum of texts")
            join_file(path, header, data)
            self.refuse(2, [path, *culprits], *words)
        name = "model.layers.1.self_attn.q_proj.lora_A.weight"
        def turn(header, _):
            header[name]["shape"].reverse()
        def rename(header, _):
            header["another.lora_A.weight"] = header.pop(name)
        def lose(header, _):
            del header["__metadata__"]["base checksum"]
        def point_at_itself(header, _):
            header["__metadata__"]["base"] = str(path)
        def empty(header, _):
            for part, axis in (("A", 0), ("B", 1)):
                entry = header[name.replace("lora_A", f"lora_{part}")]
                begin, end = entry["data_offsets"]
                header[f"what {part} had"] = {"dtype": "U8", "shape": [end - begin], "data_offsets": [begin, end]}
                entry["shape"][axis], entry["data_offsets"] = 0, [begin, begin]
        def scale(header, data):
            struct.pack_into("<d", data, header["adapters.scale"]["data_offsets"][0], float("inf"))
        refuse_with(turn, name, "does not fit")
        refuse_with(empty, name, "does not fit")
        refuse_with(rename, "adapters of no weight")
        refuse_with(lose, "checksum")
        refuse_with(point_at_itself, "in a row")
        refuse_with(scale, "adapters.scale")
        for_peft = ("export", path, self.folder / "new", "--peft")
        refuse_with(scale, "adapters.scale", words=for_peft)
        refuse_with(turn, name, "rank", words=for_peft)
        refuse_with(lambda header, _: header.update({"other": header.pop(name)}), "in pairs", words=for_peft)
        refuse_with(lambda header, _: header.update({f"{'x' * 600}.lora_A.weight": header.pop(name)}), "too long", words=for_peft)


if __name__ == "__main__":
    unittest.main()
