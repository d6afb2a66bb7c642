#!/usr/bin/env python3
"""bench/step_bytes.py, which makes the tables of docs/home-network.md, and that the page has what it prints.

usage: step_bytes.py LIBRARY"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
LIBRARY = os.environ["THINWIRE_LIBRARY"] = sys.argv.pop(1)
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "python/src")]
import step_bytes  # noqa: E402


class StepBytesTest(unittest.TestCase):
    def test_models_have_the_parameters_that_were_published(self):
        for title, shapes, published in step_bytes.MODELS.values():
            self.assertEqual(step_bytes.elements(shapes), published, title)

    def test_shapes_one_by_one_send_what_the_model_sends(self):
        shapes = step_bytes.gpt2(layers=2, width=64, words=512, context=32)
        for spec in step_bytes.SPECS:
            for workers in (2, 4):
                together = step_bytes.bytes_together(spec, shapes, workers)
                one_by_one = step_bytes.bytes_per_step(spec, shapes, workers, large=64 * 64)
                self.assertLess(abs(one_by_one - together), 0.02 * together, (spec, workers))

    def test_a_dense_ring_sends_what_the_textbook_says(self):
        shapes = [(512, 256)] * 3
        for spec, size in (("allreduce", 4), ("bf16", 2)):
            for workers in (2, 4):
                wanted = 2 * (workers - 1) / workers * size * step_bytes.elements(shapes)
                self.assertAlmostEqual(step_bytes.bytes_together(spec, shapes, workers) / wanted, 1, delta=0.01)

    def test_the_page_has_the_rows(self):
        page = (ROOT / "docs/home-network.md").read_text().splitlines()
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "figures.json")
            printed = subprocess.check_output([sys.executable, "-B", ROOT / "bench/step_bytes.py", "--library", LIBRARY, "--models",
                                               "gpt2-lora", "--json", path], text=True)
            found = json.loads(path.read_text())
        for line in printed.splitlines():
            self.assertIn(line, page)
        kept = json.loads((ROOT / "docs/figures/step-bytes.json").read_text())
        self.assertEqual((found["whole"], found["adapters"]), ([], kept["adapters"][:len(step_bytes.SPECS)]))
        self.assertEqual(found["made"]["command"], f"bench/step_bytes.py --library {LIBRARY} --models gpt2-lora --json {path}")


if __name__ == "__main__":
    unittest.main()
