"""Gradients kept by a training run, and what bench codec makes of them."""
import json
import math
import struct
import unittest

from checkpoint_file import split_file
from support import CommandLineTest


def read_tensors(path):
    """The F32 tensors of a safetensors file, by name: (shape, values)."""
    header, data = split_file(path)
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        tensors[name] = entry["shape"], struct.unpack_from(f"<{(end - begin) // 4}f", data, begin)
    return tensors


def as_float(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


class DumpTest(CommandLineTest):
    def names(self, folder):
        return sorted(path.name for path in folder.iterdir())

    def test_a_step_of_plain_sgd_follows_the_kept_gradient(self):
        out, kept = self.folder / "run", self.folder / "kept"
        self.train("--steps", 3, "--lr", 0.25, "--momentum", 0, "--warmup", 0, "--schedule", "constant",
                   "--checkpoint-every", 1, "--out", out, "--dump-gradients", kept, "--dump-steps", 3)
        before, after = (read_tensors(out / f"checkpoints/step-0000000{step}/model.safetensors") for step in (2, 3))
        gradients = read_tensors(kept / "step-000003.safetensors")
        self.assertIn("conv1.weight", gradients)
        for name, (shape, gradient) in gradients.items():
            self.assertEqual((shape, len(gradient)), (before[name][0], len(before[name][1])), name)
            for old, new, slope in list(zip(before[name][1], after[name][1], gradient))[:500]:
                self.assertEqual(as_float(old - as_float(0.25 * slope)), new, name)

    def test_eight_steps_after_the_middle_are_kept_unless_told(self):
        self.train("--steps", 20, "--workers", 2, "--dump-gradients", self.folder / "a")
        self.assertEqual(self.names(self.folder / "a"), [f"step-0000{step}.safetensors" for step in range(11, 19)])
        self.train("--steps", 3, "--dump-gradients", self.folder / "b")
        self.assertEqual(self.names(self.folder / "b"), ["step-000002.safetensors", "step-000003.safetensors"])
        self.train("--steps", 9, "--sync", "dgc", "--dump-gradients", self.folder / "c", "--dump-steps", "2,4-5")
        self.assertEqual(self.names(self.folder / "c"), [f"step-00000{step}.safetensors" for step in (2, 4, 5)])

    def test_keeping_gradients_changes_no_bit_of_the_run(self):
        options = ("--steps", 6, "--workers", 2, "--sync", "dgc:density=0.01")
        plain = self.train(*options)["weights_crc32c"]
        self.assertEqual(self.train(*options, "--dump-gradients", self.folder)["weights_crc32c"], plain)

    def test_refusals(self):
        kept = ("--workers", 2, "--steps", 5, "--dump-gradients", self.folder)
        self.refuse_training(2, ["--dump-steps 5", "beside --dump-gradients"], "--dump-steps", 5)
        self.refuse_training(2, ["/proc/kept"], "--dump-gradients", "/proc/kept")
        self.refuse_training(2, ["--dump-steps", "x"], *kept, "--dump-steps", "3,x")
        self.refuse_training(2, ["--dump-steps", "5 steps"], *kept, "--dump-steps", "6")

    def test_a_file_that_cannot_be_written_is_named(self):
        (self.folder / "step-000003.safetensors").mkdir()
        self.refuse_training(2, [self.folder / "step-000003.safetensors"], "--workers", 2, "--steps", 4,
                             "--dump-gradients", self.folder)


class BenchTest(CommandLineTest):
    def bench(self, *words):
        return json.loads(self.complete("bench", "codec", *words, "--json").stdout)

    def test_what_a_run_kept_is_what_is_compressed(self):
        topk = "topk:density=0.01,leftovers=fp32,indices=rice"
        summary = self.train("--steps", 8, "--workers", 2, "--sync", topk, "--dump-gradients", self.folder)
        found = self.bench("--gradients", self.folder, "--codec", topk)
        result, = found["results"]
        self.assertEqual(found["gradients"], str(self.folder))
        self.assertEqual(result["count"], summary["parameters"])
        vectors = sum(len(values) for shape, values in read_tensors(self.folder / "step-000005.safetensors").values()
                      if len(shape) == 1)
        self.assertEqual(result["exact_bytes"], 4 * vectors)
        self.assertAlmostEqual(result["message_ratio"] / summary["ratio"]["message"], 1, delta=0.03)
        alone = self.bench("--gradients", self.folder / "step-000005.safetensors", "--codec", "all", "--threads", 2)
        self.assertEqual({result["count"] for result in alone["results"]}, {summary["parameters"]})

    def test_the_bound_is_summed_over_tensors(self):
        self.train("--steps", 1, "--dump-gradients", self.folder)
        path = self.folder / "step-000001.safetensors"
        result, = self.bench("--gradients", path, "--codec", "topk:density=0.02,min_sent=1")["results"]
        bits, sent = 0, 0
        for shape, values in read_tensors(path).values():
            n = len(values)
            if len(shape) == 1 or n < 128:
                continue
            k = math.ceil(n * 0.02)
            bits += (math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)) / math.log(2)
            sent += k
        self.assertEqual(result["elements_sent"], sent)
        self.assertAlmostEqual(result["bound_bits_per_index"], bits / sent, places=6)

    def test_files_that_are_no_gradients_are_named(self):
        path = self.folder / "step-000001.safetensors"
        path.write_bytes(b"no tensors")
        self.refuse(2, [path], "bench", "codec", "--gradients", self.folder)
        self.refuse(2, ["--threads", "tensors"], "bench", "codec", "--gradients", self.kept_step(), "--threads", 64)

    def kept_step(self):
        self.train("--steps", 1, "--dump-gradients", self.folder / "kept")
        return self.folder / "kept"


if __name__ == "__main__":
    unittest.main()
