#!/usr/bin/env python3
"""The file of a level exports one table and nothing else, and nothing in it runs by itself when the library is loaded:
so none of its functions, whose instructions this processor may lack, can be reached but through the table.

`objects.py NM OBJDUMP OBJECT...`: the objects of src/kernels."""
import pathlib
import subprocess
import sys
import unittest

NM, OBJDUMP, *OBJECTS = sys.argv[1:]
LEVELS = {path.name.split(".")[0]: path for path in map(pathlib.Path, OBJECTS)
          if not path.name.startswith(("scalar", "dispatch", "fold"))}
RUN_BY_THE_LOADER = (".init", ".preinit_array", ".init_array", ".ctors", ".fini", ".dtors")


def lines(*command):
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [line.split() for line in done.stdout.splitlines()]


class ObjectsTest(unittest.TestCase):
    def test_a_level_exports_its_table_alone(self):
        for level, path in LEVELS.items():
            exported = [(kind, name) for _, kind, name in lines(NM, "--defined-only", "--extern-only", path)]
            self.assertEqual([name for _, name in exported], [f"tw_kernels_{level}"])
            self.assertIn(exported[0][0], "DR", "constant data, filled by the linker")

    def test_nothing_of_a_level_runs_by_itself(self):
        for level, path in LEVELS.items():
            sections = [words[1] for words in lines(OBJDUMP, "-h", path) if words and words[0].isdigit()]
            self.assertIn(".text", " ".join(sections), "the list of sections was read")
            self.assertEqual([name for name in sections if name.startswith(RUN_BY_THE_LOADER)], [], level)
            chosen_by_the_loader = [words[2] for words in lines(NM, path) if len(words) == 3 and words[1] == "i"]
            self.assertEqual(chosen_by_the_loader, [], level)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
