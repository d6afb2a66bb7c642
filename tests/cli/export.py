"""What thinwire export writes: a safetensors file like anybody's, which PyTorch loads under its own names, and a network
there that says what thinwire says, to 1e-4."""
import json
import math
import pathlib
import random
import resource
import signal
import struct
import subprocess
import sys
import unittest

from checkpoint_file import spoil_tensor, split_file
from support import CommandLineTest, find_torch, run_tests, write_cifar
from pictures import png

import parts

HERE = pathlib.Path(__file__).parent
NETWORK_OUTPUTS = pathlib.Path(sys.argv.pop(1)) if len(sys.argv) > 1 else None


TORCH = find_torch()
DECODER = ("--model", "transformer", "--heads", 4, "--kv-heads", 2, "--layers", 2)
LOADER_BEGINS = '"""Rebuilds in PyTorch what'
needs_torch = unittest.skipUnless(TORCH, "needs PyTorch")


def fill_disk():
    """A file grows to 5,000 bytes, more than the network takes, and fewer than its loader."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))


def read_safetensors(path):
    """By the format's own rules: header, then tensors one behind the other without a gap, all aligned. What gives a tensor's
    values by its name; the shapes, and the texts."""
    header, data = split_file(path)
    texts = header.pop("__metadata__")
    assert (path.stat().st_size - len(data)) % 8 == 0
    end = 0
    for entry in sorted(header.values(), key=lambda entry: entry["data_offsets"]):
        first, last = entry["data_offsets"]
        assert (first, last - first) == (end, 4 * math.prod(entry["shape"])) and entry["dtype"] == "F32", entry
        end = last
    assert end == len(data)

    def values(name):
        first, last = header[name]["data_offsets"]
        return struct.unpack(f"<{(last - first) // 4}f", data[first:last])

    return values, {name: entry["shape"] for name, entry in header.items()}, texts


class ExportTest(CommandLineTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.cifar = write_cifar(cls.shared / "cifar")

    def export(self, run):
        file, loader = run.with_suffix(".safetensors"), self.folder / "load_network.py"
        self.assertEqual(self.succeed("export", run, file, "--loader", loader), "")
        self.assertEqual(loader.read_bytes(), (HERE.parents[1] / "trainer/commands/load_network.py").read_bytes())
        return file, loader

    def assert_equal_outputs(self, left, right):
        """To 1e-4, or to 1e-4 of their spread where that is above 1."""
        spread = max(left) - min(left)
        self.assertGreater(spread, 0.01)
        worst = max(abs(a - b) for a, b in zip(left, right, strict=True))
        self.assertLess(worst, 1e-4 * max(1, spread))

    def train_image(self, model):
        run = self.folder / model
        self.succeed("train", "image", "--data", self.cifar, "--batch", 8, "--steps", 1, "--lr", 0.001, "--model", model,
                     "--quiet", "--out", run)
        return run

    def train_text(self, name, *options):
        text, run = self.folder / "text.txt", self.folder / name
        generator = random.Random(1)
        text.write_text("".join(" ".join(f"w{generator.randrange(12)}" for _ in range(9)) + "\n" for _ in range(300)))
        self.succeed("train", "lm", "--data", text, "--hidden", 16, "--batch", 4, "--bptt", 8, "--steps", 30, "--quiet",
                     "--out", run, *options)
        return run

    def train_speech(self, name, *options):
        folder, run = self.folder / f"{name}.data", self.folder / name
        folder.mkdir()
        generator = random.Random(2)
        names = [f"u{i}" for i in range(10)]
        for name in names:
            samples = [generator.randrange(-9000, 9000) for _ in range(4000)]
            head = struct.pack("<4sI4s4sIHHIIHH4sI", b"RIFF", 36 + 8000, b"WAVE", b"fmt ", 16, 1, 1, 8000, 16000, 2, 16,
                               b"data", 8000)
            (folder / f"{name}.wav").write_bytes(head + struct.pack("<4000h", *samples))
        (folder / "wav.scp").write_text("".join(f"{name} {folder}/{name}.wav\n" for name in names))
        (folder / "text").write_text("".join(f"{name} ab c\n" for name in names))
        (folder / "ali").write_text("".join(f"{name} {' '.join(str(i % 3) for i in range(48))}\n" for name in names))
        self.succeed("train", "asr", "--data", folder, "--features", "rate=8000,bins=8", "--batch", 2,
                     "--steps", 6, "--quiet", "--out", run, *options)
        return run

class FileTest(ExportTest):
    def test_names_and_shapes_are_those_of_torchvision(self):
        _, shapes, texts = read_safetensors(self.export(self.train_image("resnet18"))[0])
        block = {f"layer2.0.{name}" for name in ("conv1.weight", "conv2.weight", "downsample.0.weight")}
        norms = ("bn1", "bn2", "downsample.1")
        block |= {f"layer2.0.{norm}.{name}" for norm in norms for name in ("weight", "bias", "running_mean",
                                                                          "running_var")}
        self.assertEqual({name for name in shapes if name.startswith("layer2.0.")}, block)
        self.assertEqual(shapes["layer2.0.downsample.0.weight"], [128, 64, 1, 1])
        self.assertEqual(len(shapes), 62 + 40)  # torchvision's: 62 parameters, and two statistics of 20 norms
        network = json.loads(texts["network"])
        self.assertEqual((texts["format"], network["task"], network["input"]), ("pt", "image", [3, 32, 32]))
        self.assertEqual((len(network["classes"]), len(network["mean"]), len(network["deviation"])), (10, 3, 3))

    def test_what_cannot_be_exported(self):
        run = self.train_image("cnn")
        self.refuse(2, ["nowhere"], "export", self.folder / "nowhere", self.folder / "x")
        self.refuse(2, [self.folder / "no" / "x"], "export", run, self.folder / "no" / "x")
        self.refuse(2, [self.folder / "no" / "x"], "export", run, self.folder / "x", "--loader", self.folder / "no" / "x")
        self.refuse(2, ["FILE"], "export", run)
        for name in ("x.pt", "x.onnx"):
            self.refuse(2, [name, "x.safetensors", "--loader"], "export", run, self.folder / name)
        checkpoint, = run.glob("checkpoints/*/model.safetensors")
        before = checkpoint.read_bytes()
        self.refuse(2, [checkpoint], "export", run, checkpoint)
        self.refuse(2, [checkpoint], "export", run, self.folder / "x", "--loader", checkpoint)
        self.refuse(2, [self.folder / "x"], "export", run, self.folder / "x", "--loader", self.folder / "x")
        self.refuse(2, ["no loader"], "export", run, self.folder / "x", "--loader", f"{self.folder}/./x")
        (self.folder / "x").unlink()
        summary = run / "summary.json"
        kept = summary.read_bytes()
        self.refuse(2, [summary, "no network", "another file"], "export", run, summary)
        self.refuse(2, [summary, "no loader", "another file"], "export", run, self.folder / "x", "--loader", summary)
        self.assertEqual(summary.read_bytes(), kept)
        self.assertEqual(checkpoint.read_bytes(), before)
        for _ in range(2):
            exported = self.export(run)[0]
        self.refuse(2, [exported, "thinwire checkpoint", "its run's folder"], "export", exported, self.folder / "x")
        spoil_tensor(checkpoint, "fc2.bias", float("inf"))
        for command in (("export", run, self.folder / "y"), ("predict", run, checkpoint)):
            self.refuse(2, [checkpoint, "fc2.bias", "infinite"], *command)
        self.assertFalse((self.folder / "y").exists())

    def test_a_full_disk_leaves_no_half_a_loader(self):
        run, loader = self.train_text("small", "--hidden", 2, "--layers", 1), self.folder / "load.py"
        for before in (None, LOADER_BEGINS + " an older one"):
            if before:
                loader.write_text(before)
            self.refuse(2, [loader], "export", run, self.folder / "x", "--loader", loader, preexec_fn=fill_disk)
            self.assertEqual(loader.exists() and loader.read_text(), before or False)
            self.assertEqual(list(self.folder.glob("*.partial")), [])
        self.assertFalse((self.folder / "no").exists())

    def test_a_second_bias_is_zero_and_a_tied_matrix_has_both_names(self):
        values, shapes, _ = read_safetensors(self.export(self.train_text("lm", "--tied"))[0])
        self.assertEqual(values("decoder.weight"), values("encoder.weight"))
        self.assertEqual(values("rnn.bias_hh_l1"), (0,) * 64)
        self.assertNotEqual(values("rnn.bias_ih_l1"), (0,) * 64)
        self.assertEqual(shapes["rnn.weight_ih_l0"], [64, 16])


class TorchTest(ExportTest):
    def write_picture(self):
        """The same picture as a PNG file and as bytes: one like those that were trained on."""
        generator = random.Random(5)
        pixels = [[generator.randrange(60) + 195 * (y == 4) for _ in range(3)] for y in range(32) for _ in range(32)]
        picture, plain = self.folder / "picture.png", self.folder / "picture.bytes"
        picture.write_bytes(png(32, 32, lambda x, y: pixels[32 * y + x]))
        plain.write_bytes(bytes(pixel[channel] for channel in range(3) for pixel in pixels))
        return picture, plain

    def ask_predict(self, run, picture, description):
        line = self.succeed("predict", run, picture, "--json", "--top", 100)
        answer = {entry["class"]: entry["probability"] for entry in json.loads(line)["classes"]}
        return [math.log(answer[name]) for name in description["classes"]]

    def ask_network(self, run):
        newest = sorted((run / "checkpoints").iterdir())[-1] / "model.safetensors"
        done = self.finish(self.start(NETWORK_OUTPUTS, newest))
        self.assertEqual(done.returncode, 0, done.stderr)
        return [float(line) for line in done.stdout.split()]

    def train_images(self, *models):
        for model in models:
            yield self.train_image(model), {"task": "image", "architecture": model, "input": [3, 32, 32]}

    def train_all(self):
        """Runs of every task, and what their description has to say."""
        yield from self.train_images("cnn")
        yield self.train_text("lm"), {"task": "lm", "tied": False, "unit": "word", "layers": 2}
        yield self.train_text("llama", *DECODER), {"architecture": "transformer", "kv_heads": 2, "inner": 64, "context": 8}
        yield self.train_speech("asr", "--hidden", 12, "--bottleneck", 5), {"task": "asr", "alphabet": " abc", "labels": 5}
        yield self.train_conformer("relative")
        frames = ("--hidden", 12, "--model", "frames", "--alignment", self.folder / "asr.data" / "ali", "--window", 12)
        yield self.train_speech("frames", *frames), {"task": "asr", "labels": 3}

    def train_conformer(self, positions):
        conformer = ("--encoder", "conformer", "--blocks", 2, "--width", 12, "--heads", 3, "--kernel", 5, "--channels", 4,
                     "--positions", positions)
        return self.train_speech(f"conformer-{positions}", *conformer), {"architecture": "speech encoder", "positions": positions}

    def train_others(self):
        """Of the same tasks in other forms."""
        yield from self.train_images("resnet20")
        yield self.train_text("tied", "--tied", "--layers", 1), {"task": "lm", "tied": True, "layers": 1}
        yield self.train_text("tied llama", *DECODER, "--tied", "--inner", 24), {"tied": True, "heads": 4, "inner": 24}
        yield self.train_speech("convolved", "--hidden", 12, "--channels", 3), {"channels": 3, "hidden": 12}
        yield self.train_conformer("none")

    @needs_torch
    def test_a_network_that_the_loader_lacks_is_named(self):
        """Whoever adds a model may forget its class there."""
        loader = HERE.parent.parent / "trainer/commands"
        program = "import load_network; load_network.build({'task': 'image', 'architecture': 'shallow'})"
        done = self.finish(self.start(TORCH, "-B", "-c", program, env={"PYTHONPATH": str(loader)}))
        self.assertEqual(done.returncode, 1)
        self.assertIn("no class for a network called 'shallow'", done.stderr)

    @needs_torch
    def test_pytorch_says_what_thinwire_says(self):
        self.check_outputs(self.train_all())
        self.refuse(2, ["frames"], "transcribe", self.folder / "frames", self.folder / "asr.data" / "u0.wav")

    @parts.extra
    @needs_torch
    def test_pytorch_says_what_other_forms_say(self):
        self.check_outputs(self.train_others())

    @parts.extra
    @needs_torch
    def test_pytorch_says_what_large_networks_say(self):
        self.check_outputs(self.train_images("resnet18", "resnet50"))

    def check_outputs(self, runs):
        picture, plain = self.write_picture()
        runs = list(runs)
        files = [self.export(run)[0] for run, _ in runs]
        done = self.finish(self.start(TORCH, "-B", HERE / "torch_outputs.py", self.folder / "load_network.py", plain, *files))
        self.assertEqual(done.returncode, 0, done.stderr)
        for (run, expected), line in zip(runs, done.stdout.splitlines(), strict=True):
            with self.subTest(run=run.name):
                found = json.loads(line)
                description = found["description"]
                self.assertEqual({key: description[key] for key in expected}, expected)
                is_image = description["task"] == "image"
                said = self.ask_predict(run, picture, description) if is_image else self.ask_network(run)
                self.assert_equal_outputs(found["outputs"], said)


if __name__ == "__main__":
    run_tests()
