#!/usr/bin/env python3
"""The examples for programs that meet at an address: both machines end with one hash, and have data of their own.

    test_joined.py NAME

runs examples/pytorch/joined_NAME.py, which is skipped where its framework is not installed."""

import pathlib
import re
import sys
import tempfile
import unittest

import launched
import models  # noqa: F401: skips it where there is no torch
import ranks

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples" / "pytorch"
SMALL = {"trainer": ["--steps", "24"], "lightning": ["--epochs", "1"], "accelerate": ["--steps", "40"]}


class JoinedTest(unittest.TestCase):
    def test_two_machines_end_with_one_hash(self):
        with tempfile.TemporaryDirectory() as folder:
            words = [sys.executable, "-B", EXAMPLES / f"joined_{NAME}.py", "--join", f"127.0.0.1:{ranks.free_port()}", "--workers", "2",
                     *SMALL[NAME], *(["--out", folder] if NAME == "trainer" else [])]
            codes, wrote = launched.ends_of([[*words, "--machine", machine] for machine in range(2)],
                                            env=launched.environment(THINWIRE_BIND="127.0.0.1"))
        said = [out for out, _ in wrote]
        self.assertEqual(codes, [0, 0], "\n".join(said))
        ends = [re.search(r"^thinwire local:every=16: (\d+) steps, (\d+) rounds, .* with weights (\w{8})$", text, re.M).groups() for text in said]
        self.assertEqual(ends[0], ends[1])
        self.assertGreaterEqual(int(ends[0][1]), 2)
        for text in said:
            self.assertNotIn("has had the first batch", text)


if __name__ == "__main__":
    NAME = sys.argv.pop(1)
    launched.skip_without({"trainer": "transformers"}.get(NAME, NAME))
    unittest.main()
