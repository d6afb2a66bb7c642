"""What the tests of the command line share: a tiny data set, a run of the program, and what a refusal must look like.

Each file is a program: `training.py PATH/thinwire`."""
import json
import os
import pathlib
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

PROGRAM = pathlib.Path(sys.argv.pop(1)).resolve()
SIDE, TRAIN, TEST = 28, 192, 50


def write_idx(path, dimensions, values):
    path.write_bytes(struct.pack(f">I{len(dimensions)}I", 0x800 + len(dimensions), *dimensions) + bytes(values))


def write_split(folder, split, count, generator):
    """Noise with a bright row that tells the class, so that a few steps learn something."""
    labels = [generator.randrange(10) for _ in range(count)]
    pixels = bytearray(generator.randrange(60) for _ in range(count * SIDE * SIDE))
    for image, label in enumerate(labels):
        at = (image * SIDE + 2 + 2 * label) * SIDE
        pixels[at:at + SIDE] = bytes([255] * SIDE)
    write_idx(folder / f"{split}-images-idx3-ubyte", (count, SIDE, SIDE), pixels)
    write_idx(folder / f"{split}-labels-idx1-ubyte", (count,), labels)


def write_data(folder):
    folder.mkdir(parents=True)
    generator = random.Random(1)
    write_split(folder, "train", TRAIN, generator)
    write_split(folder, "t10k", TEST, generator)
    return folder


def write_cifar(folder):
    """CIFAR-10's files with 32 images each: noise with a bright row that tells the class."""
    folder.mkdir(parents=True)
    generator = random.Random(2)
    for name in (*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"):
        records = bytearray()
        for _ in range(32):
            label = generator.randrange(10)
            pixels = bytearray(generator.randrange(60) for _ in range(3 * 32 * 32))
            pixels[3 * 32 * label:3 * 32 * (label + 1)] = bytes([255] * 3 * 32)
            records += bytes([label]) + pixels
        (folder / name).write_bytes(records)
    return folder


class CommandLineTest(unittest.TestCase):
    """A folder to write in, a data set in it, and short ways to run the program."""

    @classmethod
    def setUpClass(cls):
        cls.shared = pathlib.Path(tempfile.mkdtemp(prefix="thinwire-cli-"))
        cls.data = write_data(cls.shared / "data")

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.shared)

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(dir=self.shared))

    def train_words(self, *options):
        return ["train", "image", "--data", self.data, "--batch", "8", *options]

    def run_program(self, *words, launcher=(), **keywords):
        return subprocess.run([*launcher, PROGRAM, *map(str, words)], capture_output=True, text=True, timeout=240,
                              env={**os.environ, **keywords.pop("env", {})}, **keywords)

    def train(self, *options, **keywords):
        """Trains, and returns the summary; fails the test unless the program succeeds without a word on stderr."""
        done = self.run_program(*self.train_words("--quiet", "--json", "-", *options), **keywords)
        # What clang's leak checker says of MPI's own libraries, which it cannot read, is no fault of ours.
        told = [line for line in done.stderr.splitlines() if not line.startswith("LLVMSymbolizer:")]
        self.assertEqual((done.returncode, told), (0, []), done.stdout)
        return json.loads(done.stdout)

    def refuse(self, code, culprits, *words, **keywords):
        """Runs the program; it must end with `code` and one line on stderr that names every culprit."""
        done = self.run_program(*words, **keywords)
        self.assertEqual(done.returncode, code, done.stderr)
        lines = done.stderr.splitlines()
        self.assertEqual(len(lines), 1, done.stderr)
        for culprit in culprits:
            self.assertIn(str(culprit), lines[0])
        return done

    def refuse_training(self, code, culprits, *options, **keywords):
        return self.refuse(code, culprits, *self.train_words("--quiet", *options), **keywords)
