#!/usr/bin/env python3
"""tools/run-tests: what make test runs, what its last lines say, and how it ends. The tests it is given are made here. And
the two parts of a suite."""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parent / "support"))
import parts  # noqa: E402

TOOL = pathlib.Path(__file__).resolve().parent.parent / "tools" / "run-tests"
TESTS = """
add_test(quick sh -c "echo ran >>quick")
set_tests_properties(quick PROPERTIES LABELS fast)
add_test(long sh -c "echo ran >>long")
set_tests_properties(long PROPERTIES LABELS "slow;cli")
add_test(some sh -c "echo ran >>some")
set_tests_properties(some PROPERTIES LABELS "fast;part")
add_test(again sh -c "echo ran >>again")
set_tests_properties(again PROPERTIES LABELS "mpi;extra")
add_test(without sh -c "echo 'skipped: there is no torch here'; exit 77")
set_tests_properties(without PROPERTIES LABELS fast SKIP_RETURN_CODE 77)
add_test(frameworks sh -c "echo 'skipped: there is no transformers here, or no torch'; exit 77")
set_tests_properties(frameworks PROPERTIES LABELS fast SKIP_RETURN_CODE 77)
add_test(python_some sh -c "seq 1000; echo 'OK (skipped=3)'")
set_tests_properties(python_some PROPERTIES LABELS fast)
add_test(lists ctest --show-only=json-v1)
set_tests_properties(lists PROPERTIES LABELS fast DEPENDS without)
"""
FAILS = """
add_test(broken sh -c "exit 1")
"""


class RunTests(unittest.TestCase):
    def run_in(self, tests, *which):
        """The code, the lines below ctest's own, and the tests that left a file."""
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            (folder / "CTestTestfile.cmake").write_text(tests)
            done = subprocess.run([TOOL, folder, "2", *which], stdout=subprocess.PIPE, text=True, check=False)
            ran = {test for test in ("quick", "some", "long", "again") if (folder / test).exists()}
        lines = done.stdout.splitlines()
        said = [line for line in lines if line.startswith(("left out: ", "skipped: ", "make test-all"))]
        self.assertEqual(said, lines[len(lines) - len(said):])
        return done.returncode, said, ran

    def test_what_is_left_out_is_told(self):
        code, said, ran = self.run_in(TESTS)
        self.assertEqual((code, ran), (0, {"quick", "some"}))
        self.assertEqual([line.rpartition(": ")[0] for line in said[:2]],
                         [f"left out: 1 with the label {label}" for label in ("slow", "extra")])
        self.assertEqual(said[2], "make test-all runs them all")
        self.assertCountEqual(said[3:], [
            "skipped: 1 test: there is no torch here; make test-python installs it and runs them",
            "skipped: 1 test: there is no transformers here, or no torch; make test-torch2 installs it and runs them",
            "skipped: cases of python_some (3): this machine lacks what they need; make test-torch2 has what those of python_ need"])

    def test_all_leaves_out_what_others_make_too(self):
        code, said, ran = self.run_in(TESTS, "all")
        self.assertEqual((code, ran), (0, {"quick", "long", "again"}))
        self.assertEqual([line.split(":")[0] for line in said], 3 * ["skipped"])

    def test_a_failure_is_its_own(self):
        self.assertNotEqual(self.run_in(TESTS + FAILS)[0], 0)


class PartsTest(unittest.TestCase):
    def cases(self, part):
        class Some(unittest.TestCase):
            def test_usual(self):
                pass

            @parts.extra
            def test_long(self):
                pass

        @parts.extra
        class Whole(Some):
            pass

        with mock.patch.dict(os.environ, TEST_PART=part):
            return [parts.Loader().getTestCaseNames(case) for case in (Some, Whole)]

    def test_two_parts_are_the_whole(self):
        both = ["test_long", "test_usual"]
        self.assertEqual(self.cases("all"), [both, both])
        self.assertEqual(self.cases("most"), [["test_usual"], []])
        self.assertEqual(self.cases("extra"), [["test_long"], both])


if __name__ == "__main__":
    unittest.main()
