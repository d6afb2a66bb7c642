#!/usr/bin/env python3
"""A type checker knows what the package takes and gives: mypy, of this Python or on the path."""

import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

import page
import ranks

OPTIONS = """
[mypy]
mypy_path = {sources}
follow_imports = silent
check_untyped_defs = true
[mypy-thinwire.*]
disallow_untyped_defs = true
[mypy-torch.*,transformers.*,lightning.*]
follow_imports = skip
ignore_missing_imports = true
"""  # each version of torch has other types
WRONG = {  # line by line, what is wrong, and a part of what mypy says
    'thinwire.Comm.threads("two")': 'has incompatible type "str"; expected "int"',
    "thinwire.Comn": 'has no attribute "Comn"',
    'comm.rank + "th"': "Unsupported operand types",
    'thinwire.Reducer(comm, "topk", [("weight", (8, 32))], density=0.1)': 'Unexpected keyword argument "density"',
    "thinwire.torch.attach(ddp)": 'Missing positional argument "spec"',
    'thinwire.torch.attach(ddp, "topk", timeout="a minute")': 'expected "float"',
    'thinwire.torch.attach(ddp, "topk").sumary()': 'has no attribute "sumary"',
}
BEGIN = """import torch
import thinwire.torch
comm, = thinwire.Comm.threads(1)
ddp = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1))
"""


def mypy():
    """The words that start it, or None."""
    if importlib.util.find_spec("mypy"):
        return [sys.executable, "-m", "mypy"]
    program = shutil.which("mypy")
    return [program] if program else None


class TypesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        """Of the package and of both programs at once: to find out of the package what it has takes nearly all of the time."""
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder)
            (path / "mypy.ini").write_text(OPTIONS.format(sources=ranks.SOURCES))
            (path / "of_the_page.py").write_text(page.program())
            (path / "wrong.py").write_text(BEGIN + "\n".join(WRONG) + "\n")
            done = subprocess.run([*mypy(), "--cache-dir", os.devnull, "--no-error-summary", "of_the_page.py", "wrong.py",
                                   ranks.SOURCES / "thinwire"],
                                  cwd=path, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=ranks.SECONDS)
        cls.said = done.stdout.splitlines()

    def test_the_package_and_the_program_of_the_page_have_no_fault(self):
        self.assertEqual([text for text in self.said if not text.startswith("wrong.py:") and ": note:" not in text], [])

    def test_faults_are_told(self):
        said = [text for text in self.said if text.startswith("wrong.py:")]
        for number, (line, part) in enumerate(WRONG.items(), BEGIN.count("\n") + 1):
            with self.subTest(line):
                self.assertTrue([text for text in said if text.startswith(f"wrong.py:{number}:") and part in text], said)
        self.assertEqual(len([text for text in said if ": error:" in text]), len(WRONG), said)


if __name__ == "__main__":
    if mypy() is None:
        print("skipped: there is no mypy here (Debian's package mypy, or pip install mypy)")
        sys.exit(77)
    unittest.main()
