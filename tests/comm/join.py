#!/usr/bin/env python3
"""Processes that meet at HOST:PORT: `join.py hello_tcp`, the example."""
import pathlib
import subprocess
import sys
import unittest

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
from ports import free_port  # noqa: E402

PROGRAM = sys.argv[1]


def start(host, port, ranks):
    return subprocess.Popen([PROGRAM, f"{host}:{port}", str(ranks)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


class JoinTest(unittest.TestCase):
    def test_four_processes_are_a_group(self):
        for host in ("127.0.0.1", "localhost"):
            port = free_port()
            processes = [start(host, port, 4) for _ in range(4)]
            ended = [process.communicate(timeout=100) for process in processes]
            self.assertEqual(sorted(output for output, _ in ended), [f"rank {r}: weight 1.5\n" for r in range(4)], ended)

    def test_one_is_a_group(self):
        output, errors = start("127.0.0.1", free_port(), 1).communicate(timeout=100)
        self.assertEqual(output, "rank 0: weight 0.0\n", errors)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
