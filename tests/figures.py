#!/usr/bin/env python3
"""The tables of the documents are what their JSON makes of them; and tools/figures notices where they are not."""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = """Before.

<!-- figures {path} tasks.rows
| name | loss | half |
|---|---:|---:|
| `{{name}}` | {{loss[mean]:.2f}} | {{half:+.1f}} | -->
<!-- end of figures -->
<!-- figures {path} *
Made at {{made[commit]}}, of {{steps}} steps. -->
<!-- end of figures -->
After.
"""
TABLE = """
| name | loss | half |
|---|---:|---:|
| `one` | 1.50 | +0.2 |
| `two` | 2.25 |  |

<!-- end of figures -->"""


class FiguresTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.data, self.page = (pathlib.Path(self.folder.name) / name for name in ("data.json", "page.md"))
        self.rows = [{"name": "one", "loss": {"mean": 1.5}, "half": 0.2}, {"name": "two", "loss": {"mean": 2.25}, "half": None}]
        self.write()
        self.page.write_text(PAGE.format(path=self.data))

    def write(self):
        self.data.write_text(json.dumps({"made": {"commit": "abc"}, "steps": 7, "tasks": {"rows": self.rows}}))

    def figures(self, *words):
        return subprocess.run([sys.executable, "-B", ROOT / "tools" / "figures", *words], capture_output=True, text=True, check=False)

    def test_the_documents_are_what_their_figures_make_of_them(self):
        done = self.figures("--check")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))

    def test_a_page_is_made_and_stays_as_it_is(self):
        self.assertEqual(self.figures("--check", self.page).returncode, 1)
        self.assertEqual(self.figures(self.page).returncode, 0)
        text = self.page.read_text()
        self.assertIn(TABLE, text)
        self.assertIn("\nMade at abc, of 7 steps.\n", text)
        self.assertTrue(text.startswith("Before.") and text.endswith("After.\n"))
        self.assertEqual(self.figures("--check", self.page).returncode, 0)

    def test_where_page_and_json_part_it_is_noticed(self):
        self.figures(self.page)
        right = self.page.read_text()
        self.page.write_text(right.replace("1.50", "1.40"))
        self.assertIn(str(self.page), self.figures("--check", self.page).stdout)
        self.page.write_text(right)
        self.rows[0]["loss"]["mean"] = 1.6
        self.write()
        self.assertEqual(self.figures("--check", self.page).returncode, 1)

    def test_a_text_is_a_form_of_its_entry(self):
        self.rows[0]["name"] = "{half:.2f} of {loss[mean]}"
        self.write()
        self.figures(self.page)
        self.assertIn("| `0.20 of 1.5` | 1.50 | +0.2 |", self.page.read_text())
        self.rows[0]["name"] = "{name}"
        self.write()
        done = self.figures(self.page)
        self.assertEqual((done.returncode, "Traceback" in done.stderr), (1, False), done.stderr)

    def test_what_cannot_be_made(self):
        right = self.page.read_text()
        for wrong, words in ((right.replace("end of figures", "end"), "marker"), (right.replace("tasks.rows", "tasks.none"), "none"),
                             (right.replace("{loss[mean]", "{lost[mean]"), "lost"), (right.replace("data.json", "no.json"), "no.json"),
                             (right.replace("{loss[mean]", "{loss.real"), "real")):
            self.page.write_text(wrong)
            done = self.figures(self.page)
            self.assertNotIn(done.returncode, (0, None), words)
            self.assertIn(words, done.stderr)
            self.assertNotIn("Traceback", done.stderr)
        done = self.figures(self.page.with_name("none.md"))
        self.assertEqual(done.returncode, 1)
        self.assertIn("none.md cannot be read", done.stderr)


if __name__ == "__main__":
    unittest.main()
