"""thinwire plan, and --sync auto: what they choose, that a run takes it bit for bit, and what they refuse."""
import json
import re
import shlex
import unittest

from support import PROGRAM, CommandLineTest, free_place, needs_mpi, run_tests, under_mpi

SLOW = "100kbit,1ms"
ADAM = ("--optimizer", "adamw", "--batch", 4, "--warmup", 4, "--schedule", "constant", "--epochs", 1000)


class PlanTest(CommandLineTest):
    def plan(self, task, *options):
        words = ["plan", task, "--quiet", "--json", "-", *options]
        return json.loads(self.complete(*words, *(() if task == "none" else ("--data", self.data))).stdout)

    def by_scheme(self, plan):
        return {row["sync"]: row for row in plan["candidates"]}

    def test_of_a_table_of_tensors(self):
        """The answer is a line of PyTorch. Dense and compressed steps are the simulator's own."""
        options = ("--workers", 4, "--link", "4Mbit/1Mbit,10ms", "--step-time", 0.05, "--codec-rate", 5)
        plan = self.plan("none", "--parameters", "100k", "--steps", 2000, "--optimizer", "adamw", *options)
        rows = self.by_scheme(plan)
        self.assertIn("applies momentum", rows["dgc"]["left_out"])
        self.assertNotIn("left_out", rows["qsgd"])
        self.assertIn(plan["choice"], plan["command"])
        self.assertIn("thinwire.torch.", plan["command"])
        self.assertGreater(rows["allreduce"]["step_seconds"], rows[plan["choice"]]["step_seconds"])
        done = self.run_program("simulate", "none", "--parameters", "100k", "--steps", 2, "--quiet", "--json", "-", "--sync",
                                "allreduce;bf16", *options)
        for run in json.loads(done.stdout)["runs"]:
            predicted = rows[run["sync"]]
            self.assertEqual(predicted["step_seconds"], run["step_seconds"])
            self.assertEqual(predicted["bytes_per_worker_step"], run["bytes_per_worker_step"])

    def test_of_a_file_of_shapes(self):
        shapes = self.folder / "shapes"
        text = "fc.weight 100 200\n\nfc.bias 100\nscalar\n"
        words = ("--workers", 2, "--link", "1Mbit,1ms", "--step-time", 0.05, "--steps", 10)
        for lines in (text, text.replace("\n", "\r\n")):
            shapes.write_text(lines, newline="")
            plan = self.plan("none", "--parameters", shapes, *words)
            self.assertEqual(plan["parameters"], 20101)
            self.assertEqual(plan["choice"], "allreduce")  # of so short a run nothing else is known
        for line in ("b 1".ljust(1023) * 1000, "b 1\0"):
            shapes.write_text("a 1\n" + line + "\n")
            self.refuse(2, [shapes, "line 2"], "plan", "none", "--parameters", shapes, *words)

    def test_a_short_run_is_told_what_longer_ones_could_take(self):
        words = ("plan", "none", "--parameters", "100k", "--workers", 4, "--link", "4Mbit,1ms", "--step-time", 0.05, "--codec-rate", 5,
                 "--steps", 500, "--quiet")
        told = self.complete(*words).stdout
        self.assertRegex(told, r"(?m)^fp8 .* not measured in runs of fewer than 1000 steps$")
        self.assertRegex(told, r"(?m)^adpsgd-random .* not measured$|^adpsgd-random is left out")
        self.assertRegex(told, r"(?m)^streaming\S* .* not measured$")
        self.assertIn("--unmeasured (in Python unmeasured=True) takes it all the same.", told)
        told = self.complete(*words, "--unmeasured").stdout
        self.assertNotIn("reach the same loss", told)
        self.assertIn("How many steps it takes to the same loss has not been measured.", told)

    def test_its_last_line_is_a_command_that_runs(self):
        words = ("plan", "image", "--data", self.data, "--workers", 2, "--steps", 3, "--lr", 0.01, "--link", SLOW)
        command = self.complete(*words, "--quiet").stdout.splitlines()[-1]
        self.assertNotIn("--link", command)
        first, *rest = shlex.split(command)
        self.assertEqual(first, "thinwire")
        self.assertEqual(self.run_program(*rest, "--out", "none", "--quiet").returncode, 0)

    @unittest.skipUnless((PROGRAM.parent / "libthinwire_tcp.so").exists(), "needs libthinwire_tcp")
    def test_members_measure_their_line(self):
        """Rank 0 alone has the plan; and a member that never comes is missed."""
        words = ("plan", "image", "--data", self.data, "--step-time", 0.01, "--steps", 3, "--workers", 2, "--join", free_place())
        done = self.complete_all([self.start_program(*words) for _ in range(2)])
        first, = [one for one in done if one.stdout]
        line = re.search(r"the line is (\S+bit,\S+ms)", first.stderr)[1]
        self.assertIn(f"the line {line}", first.stdout)
        self.refuse(3, ["rank"], *words, "--timeout", 1, "--quiet")

    def test_refusals(self):
        image = ("plan", "image", "--data", self.data)
        none = ("plan", "none", "--workers", 2, "--link", SLOW)
        self.refuse(2, ["--link is missing", "--join"], *image, "--workers", 2)
        self.refuse(2, ["--link ten", "RATE,LATENCY"], *image, "--workers", 2, "--link", "ten")
        self.refuse(2, ["--workers 1"], *image, "--link", SLOW, "--step-time", 1, "--steps", 1)
        for workers in ("2x", 129):
            self.refuse(2, [f'"{workers}" is not a whole number from 1 to 128'], *image, "--link", SLOW, "--workers", workers)
        self.refuse(2, ["--parameters 1k", "image"], *image, "--parameters", "1k", "--link", SLOW)
        self.refuse(2, ["--parameters"], *none)
        self.refuse(2, ["none: there is no step", "--step-time"], *none, "--parameters", "1k", "--steps", 9)
        self.refuse(2, ["--parameters 3.5", "whole"], *none, "--parameters", "3.5", "--step-time", 1, "--steps", 9)
        self.refuse(2, ["none: a plan is for a run", "--steps"], *none, "--parameters", "1k", "--step-time", 1)
        for words in (("--link", "100Mbps,1ms"), ("--parameters", "1X"), ("--codec-rate", "1e-300")):  # before what is missing
            self.refuse(2, [f"{words[0]} {words[1]}: want"], *none, "--parameters", "1k", *words)
        self.refuse(2, ["--codec-rate 1e-300: want 0, or 1e-06 and more"], *none, "--parameters", "1k", "--step-time", 1, "--steps", 9,
                    "--codec-rate", "1e-300")
        self.refuse(2, ["no task \"imgae\"", "none"], "plan", "imgae")
        shapes = self.folder / "shapes"
        for text in ("a 3 x\n", "a 0\n", "a -1\n", "a 2000000000\n", "a 40000 40000\n", f"{'a' * 200} 3\n",
                     "a 1 1 1 1 1 1 1 1 1 1\n"):
            shapes.write_text("fc 3\n" + text)
            self.refuse(2, [shapes, "line 2"], *none, "--parameters", shapes, "--step-time", 1, "--steps", 9)
        shapes.write_text("\n")
        self.refuse(2, [shapes, "no line"], *none, "--parameters", shapes, "--step-time", 1, "--steps", 9)
        self.refuse(2, [self.folder, "regular"], *none, "--parameters", self.folder, "--step-time", 1, "--steps", 9)


