"""thinwire report: what is on the page is what the runs have written, and its curves are named and told apart."""
import html.parser
import json
import os
import re
import shutil
import unittest

from support import CommandLineTest, run_tests

import picture


class Page(html.parser.HTMLParser):
    """The rows of all tables, cell by cell, and the picture."""
    def __init__(self, text):
        super().__init__()
        self.rows, self.text, self.in_cell = [], "", False
        self.feed(text)
        svg = re.search(r"<svg.*?</svg>", text, re.DOTALL)
        self.picture = picture.Picture(svg[0]) if svg else None

    def handle_starttag(self, tag, attributes):
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
            self.in_cell = True

    def handle_endtag(self, tag):
        if tag in ("td", "th", "tr", "table"):
            self.in_cell = False

    def handle_data(self, data):
        self.text += data
        if self.in_cell:
            self.rows[-1][-1] += data.strip()

    def row(self, name, table=0):
        """That of a run; table 0 has its figures, table 1 its times."""
        return [row for row in self.rows if row and row[0] == name][table]


class ReportTest(CommandLineTest):
    def write_run(self, name, losses, accuracies, ended=True, metric="accuracy", data="/data/photographs"):
        """As thinwire train would have left it: ten steps a line, an evaluation every 50 steps."""
        run = self.folder / name
        run.mkdir(parents=True)
        start = {"kind": "start", "workers": 4, "parameters": 1234, "data": data,
                 "metric": {"name": metric, "percent": metric != "gain"}, "configuration": {"sync": "dgc"},
                 "tensors": [{"name": "conv.weight", "elements": 1200, "plan": "dgc: a thousandth"},
                             {"name": "<b>bias</b>", "elements": 34, "plan": "dense"}]}
        lines = [start]
        for i, loss in enumerate(losses):
            step = 10 * (i + 1)
            about = {"step": step, "epoch": step / 50, "seconds": step / 5, "bytes_sent": 1000 * step}
            lines.append({"kind": "step", **about, "loss": loss, "lr": 0.1})
            if step % 50 == 0:
                lines.append({"kind": "epoch", **about, "train_loss": loss, "test_loss": 2 * loss,
                              metric: accuracies[step // 50 - 1]})
        (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        if ended:
            (run / "summary.json").write_text(json.dumps({
                "bytes": {"sent": 2.5e6}, "ratio": {"message": 2065, "traffic": 318}, "samples_per_second": 77,
                "seconds": {"wall": 21.5, "training": 20, "compute": 12, "wait": 5, "codec": 3}}))
        return run

    def page(self, *runs):
        out = self.folder / "page.html"
        self.succeed("report", *runs, "--out", out)
        return Page(out.read_text())

    def test_what_is_on_the_page_is_what_the_runs_wrote(self):
        run = self.write_run("one", [2.0, 1.5, 1.0, 0.5, 0.25], [0.9182])
        page = self.page(run)
        self.assertEqual(page.row("one"), ["one", "dgc", "4", "1234", "50", "91.82 %", "0.5", "2.50 MB", "2065", "318",
                                           "21.5", "77"])
        self.assertEqual(page.row("one", 1)[:5], ["one", "20.0", "12.0", "5.0", "3.0"])
        self.assertEqual(page.row("conv.weight"), ["conv.weight", "1200", "dgc: a thousandth"])
        self.assertEqual(page.row("<b>bias</b>"), ["<b>bias</b>", "34", "dense"])
        self.assertIn("/data/photographs", page.text)

    def test_other_figures_of_merit_and_other_data_are_told_apart(self):
        losses = [2.0, 1.5, 1.0, 0.6, 0.5, 0.4, 0.3, 0.3, 0.2, 0.1]
        runs = [self.write_run("spoken", losses, [0.3, 0.19], ended=False, metric="wer", data="/data/speech"),
                self.write_run("seen", losses, [0.4, 0.4583], ended=False),
                self.write_run("seen again", losses, [0.5, 0.5], ended=False),
                self.write_run("heard", losses, [-0.1, -0.04], ended=False, metric="gain", data="/data/sounds")]
        page = self.page(*runs)
        self.assertIn("metric", page.row("run"))
        self.assertEqual([page.row(run.name)[5] for run in runs],
                         ["wer 19.00 %", "accuracy 45.83 %", "accuracy 50.00 %", "gain -0.04"])
        for run, data in zip(runs, ("speech", "photographs", "photographs", "sounds")):
            self.assertIn(f"Data of {run.name}: /data/{data}\n", page.text)
        if page.picture:
            self.assertEqual(picture.problems(page.picture), [])
            words = [text.words for text in page.picture.texts]
            self.assertEqual([words.count(f"{metric} on test data") for metric in ("wer", "accuracy", "gain")], [1, 1, 1])
            self.assertEqual(len(page.picture.curves), 4 + 3 * 4)
        page = self.page(*runs[1:3])
        self.assertIn("accuracy", page.row("run"))
        self.assertIn("Data: /data/photographs\n", page.text)

    def test_what_was_measured_on_other_data_has_curves_of_its_own(self):
        runs = [self.write_run(name, 10 * [1.0], [0.4, 0.5], ended=False) for name in ("tested", "validated")]
        lines = (runs[1] / "metrics.jsonl").read_text()
        (runs[1] / "metrics.jsonl").write_text(lines.replace("test_loss", "validation_loss"))
        page = self.page(*runs)
        self.assertEqual([page.row(run.name)[5] for run in runs], ["50.00 %", "50.00 %"])
        if page.picture:
            words = [text.words for text in page.picture.texts]
            self.assertEqual([words.count(f"accuracy on {split} data") for split in ("test", "validation")], [1, 1])
            self.assertEqual(len(page.picture.curves), 2 + 3 * 2)

    def test_runs_are_named_by_what_tells_them_apart(self):
        runs = [self.write_run(name, [2.0], []) for name in ("a/run", "b/run", "other")]
        link = self.folder / "latest"
        link.symlink_to("a/run")
        first = [row[0] for row in self.page(*runs, link, runs[0], f"{runs[2]}/.").rows[1:5]]
        self.assertEqual(first, ["a/run", "b/run", "other", "latest"])
        hidden = link.rename(self.folder / "..latest")
        self.assertEqual(self.page(hidden).rows[1][0], "..latest")
        out = self.folder / "page.html"
        self.complete("report", ".", "../../other/", "--out", out, cwd=runs[1])
        rows = Page(out.read_text()).rows
        self.assertEqual([row[0] for row in rows[1:4]], ["run", "other", "run"])  # the third is the head of the times

    def test_a_run_is_judged_by_the_weights_it_has_chosen(self):
        run = self.write_run("one", [2.0, 1.5, 1.0, 0.5, 0.25], [0.9182])
        summary = json.loads((run / "summary.json").read_text())
        (run / "summary.json").write_text(json.dumps({**summary, "metric": {"name": "accuracy", "value": 0.95}, "loss": 0.375}))
        self.assertEqual(self.page(run).row("one")[5:7], ["95.00 %", "0.375"])

    def test_steps_behind_the_last_line_count(self):
        run = self.write_run("one", [2.0, 1.5], [])
        summary = json.loads((run / "summary.json").read_text())
        (run / "summary.json").write_text(json.dumps({**summary, "steps": 25}))
        self.assertEqual(self.page(run).row("one")[4], "25")

    def test_the_test_at_the_end_is_no_point_of_the_validation(self):
        run = self.write_run("one", [2.0, 1.5, 1.0, 0.5, 0.25], [0.9182], ended=False)
        text = (run / "metrics.jsonl").read_text()
        last = json.loads(text.splitlines()[-1])
        (run / "metrics.jsonl").write_text(text.replace("test_loss", "validation_loss") +
                                           json.dumps({**last, "accuracy": 0.1, "test_loss": 9}) + "\n")
        page = self.page(run)
        self.assertEqual(page.row("one")[5:7], ["91.82 %", "0.5"])
        self.assertIn("accuracy on validation data", [text.words for text in page.picture.texts])

    def test_a_run_that_has_not_ended(self):
        page = self.page(self.write_run("going", [2.0, 1.5], [], ended=False))
        self.assertEqual(page.row("going")[4:], ["20"] + 7 * ["-"])

    def test_a_run_that_goes_on_behind_its_end_has_not_ended(self):
        """Of 40 steps it is summed up, 0.8 of an epoch, and 50 it has taken."""
        run = self.write_run("one", [2.0, 1.5, 1.0, 0.5, 0.25], [0.9182])
        summary = json.loads((run / "summary.json").read_text())
        for epochs, figures in ((1, ["2.50 MB", "2065", "318", "21.5", "77"]), (0.8, 5 * ["-"])):
            (run / "summary.json").write_text(json.dumps({**summary, "steps": 50 * epochs, "epochs": epochs}))
            page = self.page(run)
            self.assertEqual(page.row("one")[4:5] + page.row("one")[7:], ["50", *figures])
            self.assertEqual(sum(row[:1] == ["one"] for row in page.rows), 1 + (epochs == 1))

    def test_steps_that_were_taken_again_count_once(self):
        run = self.write_run("again", [2.0, 1.5, 9.0, 9.0, 9.0], [0.1], ended=False)
        more = self.write_run("more", [2.0, 1.5, 1.0, 0.8, 0.6], [0.7], ended=False)
        with open(run / "metrics.jsonl", "a") as lines:
            for line in (more / "metrics.jsonl").read_text().splitlines():
                if json.loads(line).get("step", 0) > 20:
                    lines.write(line + "\n")
            lines.write('{"kind": "step", "step": 60, "lo')  # it is being written
        row = self.page(run).row("again")
        self.assertEqual(row[4:7], ["50", "70.00 %", "1.2"])

    @unittest.skipUnless(shutil.which("gnuplot"), "needs gnuplot")
    def test_curves_are_named_where_they_end(self):
        runs = [self.write_run(f"run {i}", [2.0, 1.5, 1.0, 0.6, 0.5], [0.9 + i / 1000], ended=False) for i in range(6)]
        seen = self.page(*runs).picture
        self.assertEqual(picture.problems(seen), [])
        for i in range(6):
            mine = [name for name in seen.names() if name.words.startswith(f"run {i} ")]
            self.assertEqual(len(mine), 4, seen.names())  # one in each panel
            self.assertEqual(len({name.colour for name in mine}), 1)
            self.assertIn(f"run {i}  {90 + i / 10:.2f} %", [name.words for name in mine])
        self.assertEqual(len({name.colour for name in seen.names()}), 6)
        self.assertEqual(len(seen.curves), 3 * 6)  # of the first panel each run has one point

    def test_many_runs(self):
        """As many as a comparison of all that there is has."""
        page = self.page(*[self.write_run(f"run {i}", [2.0, 1.8, 1.6, 1.4, 1.0 + i / 100], [0.5 + i / 100]) for i in range(40)])
        self.assertEqual([page.row(f"run {i}")[5] for i in (0, 39)], ["50.00 %", "89.00 %"])
        if shutil.which("gnuplot"):  # more curves could not be told apart
            self.assertEqual(picture.problems(page.picture), [])
            self.assertEqual(len(page.picture.curves), 3 * 16)
            self.assertIn("The curves are those of the first 16 runs.", (self.folder / "page.html").read_text())

    @unittest.skipUnless(shutil.which("gnuplot"), "needs gnuplot")
    def test_equal_curves_and_large_numbers_are_seen(self):
        runs = [self.write_run(f"run {i}", [2.0, 1.5, 1.0, 0.6], [], ended=False) for i in range(3)]
        for i, run in enumerate(runs):
            lines = (run / "metrics.jsonl").read_text()
            (run / "metrics.jsonl").write_text(re.sub(r'"bytes_sent": (\d+)', r'"bytes_sent": \g<1>00000000', lines))
        seen = self.page(*runs).picture
        self.assertEqual(picture.problems(seen), [])
        self.assertEqual(len(seen.curves), 9)
        self.assertIn("1M", [text.words for text in seen.texts])

    @unittest.skipUnless(shutil.which("gnuplot"), "needs gnuplot")
    def test_long_names_leave_room_and_odd_ones_draw_nothing(self):
        long = ["speech-in-Prague-" + 20 * "ř" + str(i) for i in range(2)]
        page = self.page(*[self.write_run(name, [2.0, 1.5], [], ended=False) for name in [*long, "a\n1 2\n3 4\n"]])
        self.assertEqual(picture.problems(page.picture), [])
        for i in range(2):
            mine = [name for name in page.picture.names() if re.match(fr"speech-in-\.\.\.ř+{i}  ", name.words)]
            self.assertEqual(len(mine), 3, page.picture.names())  # one in each panel of losses
        self.assertEqual([text for text in page.picture.texts if "nan" in text.words], [])
        self.assertEqual([name for name in page.text.splitlines() if "gnuplot" in name], [])

    def test_without_gnuplot_there_are_the_figures(self):
        run, out = self.write_run("one", [2.0, 1.0], []), self.folder / "page.html"
        done = self.run_program("report", run, "--out", out, env={"PATH": "/nowhere"})
        self.assertEqual(done.returncode, 0)
        self.assertIn("gnuplot is not installed", done.stderr)
        self.assertIn("gnuplot is not installed", Page(out.read_text()).text)

    def test_a_page_takes_the_place_of_a_page_only(self):
        run, out = self.write_run("one", [2.0, 1.0], []), self.folder / "page.html"
        for _ in range(2):
            self.page(run)
        self.assertEqual([path.name for path in self.folder.glob("page*")], ["page.html"])
        journal = run / "metrics.jsonl"
        before = journal.read_text()
        self.refuse(2, [journal, "no page", "another file"], "report", run, "--out", journal)
        self.assertEqual(journal.read_text(), before)
        out.unlink()
        os.mkfifo(out)
        self.refuse(2, [out, "not a regular file"], "report", run, "--out", out)

    def test_what_is_no_run_is_refused(self):
        out = self.folder / "page.html"
        self.refuse(2, ["no folder of a run", self.folder], "report", self.folder, "--out", out)
        self.refuse(2, ["nothing: No such file or directory"], "report", self.folder / "nothing", "--out", out)
        run = self.write_run("one", [2.0], [])
        with open(run / "metrics.jsonl", "a") as lines:
            lines.write("half a li\n")
        self.refuse(2, ["metrics.jsonl:3", "JSON"], "report", run, "--out", out)
        (run / "metrics.jsonl").write_text("")
        self.refuse(2, ["metrics.jsonl", "begun"], "report", run, "--out", out)
        self.refuse(2, ["/nowhere/page.html"], "report", self.write_run("two", [1.0], []), "--out", "/nowhere/page.html")
        self.assertFalse(out.exists())


run_tests()
