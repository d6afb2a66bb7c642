#!/usr/bin/env python3
"""A type checker knows what the package takes and gives: mypy, of this Python or on the path."""

import importlib.util
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
        """What mypy has found out of the package it need not find out again."""
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.cache = pathlib.Path(folder.name)

    def said_of(self, program, *more):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder)
            (path / "mypy.ini").write_text(OPTIONS.format(sources=ranks.SOURCES))
            (path / "program.py").write_text(program)
            done = subprocess.run([*mypy(), "--cache-dir", self.cache, "--no-error-summary", *(more or ["program.py"])],
                                  cwd=path, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=ranks.SECONDS)
        return done.stdout.splitlines()

    def test_the_package_has_no_fault(self):
        self.assertEqual(self.said_of("", "-p", "thinwire"), [])

    def test_the_program_of_the_page_has_no_fault(self):
        self.assertEqual(self.said_of(page.program()), [])

    def test_faults_are_told(self):
        said = self.said_of(BEGIN + "\n".join(WRONG) + "\n")
        for number, (line, part) in enumerate(WRONG.items(), BEGIN.count("\n") + 1):
            with self.subTest(line):
                self.assertTrue([text for text in said if text.startswith(f"program.py:{number}:") and part in text], said)
        self.assertEqual(len([text for text in said if ": error:" in text]), len(WRONG), said)


if __name__ == "__main__":
    if mypy() is None:
        print("skipped: there is no mypy here (Debian's package mypy, or pip install mypy)")
        sys.exit(77)
    unittest.main()