class AutomaticTest(CommandLineTest):
    def settled(self, out):
        """The options sync and planned-link that a run has left."""
        lines = (out / "config.yaml").read_text().splitlines()
        told = dict(line.split(": ", 1) for line in lines if ": " in line)
        return json.loads(told["sync"]), told.get("planned-link")

    def test_a_run_takes_the_choice_bit_for_bit(self):
        """And goes on with it: --resume chooses nothing anew, whatever the plan would be by then."""
        out, options = self.folder / "run", ("--workers", 2, *ADAM)
        done = self.complete(*self.train_words(*options, "--steps", 600, "--sync", "auto", "--link", SLOW, "--out", out))
        sync, link = self.settled(out)
        self.assertIn(f"thinwire: --sync auto takes {sync} for a line of 0.1Mbit,1ms. It is predicted to reach the same loss ", done.stderr)
        self.assertNotIn(sync, ("auto", "allreduce"))
        self.assertEqual(json.loads(link), "0.1Mbit,1ms")
        named = self.folder / "named"
        self.train(*options, "--steps", 600, "--sync", sync, "--out", named)
        ends = [self.train("--batch", 4, "--steps", 610, "--out", folder, "--resume", *more)["weights_crc32c"]
                for folder, more in ((out, ("--sync", "auto", "--link", "10Gbit,0.01ms")), (named, ()))]
        self.assertEqual(*ends)
        self.assertEqual(self.settled(out), (sync, link))

    def test_what_the_run_would_refuse_is_not_chosen(self):
        """On a slow line such as dgc, and on a fast one gossip."""
        slow, fast = ("--link", "1Mbit,1ms"), ("--link", "100Gbit,1ms")
        for line, words in ((slow, ()), (slow, ("--momentum", 0.8)), (slow, ("--nesterov",)), (slow, ("--momentum", 0.9)),
                            (fast, ("--schedule", "plateau:0.5")), (fast, ("--expect-ratio", 1))):
            with self.subTest(words):
                done = self.run_program("train", "image", "--data", self.data, "--workers", 2, "--steps", 300, "--batch", 2,
                                        "--sync", "auto", *line, *words, "--out", "none")
                self.assertNotIn(done.returncode, (2,), done.stderr)

    def test_a_run_that_goes_on_repeats_its_changes(self):
        """From a checkpoint before one and from one behind it; and a record that is none is refused."""
        config = self.folder / "changes.yaml"
        config.write_text('planned-changes: "4 powersgd:rank=2; 9 local:every=2; 14 qsgd"\n')
        words = ("--workers", 2, *ADAM, "--sync", "bf16", "--config", config)
        whole = self.train(*words, "--steps", 18, "--out", self.folder / "whole")["weights_crc32c"]
        for stop in (3, 4, 11):
            out = self.folder / f"cut{stop}"
            self.train(*words, "--steps", stop, "--out", out)
            self.assertEqual(self.train("--batch", 4, "--steps", 18, "--out", out, "--resume")["weights_crc32c"], whole)
        config.write_text('planned-changes: "4"\n')
        self.refuse_training(2, ["planned-changes: 4: want STEP SPEC"], "--workers", 2, "--config", config)
        config.write_text('planned-changes: "4 nothing"\n')
        self.refuse_training(2, ["nothing"], "--workers", 2, "--steps", 2, "--config", config)
        config.write_text('planned-changes: "0 dgc"\n')
        self.refuse_training(2, ["dgc has moments of its own"], "--workers", 2, "--steps", 2, "--config", config)

    def test_threads_have_no_line(self):
        done = self.complete(*self.train_words("--workers", 2, "--steps", 2, "--sync", "auto"))
        self.assertIn("--sync auto takes allreduce, as the workers are threads", done.stderr)

    @unittest.skipUnless((PROGRAM.parent / "libthinwire_tcp.so").exists(), "needs libthinwire_tcp")
    def test_members_that_were_told_different_things(self):
        """All measure, or none does: one of them told a line would leave the others waiting."""
        words = self.train_words("--workers", 2, "--steps", 2, "--sync", "auto", "--timeout", 20, "--quiet", "--join", free_place())
        done = [self.finish(job) for job in (self.start_program(*words), self.start_program(*words, "--link", SLOW))]
        self.assertEqual([one.returncode for one in done], [2, 2], [one.stderr for one in done])
        self.assertIn(f"--link {SLOW}", "".join(one.stderr for one in done))

    @needs_mpi
    def test_ranks_measure_their_line(self):
        """All take what rank 0 has chosen, and where the line is another one when the run goes on, rank 0 says so."""
        out = self.folder / "ranks"
        options = ("--steps", 4, "--batch", 4)
        self.train(*options, "--sync", "auto", "--out", out, **under_mpi(2))
        sync, link = self.settled(out)
        self.assertRegex(json.loads(link), r"bit,.*ms$")
        config = out / "config.yaml"
        config.write_text(config.read_text().replace(link, '"1kbit,1ms"'))
        words = self.train_words("--batch", 4, "--steps", 6, "--out", out, "--resume")
        done = self.complete(*words, **under_mpi(2))
        told = [line for line in done.stderr.splitlines() if "--sync auto" in line]
        self.assertEqual(len(told), 1, done.stderr)
        self.assertIn(f"chose {sync} for 1kbit,1ms. The run keeps it", told[0])

    def test_refusals(self):
        self.refuse_training(2, ["--link ten"], "--sync", "auto", "--link", "ten")
        self.refuse_training(2, ["--sync auto plans for 128 workers at most, and here are 129", "--sync SCHEME"],
                             "--sync", "auto", "--link", SLOW, "--workers", 129)
        self.refuse_training(2, ["--link", "--sync auto", "bf16"], "--sync", "bf16", "--link", SLOW)
        self.refuse_training(2, ["no scheme \"auto\""], "--sync", "auto:every=3", "--workers", 2)
        self.train("--workers", 2, "--steps", 2, "--sync", "local:every=2", "--out", self.folder / "run")
        for options in (("--link", SLOW), ("--link", SLOW, "--sync", "local:every=2")):
            self.refuse(2, [f"--link {SLOW}", "--sync is local:every=2"], "train", "--resume", self.folder / "run",
                        *options)
        self.refuse(2, ["no scheme \"auto\""], "simulate", "none", "--step-time", 1, "--sync", "auto")


if __name__ == "__main__":
    run_tests()
