#!/usr/bin/env python3
"""The tables of the documents are what their JSON makes of them; and tools/figures notices where they are not."""
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = """Before.

<!-- figures {path} tasks.rows | `{{name}}` | {{loss[mean]:.2f}} | {{half:+.1f}} | -->
| name | loss | half |
|---|---:|---:|

<!-- figures {path} * Made at {{made[commit]}}, of {{steps}} steps. -->

After.
"""
TABLE = """
| name | loss | half |
|---|---:|---:|
| `one` | 1.50 | +0.2 |
| `two` | 2.25 |  |

"""
OTHERS = {  # tables of numbers that nobody has measured, by how they begin: what is derived, promised or counted out by hand
    "docs/language.md": ["| `--model` | layers x cells"],
    "docs/schemes.md": ["| `values` | bits |", "| steps | density |", "| | `fp32` | `bf16` |"],
    "docs/training.md": ["| density | index bits"],
    "docs/wire-format.md": ["| *v* |", "| *g* |"],
}


def pages():
    return [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md"))]


def tables_of(text):
    """What stands before a table, its head and its rows, each of which is a list of cells."""
    for before, head, rows in re.findall(r"^(.*)\n(\|.*)\n\|[-:| ]+\n((?:\|.*\n)*)", text, re.M):
        yield before, head, [re.split(r" *(?<!\\)\| *", row)[1:-1] for row in rows.splitlines()]


def has_figures(head, rows):
    """Half of the cells behind the first are numbers; or the table has the figures and the commands that measure them."""
    cells = [cell for row in rows for cell in row[1:] if cell]
    numbers = sum(bool(re.match(r"[*`+-]*\d", cell)) for cell in cells)
    return re.search(r"\| (?:the )?command \|$", head) or ("default" not in head and 2 * numbers >= len(cells) > 0)


def without_form(text):
    return " ".join(text.replace("\\\n", " ").split())


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
        self.assertIn(" -->\nMade at abc, of 7 steps.\n\nAfter.", text)
        self.assertTrue(text.startswith("Before.") and text.endswith("After.\n"))
        self.assertEqual(self.figures("--check", self.page).returncode, 0)

    def test_a_table_may_end_a_page(self):
        self.figures(self.page)
        text = self.page.read_text()
        table = text[text.index("<!--"):text.index("\n\n", text.index("| `two`"))]
        self.page.write_text(table)
        self.assertEqual(self.figures(self.page).returncode, 0)
        self.assertEqual(self.page.read_text(), table + "\n")

    def test_where_page_and_json_part_it_is_noticed(self):
        self.figures(self.page)
        right = self.page.read_text()
        self.page.write_text(right.replace("1.50", "1.40"))
        self.assertIn(str(self.page), self.figures("--check", self.page).stdout)
        self.page.write_text(right)
        self.rows[0]["loss"]["mean"] = 1.6
        self.write()
        self.assertEqual(self.figures("--check", self.page).returncode, 1)

    def test_no_table_of_figures_is_made_by_hand(self):
        for page in pages():
            name = str(page.relative_to(ROOT))
            for before, head, rows in tables_of(page.read_text()):
                if not before.startswith("<!-- figures ") and not any(map(head.startswith, OTHERS.get(name, []))):
                    self.assertFalse(has_figures(head, rows), f"{name}: the table {head} is made of no JSON; see tools/figures --help")

    def test_what_figures_made_by_hand_look_like(self):
        found = [bool(has_figures(head, rows)) for _, head, rows in tables_of("""
| sync | accuracy |
|---|---:|
| `dgc` | **91.1** ± 0.2 |

| option | default | |
|---|---|---|
| `every` | 30 | steps |

| what | figure | command |
|---|---|---|
| ResNet | as fast | `bench/train.py` |

| scheme | take it |
|---|---|
| `dgc` | 100 Mbit/s |
| `bf16` | first |
| `fp8` | for half of it |
""")]
        self.assertEqual(found, [True, False, True, False])

    def test_the_command_of_copied_figures_stands_on_their_page(self):
        files = sorted(ROOT.glob("docs/figures/*.json"))
        tables = [table for file in files for table in json.loads(file.read_text()).values() if isinstance(table, dict) and "rows" in table]
        copied = [table for table in tables if "copied" in table["made"]]
        self.assertTrue(copied)
        for table in copied:
            made = table["made"]
            self.assertTrue(made["commit"] and made["date"], made)
            self.assertTrue(made["commands"] or "by" in made or all("command" in row for row in table["rows"]), made)
            text = without_form((ROOT / made["copied"]).read_text())
            for command in made["commands"]:
                self.assertIn(without_form(command), text, made["copied"])

    def test_every_table_says_by_what_it_was_made(self):
        markers = sorted({found for page in pages() for found in re.findall(r"^<!-- figures (\S+ \S+) ", page.read_text(), re.M)})
        self.page.write_text("".join(f"<!-- figures {marker} by {{made}} -->\n\n" for marker in markers))
        self.assertEqual(self.figures(self.page).returncode, 0)
        said = re.findall(r"^<!-- figures (\S+ \S+) .*\nby (.*)", self.page.read_text(), re.M)
        self.assertEqual([(marker, bool(by)) for marker, by in said], [(marker, True) for marker in markers])

    def test_the_nearest_made_counts(self):
        """That of the entry, then that of its table, then that of the file."""
        self.page.write_text(f"<!-- figures {self.data} tasks.rows {{made[commit]}} -->\n")
        for place, commit in ((None, "abc"), ("tasks", "def"), ("rows", "ghi")):
            if place == "rows":
                self.rows[0]["made"] = {"commit": commit}
            self.data.write_text(json.dumps({"made": {"commit": "abc"}, "tasks": {"rows": self.rows[:1], **(
                {} if place is None else {"made": {"commit": "def"}})}}))
            self.figures(self.page)
            self.assertEqual(self.page.read_text().splitlines()[1], commit)

    def test_a_text_is_a_form_of_its_entry(self):
        self.rows[0]["name"] = "{half:.2f} of {loss[mean]}"
        self.write()
        self.figures(self.page)
        self.assertIn("| `0.20 of 1.5` | 1.50 | +0.2 |", self.page.read_text())
        self.rows[0]["name"] = "{name}"
        self.write()
        done = self.figures(self.page)
        self.assertEqual((done.returncode, "Traceback" in done.stderr), (1, False), done.stderr)

    def test_a_figure_may_be_anothers(self):
        other = self.page.with_name("other.json")
        other.write_text(json.dumps({"arms": [{"name": "dense", "loss": 3}, {"name": "dgc:density=0.1", "loss": 4.5}]}))
        self.rows[0]["half"] = {"in": str(other), "at": ["arms", "dgc:density=0.1", "loss"]}
        self.write()
        self.figures(self.page)
        self.assertIn("| `one` | 1.50 | +4.5 |", self.page.read_text())
        self.rows[0]["half"]["at"][1] = "dgc"
        self.write()
        done = self.figures(self.page)
        self.assertEqual((done.returncode, "Traceback" in done.stderr), (1, False), done.stderr)

    def test_what_cannot_be_made(self):
        right = self.page.read_text()
        for wrong, words in ((right.replace(" | -->", " |"), "marker"), (right.replace("|---|---:|---:|\n", ""), "head"),
                             (right.replace("steps. -->", "steps. -->\n| a |\n|---|"), "that of a line"), (right.replace("tasks.rows", "tasks.none"), "none"),
                             (right.replace("{loss[mean]", "{lost[mean]"), "lost"), (right.replace("data.json", "no.json"), "no.json"),
                             (right.replace("{loss[mean]", "{loss.real"), "real")):
            self.page.write_text(wrong)
            done = self.figures(self.page)
            self.assertNotIn(done.returncode, (0, None), words)
            self.assertIn(words, done.stderr)
            self.assertNotIn("Traceback", done.stderr)
        self.page.write_text(right)
        for key, value, words in (("name", "of two\n\nlines", "several lines"), ("half", 10 ** 400, "OverflowError")):
            self.rows[0][key] = value
            self.write()
            done = self.figures(self.page)
            self.assertEqual(done.returncode, 1, words)
            self.assertIn(words, done.stderr)
            self.assertNotIn("Traceback", done.stderr)
        done = self.figures(self.page.with_name("none.md"))
        self.assertEqual(done.returncode, 1)
        self.assertIn("none.md cannot be read", done.stderr)


if __name__ == "__main__":
    unittest.main()
