"""Simulated runs: the same every time, stragglers, what the schemes send, runs that were recorded, and refusals."""
import json
import os
import re
import resource
import shutil
import sys

from support import CommandLineTest, run_tests

import parts
import picture

ALL_TENSORS = "min_elements=1,min_dims=1"  # biases are compressed, too
SCALE = (f"allreduce;topk:density=0.01,{ALL_TENSORS};dgc:density=0.01,warmup_steps=0,{ALL_TENSORS};"
         f"scalecom:warmup_steps=0;adpsgd-random")


class SimulateTest(CommandLineTest):
    def simulate(self, *options, task="image"):
        """Simulates, and returns the JSON; fails the test unless the program succeeds."""
        words = ["simulate", task, "--quiet", "--json", "-", *options]
        if task != "none":
            words += ["--data", self.data, "--batch", 4, "--warmup", 4]
        return json.loads(self.complete(*words).stdout)

    def by_scheme(self, *options, task="none"):
        """{scheme: {workers: run}}"""
        runs = {}
        for run in self.simulate(*options, task=task)["runs"]:
            runs.setdefault(run["sync"].partition(":")[0], {})[run["workers"]] = run
        return runs


class TrainingTest(SimulateTest):
    def record(self, name, *options, **keywords):
        """Starts a simulation that writes a file of that name, and results.json in a folder of it."""
        path = self.folder / f"{name}.json"
        words = ("simulate", "image", "--data", self.data, "--batch", 4, "--warmup", 4, "--quiet", "--json", path,
                 "--out", self.folder / name, *options)
        return path, self.start_program(*words, **keywords)

    def bytes_of(self, path, job):
        done = self.finish(job)
        self.assertEqual(done.returncode, 0, done.stderr)
        whole = path.read_bytes()
        self.assertEqual((path.with_suffix("") / "results.json").read_bytes(), whole)
        return whole

    def test_twice_the_same(self):
        self.check_sameness("allreduce", "dgc", "adpsgd-random")

    @parts.extra
    def test_twice_the_same_by_others(self):
        self.check_sameness("allreduce", "dgc", "adpsgd-random", "adpsgd-fixed", "prague", "dpsgd", "adpsgd-d1")

    def check_sameness(self, *schemes):
        """Every byte of the files, by every kind of scheme and with every kind of chance, on a machine of its own or two
        at a time on one processor."""
        options = ("--workers", "3,4", "--steps", 3, "--step-time", 0.01, "--jitter", 0.3, "--slow", "1:3", "--pause",
                   "0:2:0.1", "--sync", ";".join(schemes))
        first = self.bytes_of(*self.record("first", *options))
        crowded = [self.record(name, *options, preexec_fn=lambda: os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}))
                   for name in ("second", "third")]
        for path, job in crowded:
            self.assertEqual(self.bytes_of(path, job), first)
        runs = json.loads(first)["runs"]
        self.assertEqual([(run["sync"], run["workers"]) for run in runs][:6],
                         [(sync, workers) for sync in ("allreduce", "dgc", "adpsgd-random") for workers in (3, 4)])
        other = self.simulate(*options, "--workers", 3, "--sync", "allreduce", "--seed", 2)["runs"]
        self.assertNotEqual(runs[0]["virtual_seconds"], other[0]["virtual_seconds"])

    def test_times_of_this_machine_are_announced(self):
        words = ("simulate", "image", "--data", self.data, "--batch", 4, "--steps", 1, "--workers", 2, "--sync",
                 "allreduce", "--quiet")
        measured = self.run_program(*words)
        self.assertIn("without --step-time", measured.stdout.splitlines()[0])
        self.assertIn("differ from run to run", measured.stdout.splitlines()[0])
        self.assertNotIn("--step-time", self.run_program(*words, "--step-time", 0.01).stdout)

    def test_a_long_pause_costs_few_rounds(self):
        """A thousand times as long a one costs a few times the messages, by schemes that average while others compute."""
        for sync in ("adpsgd-random", "adpsgd-fixed", "prague"):
            sent = [self.simulate("--workers", 4, "--steps", 10, "--step-time", 0.01, "--pause", f"0:5:{seconds}", "--sync",
                                  sync, "--parameters", "1k", task="none")["runs"][0]["bytes_per_worker_step"]
                    for seconds in (10, 10000)]
            self.assertLess(sent[1], 5 * sent[0], sync)

    def test_it_is_the_training_that_is_real(self):
        """A synchronous run in a world has the loss and the metric of the same run over threads."""
        for sync in ("allreduce", "dgc:warmup_steps=2", "dpsgd", "gasloc:every=2", "streaming:every=4,fragments=2,delay=1",
                     "sparseloco:every=2", "diloco:every=2,eager=on", "diloco:every=2,merge=rda,first_moment=1"):
            real = self.train("--workers", 3, "--steps", 5, "--batch", 4, "--warmup", 4, "--sync", sync)
            run, = self.simulate("--workers", 3, "--steps", 5, "--step-time", 0.01, "--sync", sync)["runs"]
            self.assertEqual((run["loss"], run["metric"], run["parameters"]),
                             (real["loss"], real["metric"], real["parameters"]))

    def test_what_is_simulated_suits_the_optimiser(self):
        words = ("--workers", 2, "--steps", 2, "--step-time", 0.01, "--optimizer")
        for optimiser, sync in (("sgd", "dgc"), ("adamw", "dgc-adam"), ("adam", "powersgd:rank=16"), ("muon", "powersgd:rank=16")):
            for task in ("image", "none"):
                runs = self.simulate(*words, optimiser, task=task)["runs"]
                self.assertEqual([run["sync"] for run in runs], ["allreduce", sync, "adpsgd-random"])

    def test_a_straggler_delays_those_who_wait_for_it(self):
        """decentralised training, 16 workers, one ten times slower: 15.1 of 16 in theory, and 1.6 for who waits."""
        runs = self.by_scheme("--workers", 16, "--slow", "0:10", "--steps", 12, "--step-time", 0.1, "--parameters", "1k",
                              "--sync", "allreduce;adpsgd-d1;adpsgd-fixed;adpsgd-random")
        of_16 = {sync: 16 * run[16]["gradients_per_virtual_second"] / run[16]["gradients_ideal"]
                 for sync, run in runs.items()}
        self.assertEqual(runs["allreduce"][16]["gradients_ideal"], 160)
        for sync in ("adpsgd-fixed", "adpsgd-random"):
            self.assertGreaterEqual(of_16[sync], 15.0)
            self.assertLessEqual(of_16[sync], 15.2)
        for sync in ("allreduce", "adpsgd-d1"):
            self.assertAlmostEqual(of_16[sync], 1.6, delta=0.05)

    def test_only_who_waits_for_nobody_ends_apart(self):
        runs = self.by_scheme("--workers", 4, "--slow", "0:10", "--steps", 3, "--step-time", 0.1, "--sync",
                              "allreduce;adpsgd-random", task="image")
        self.assertEqual(runs["allreduce"][4]["consensus_distance"], 0)
        self.assertGreater(runs["adpsgd-random"][4]["consensus_distance"], 0)

    def test_a_loss_ends_a_run(self):
        options = ("--workers", 4, "--epochs", 30, "--step-time", 0.01, "--lr", 0.02, "--schedule", "constant", "--sync",
                   "allreduce;dpsgd;adpsgd-random")
        for run in self.simulate(*options, "--until-loss", 2)["runs"]:
            reached = [point["seconds"] for point in run["curve"] if point["loss"] <= 2]
            self.assertEqual(run["seconds_to_loss"], reached[0])
            self.assertLess(run["steps"], 200)
        for run in self.simulate(*options, "--until-loss", 1e-9, "--steps", 3)["runs"]:
            self.assertEqual((run["seconds_to_loss"], run["gradients"]), (None, 12))

    def test_a_diverged_run_is_a_result(self):
        runs = self.simulate("--workers", 2, "--steps", 30, "--step-time", 0.01, "--lr", 1e6, "--momentum", 0.99,
                             "--sync", "allreduce;adpsgd-random")["runs"]
        for run in runs:
            self.assertEqual((run["diverged"], run["loss"], run["metric"]), (True, None, None))

    def test_a_recorded_run_gives_the_times(self):
        out = self.folder / "run"
        recorded = self.train("--workers", 2, "--steps", 4, "--sync", "dgc", "--slow", "1:3", "--out", out)
        seconds = recorded["seconds"]
        result = self.simulate("--trace", out, "--workers", 2, "--steps", 1, "--sync", "allreduce", "--link",
                               "1000Gbit,0us")
        trace, machine = result["trace"], result["machine"]
        self.assertAlmostEqual(trace["measured_step_seconds"], seconds["training"] / 4)
        self.assertEqual(machine["pass_seconds"], recorded["pass"]["seconds"])
        self.assertAlmostEqual(machine["jitter"], recorded["pass"]["deviation"] / recorded["pass"]["seconds"])
        self.assertGreater(seconds["compute"] / 4, 1.5 * machine["pass_seconds"])  # factors 1 and 3
        self.assertEqual((trace["sync"], trace["workers"]), ("dgc", 2))
        again = self.simulate("--trace", out, "--jitter", 0, "--workers", 2, "--steps", 1, "--sync", "allreduce")
        self.assertGreaterEqual(again["trace"]["predicted_step_seconds"], 3 * machine["pass_seconds"])

    def add_option(self, out, line):
        told = (out / "config.yaml").read_text()
        self.assertTrue(told.endswith("\n...\n"))
        (out / "config.yaml").write_text(told[:-4] + line + "...\n")

    def test_a_late_pause_of_a_recorded_run_counts_as_much_as_it_did(self):
        """The recorded run need not have stood still for it to say that it did."""
        out, predicted = self.folder / "run", []
        self.train("--workers", 2, "--batch", 4, "--steps", 210, "--sync", "allreduce", "--out", out)
        for pause in ("", 'pause: "1:205:100"\n'):
            self.add_option(out, pause)
            predicted.append(self.simulate("--trace", out, "--jitter", 0, "--workers", 2, "--steps", 1, "--sync",
                                           "allreduce")["trace"]["predicted_step_seconds"])
        self.assertAlmostEqual(predicted[1] - predicted[0], 100 / 210, delta=0.01)

    def test_the_spec_of_a_recorded_run_suits_its_own_length(self):
        """Though few of its steps are taken: of these as large a share is warm-up."""
        out = self.folder / "run"
        summary = self.train("--workers", 2, "--batch", 4, "--steps", 2, "--sync", "dgc", "--out", out)
        self.assertEqual(self.traced(out)["spec"], self.suited(2))
        (out / "summary.json").write_text(json.dumps({**summary, "steps": 4685}))
        trace = self.traced(out)
        density, warmup = re.search("density=(.*),warmup_steps=(.*)", self.suited(4685)).groups()
        self.assertEqual((trace["sync"], trace["spec"]), ("dgc", f"dgc:density={density},warmup_steps={round(int(warmup) * 200 / 4685)}"))
        self.assertNotEqual(trace["spec"], self.suited(200))
        told = self.complete("simulate", "image", "--data", self.data, "--batch", 4, "--quiet", *self.few(out)).stdout
        self.assertIn(f"predicted: 200 steps for its 4685, with --sync {trace['spec']}\n", told)

    def few(self, out):
        return "--trace", out, "--workers", 2, "--steps", 1, "--sync", "allreduce"

    def traced(self, out):
        return self.simulate(*self.few(out))["trace"]

    def suited(self, steps):
        """dgc in a run of so many steps."""
        return self.simulate("--workers", 1, "--steps", steps, "--step-time", 1, "--parameters", 10, "--sync", "dgc",
                             task="none")["runs"][0]["spec"]

    def test_a_recorded_run_that_went_on_by_another_scheme_is_refused(self):
        out = self.folder / "run"
        self.train("--workers", 2, "--steps", 2, "--out", out)
        self.add_option(out, 'planned-changes: "1 topk"\n')
        self.refuse(2, ["--trace", out, "--sync"], "simulate", "image", "--data", self.data, "--trace", out, "--quiet")

    def test_a_recorded_run_by_a_scheme_that_is_not_known_is_refused(self):
        out = self.folder / "run"
        self.train("--workers", 2, "--steps", 2, "--sync", "dgc", "--out", out)
        configuration = out / "config.yaml"
        configuration.write_text(configuration.read_text().replace('sync: "dgc"', 'sync: "nonsense"'))
        self.refuse(2, ["--trace", out, "nonsense"], "simulate", "image", "--data", self.data, "--trace", out, "--quiet")

    def test_a_spec_that_cannot_be_is_refused_before_a_recorded_run_is_predicted(self):
        out = self.folder / "run"
        self.train("--workers", 2, "--batch", 4, "--steps", 2, "--out", out)
        done = self.refuse(2, ["fragments=3"], "simulate", "image", "--data", self.data, "--trace", out, "--quiet", "--sync",
                           "streaming:every=20")
        self.assertEqual(done.stdout, "")

    def test_a_record_that_cannot_be_is_refused_by_name(self):
        out = self.folder / "run"
        summary = self.train("--workers", 2, "--steps", 2, "--out", out)
        for group, key, value in ((None, "workers", 1e12), (None, "workers", 0), (None, "steps", 0.5),
                                  ("pass", "seconds", 1e300), ("pass", "deviation", -1), ("seconds", "codec", "x"),
                                  ("bytes", "received", -1e30)):
            with self.subTest(key=key, value=value):
                spoilt = {**summary, key: value} if not group else {**summary, group: {**summary[group], key: value}}
                (out / "summary.json").write_text(json.dumps(spoilt))
                self.refuse(2, [out, "summary.json", key], "simulate", "image", "--data", self.data, "--trace", out,
                            "--workers", 2, "--steps", 1, "--quiet")


def pipeline_seconds(stages, micro_batches, latency, passes, step=1, pause=(0, 0, 0)):
    """A pipeline on paper: when its last micro-batch is back, each stage doing one thing after the other. `passes`: the
    seconds of each stage's; stage pause[0] stands still after step pause[1] for pause[2] seconds."""
    free, forth, back = [0.0] * stages, {}, {}
    last = stages - 1

    def forward(stage, batch):
        free[stage] = max(free[stage], forth[stage - 1, batch] + latency if stage else 0) + passes[stage] / 3
        forth[stage, batch] = free[stage]

    def backward(stage, batch):
        if stage == last:
            free[stage] = max(free[stage], forth[stage - 1, batch] + latency if stage else 0) + passes[stage]
        else:
            free[stage] = max(free[stage] + passes[stage] / 3, back[stage + 1, batch] + latency) + passes[stage] * 2 / 3
        back[stage, batch] = free[stage]
        if (stage, batch + 1) == (pause[0], pause[1] * step):
            free[stage] += pause[2]

    for batch in range(micro_batches):
        for stage in range(stages - 1):  # P - s are under way in stage s and behind it
            for begun in range(0, stages - stage) if batch == 0 else [batch + last - stage]:
                if begun < micro_batches:
                    forward(stage, begun)
        for stage in reversed(range(stages)):
            backward(stage, batch)
    return free[0]


class PipelineTest(SimulateTest):
    def pipelines(self, *options, pipeline, **keywords):
        return self.simulate("--step-time", 0.12, "--pipeline", pipeline, *options, **keywords)["runs"]

    def test_it_is_the_training_that_is_real(self):
        """The bits of threads, twice in the same time; beside runs of --sync that are asked for."""
        for spec, workers in (("stages=4,cut=1+1+1+2", 4), ("stages=2,accumulate=3,values=fp8,cut=2+3", 2), ("stages=1,cut=5", 1)):
            real = self.train("--workers", workers, "--steps", 5, "--batch", 4, "--warmup", 4, "--pipeline", spec)
            first, second = self.pipelines("--steps", 5, pipeline=f"{spec}; {spec}")
            self.assertEqual(first, second)
            self.assertEqual([first[key] for key in ("loss", "weights_crc32c", "pipeline", "workers", "sync", "steps")],
                             [real["loss"], real["weights_crc32c"], spec, workers, "allreduce", 5])
        runs = self.pipelines("--steps", 2, "--sync", "allreduce", "--workers", "1,2", pipeline="stages=2,cut=2+3")
        self.assertEqual([(run["workers"], "pipeline" in run) for run in runs], [(1, False), (2, False), (2, True)])
        for run in runs[:2]:
            real = self.train("--workers", run["workers"], "--steps", 2, "--batch", 4, "--warmup", 4)
            self.assertEqual(run["weights_crc32c"], real["weights_crc32c"])

    def test_times_and_bytes_are_those_on_paper(self):
        """A stage takes its part of a pass, forward twice but for the last; what waits, waits for a message."""
        for stages, cut, each, options, passes, pause in (
                (1, "5", 1, (), [0.12], (0, 0, 0)),
                (2, "2+3", 1, (), [0.06] * 2, (0, 0, 0)),
                (3, "1+2+2", 2, ("--slow", "1:2.5"), [0.04, 0.1, 0.04], (0, 0, 0)),
                (4, "1+1+1+2", 1, ("--slow", "3:4", "--pause", "1:3:2"), [0.03, 0.03, 0.03, 0.12], (1, 3, 2))):
            for latency in (0, 0.05):
                run, = self.pipelines("--steps", 8, "--link", f"1000Gbit,{latency}s", *options,
                                      pipeline=f"stages={stages},accumulate={each},cut={cut}")
                self.assertAlmostEqual(run["virtual_seconds"], pipeline_seconds(stages, 8 * each, latency, passes, each, pause),
                                       delta=1e-3)
                self.assertEqual((run["gradients"], run["steps"]), (8 * each, 8))
                self.assertAlmostEqual(run["gradients_per_virtual_second"], 8 * each / run["virtual_seconds"])
                self.assertAlmostEqual(run["gradients_ideal"], stages / 0.12 * (3 / 4 if stages > 1 else 1))

    def test_a_line_that_is_slow_decides(self):
        """By what a cut's values take, forth on one stage's line and back on the other's, and not by what is computed."""
        fast, = self.pipelines("--steps", 40, "--link", "20kbit,0us", pipeline="stages=2,cut=2+3")
        slow, = self.pipelines("--steps", 40, "--link", "5kbit,0us", pipeline="stages=2,values=fp8,cut=2+3")
        self.assertLess(slow["bytes_per_worker_step"], 0.3 * fast["bytes_per_worker_step"])
        alone, = self.pipelines("--steps", 1, "--link", "20kbit,0us", pipeline="stages=3,cut=1+2+2")
        self.assertAlmostEqual(alone["virtual_seconds"], 0.04 * 3 + 3 * alone["bytes_per_worker_step"] / (20e3 / 8), delta=1e-6)
        for run, rate in ((fast, 20e3 / 8), (slow, 5e3 / 8)):
            self.assertAlmostEqual(run["virtual_seconds"] / (40 * run["bytes_per_worker_step"] / rate), 1, delta=0.1)


    def test_a_recorded_pipeline_is_refused(self):
        run = self.folder / "run"
        self.train("--workers", 2, "--steps", 2, "--batch", 4, "--pipeline", "stages=2,cut=2+3", "--out", run)
        self.refuse(2, ["--trace", run, "--pipeline"], "simulate", "image", "--data", self.data, "--trace", run, "--quiet")


class ExchangeTest(SimulateTest):
    """Without a model."""

    def test_bytes_and_times_over_the_number_of_workers(self):
        """The two that are to be flat are, but for the last worker's share, and top-k's bytes are N - 1 packets."""
        numbers = (8, 16, 32)
        runs = self.by_scheme("--workers", "8,16,32", "--parameters", "20k", "--steps", 4, "--step-time", 0.02, "--sync",
                              SCALE)
        sent = {sync: [run[n]["bytes_per_worker_step"] for n in numbers] for sync, run in runs.items()}
        for n, bytes_sent in zip(numbers, sent["allreduce"]):
            self.assertEqual(bytes_sent, 2 * (n - 1) / n * 4 * 20000)
        for sync in ("topk", "dgc"):
            self.assertAlmostEqual(sent[sync][2] / sent[sync][0], 31 / 7, delta=0.1)
        self.assertAlmostEqual(sent["scalecom"][2] / sent["scalecom"][0], 1, delta=0.12)
        self.assertAlmostEqual(sent["adpsgd-random"][2] / sent["adpsgd-random"][0], 1, delta=0.05)
        for sync, run in runs.items():
            for n in numbers:
                self.assertIsNone(run[n]["loss"])
                self.assertLessEqual(run[n]["gradients_per_virtual_second"], run[n]["gradients_ideal"] * (1 + 1e-9))

    def test_a_step_takes_what_its_parts_take(self):
        """Dense, on 4 workers: the pass, two phases of 3 chunks each, and no codec."""
        options = ("--workers", 4, "--parameters", "1M", "--steps", 2, "--step-time", 0.5, "--sync",
                   "allreduce:message_kb=100000", "--codec-rate", 0)
        slow, = self.simulate(*options, "--link", "8Mbit,1ms", task="none")["runs"]
        self.assertAlmostEqual(slow["step_seconds"], 0.5 + 2 * (3 * 1.0 + 0.001), delta=0.01)
        coded, = self.simulate(*options[:-2], "--codec-rate", 0.01, "--link", "8Mbit,1ms", task="none")["runs"]
        element, byte = 16 / 1e7, 4 / 1e7
        self.assertAlmostEqual(coded["step_seconds"] - slow["step_seconds"], 1e6 * element + 4e6 * byte, delta=0.01)

    def test_a_line_has_a_rate_each_way(self):
        def seconds(link):
            run, = self.simulate("--workers", 2, "--parameters", "1M", "--steps", 2, "--step-time", 0.01, "--codec-rate", 0, "--link",
                                 link, "--sync", "allreduce:message_kb=100000", task="none")["runs"]
            return run["virtual_seconds"] - 0.02
        same = seconds("10Mbit,0us")
        # Of two workers each sends and receives as much, so the slower way decides.
        self.assertEqual(seconds("10Mbit/100Mbit,0us"), same)
        self.assertAlmostEqual(seconds("10Mbit/5Mbit,0us") / same, 2, delta=0.01)

    def test_workers_of_one_host_share_its_line(self):
        alone, shared = (self.simulate("--workers", 4, "--workers-per-host", n, "--parameters", "1M", "--steps", 2,
                                       "--step-time", 0.01, "--codec-rate", 0, "--link", "100Mbit,0us", "--sync",
                                       "allreduce:message_kb=100000", task="none")["runs"][0] for n in (1, 2))
        # Six chunks cross a line that is one worker's. Of two workers, four do in the first phase (two of each one's
        # three), and in the second three: the ring leaves each host once.
        self.assertAlmostEqual((shared["virtual_seconds"] - 0.02) / (alone["virtual_seconds"] - 0.02), 7 / 6,
                               delta=0.02)

    def test_a_spec_suits_the_length_of_the_run(self):
        """A fifth of it is onebit-adam's warm-up, as in a run that is trained. Of steps that nobody asked for the length is
        unknown."""
        words = ("--workers", 2, "--parameters", "10k", "--step-time", 0.01)
        for length, warmup in ((("--steps", 40), 8), ((), 2000)):
            own, said = self.simulate(*words, *length, "--sync", f"onebit-adam;onebit-adam:warmup_steps={warmup}", task="none")["runs"]
            self.assertEqual(own["bytes_per_worker_step"], said["bytes_per_worker_step"])
            self.assertEqual(own["spec"], said["spec"] if length else "onebit-adam")
        self.assertEqual(own["steps"], 20)
        options = ("--workers", 2, "--steps", 3, "--step-time", 0.01, "--sync", "dgc")
        (trained,), (noise,) = (self.simulate(*options, "--gradients", gradients)["runs"] for gradients in ("on", "off"))
        self.assertNotEqual(trained["spec"], "dgc")
        self.assertEqual(trained["spec"], noise["spec"])
        table = self.complete("simulate", "none", *words, "--steps", 40, "--sync", "onebit-adam;allreduce", "--quiet").stdout
        self.assertIn("with --sync onebit-adam:warmup_steps=8\n", table)
        self.assertEqual(table.count("--sync"), 1)

    def test_a_long_spec_is_told_as_it_is(self):
        sync = "topk:dense=" + "|".join(["weight0"] * 200)
        words = ("--workers", 2, "--parameters", "10k", "--step-time", 0.01, "--steps", 1, "--sync", sync)
        self.assertEqual(self.simulate(*words, task="none")["runs"][0]["spec"], sync)
        self.assertNotIn("with --sync", self.complete("simulate", "none", *words, "--quiet").stdout)

    def test_a_run_without_an_exchange_says_so(self):
        words = ("simulate", "none", "--parameters", "10k", "--step-time", 0.01, "--steps", 4, "--quiet", "--sync")
        for sync, workers, told in (("diloco:every=5", 2, 1), ("diloco:every=4", 2, 0), ("allreduce", 1, 0)):
            table = self.complete(*words, sync, "--workers", workers).stdout
            self.assertEqual(table.count("not one exchange fell into these steps"), told, table)

    @parts.extra
    def test_resnet_50(self):
        run, = self.simulate("--workers", 2, "--parameters", "resnet50", "--steps", 1, "--step-time", 0.1, "--sync",
                             "allreduce", task="none")["runs"]
        self.assertEqual(run["parameters"], 25557032)
        self.assertEqual(run["bytes_per_worker_step"], 4 * 25557032)

    def test_pictures(self):
        out = self.folder / "out"
        self.simulate("--workers", "2,4", "--parameters", "1k", "--steps", 2, "--step-time", 0.01, "--out", out,
                      task="none")
        names = {path.name for path in out.iterdir()}
        self.assertLessEqual({"results.json", "simulate.dat", "simulate.gnuplot"}, names)
        self.assertEqual(json.loads((out / "results.json").read_text())["task"], "none")
        script = (out / "simulate.gnuplot").read_text()
        self.assertIn("'simulated: no task, 1000 parameters, links of 1Gbit,0.1ms'", script)
        for run in json.loads((out / "results.json").read_text())["runs"]:
            point = f"{run['workers']} {run['bytes_per_worker_step'] / 1e6:.9g}\n"
            self.assertIn(point, (out / "simulate.dat").read_text())  # what is drawn is what came out
        if shutil.which("gnuplot"):
            seen = picture.Picture((out / "simulate.svg").read_text())
            self.assertEqual(picture.problems(seen), [])
            self.assertGreaterEqual(len(seen.names()), 3)


@parts.extra
class ThousandsTest(SimulateTest):
    def test_memory_grows_with_the_workers(self):
        """Not with their square: of 2,000 workers a table of 1 kB for each pair would take 4 GB."""
        runs = self.by_scheme("--workers", "200,2000", "--steps", 1, "--step-time", 0.02, "--parameters", "10k", "--sync",
                              "scalecom:warmup_steps=0")["scalecom"]
        few, many = (runs[workers]["bytes_per_worker_step"] for workers in (200, 2000))
        self.assertLess(abs(many - few), 0.05 * few)
        self.assertLess(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, 1.5e6)  # kB


# Runs a program, tells on stdout the kilobytes that it took at most, and ends with its exit code.
PEAK = ("import resource, subprocess, sys; code = subprocess.call(sys.argv[1:]); "
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss); sys.exit(code)")


class RefusalTest(SimulateTest):
    def refuse_at_once(self, culprits, *words):
        """Of 200 workers with 4 MB each way no 200 are made."""
        done = self.refuse(2, culprits, "simulate", "none", "--workers", 200, "--parameters", "1M", "--steps", 4, "--step-time",
                           0.01, *words, launcher=(sys.executable, "-c", PEAK))
        self.assertLess(int(done.stdout), 600e3)

    def test_a_spec_is_refused_by_few_workers(self):
        self.refuse_at_once(["fragments=3"], "--sync", "adpsgd-random;adpsgd-random:pace=free;streaming:every=20")
        done = self.refuse(2, ["per_host=3 does not divide the 200"], "simulate", "none", "--workers", 200, "--parameters", "1k",
                           "--step-time", 0.01, "--sync", "topk;topk:per_host=4;topk:per_host=3", "--quiet")
        self.assertEqual(done.stdout, "")
        self.assertEqual(len(self.by_scheme("--workers", "8,16", "--parameters", "1k", "--steps", 4, "--step-time", 0.01, "--pause",
                                            "7:4:1", "--slow", "7:2", "--sync", "topk")["topk"]), 2)

    def test_what_cannot_be_is_refused_by_name(self):
        for culprits, words in (
                (["--workers", "16,x"], ["--workers", "16,x"]),
                (["--workers", "16384"], ["--workers", "20000"]),
                (["no scheme", "nonsense"], ["--sync", "allreduce;nonsense"]),
                (["--sync"], ["--sync", ";"]),
                (["fragments=3 do not divide every=20"], ["--workers", "2", "--steps", "1", "--sync", "allreduce;streaming:every=20"]),
                (["fragments=3 do not divide every=20"], ["--gradients", "off", "--steps", "1", "--sync", "allreduce;streaming:every=20"]),
                (["per_host=4 does not divide the 6"], ["--workers", "4,6", "--steps", "1", "--sync", "dgc:per_host=4"]),
                (["option", "densty"], ["--sync", "dgc:densty=0.1", "--workers", "2", "--steps", "1", "--quiet"]),
                (["--link", "1Gbit"], ["--link", "1Gbit"]),
                (["--link", "0.1"], ["--link", "1Gbit,0.1"]),
                (["at most 1e6s"], ["--link", "1Gbit,1e9s"]),
                (["1bit to 8e6Gbit"], ["--link", "1e-30kbit,1ms"]),
                (["--link 1e9Gbit,1ms", "1bit to 8e6Gbit"], ["--link", "1e9Gbit,1ms"]),
                (["UP/DOWN,LATENCY", "10Mbit/,1ms"], ["--link", "10Mbit/,1ms"]),
                (["UP/DOWN,LATENCY"], ["--link", "10Mbit/100Mbit"]),
                (["--overhead", "at most 1e6s"], ["--overhead", "1e9s"]),
                (["--codec-rate", "want 0"], ["--codec-rate", "1e-300"]),
                (["--overhead", "5"], ["--overhead", "5"]),
                (["--slow", "4:10", "rank"], ["--slow", "4:10", "--workers", "8,4"]),
                (["--slow 0:1e6", "1e+06 s", "1e+07 s"], ["--slow", "0:1e6", "--step-time", "1e6", "--workers", "4"]),
                (["--slow", "'0:2'", "second time"], ["--slow", "0:1,0:2", "--workers", "4"]),
                (["--jitter", "exponential"], ["--jitter", "2", "--jitter-form", "exponential"]),
                (["--parameters", "many"], ["--gradients", "off", "--parameters", "many"]),
                (["--step-time"], ["--gradients", "off"]),
                (["plateau"], ["--schedule", "plateau:0.5"]),
                (["nowhere", "summary.json"], ["--trace", self.folder / "nowhere"]),
                (["--pipeline stages=2", "cut=A+B"], ["--pipeline", "stages=2"]),
                (["--pipeline", "nobody stands by", "standby=1"], ["--pipeline", "stages=2,cut=2+3,standby=1"]),
                (["--pipeline", "no such key"], ["--pipeline", "stages=2,cut=2+3;steps=3"]),
                (["--pipeline stages=2,cut=3+3: the cut is of 6 layers", "has 5"], ["--pipeline", "stages=2,cut=2+3;stages=2,cut=3+3"]),
                (["--pipeline", "--until-loss"], ["--pipeline", "stages=2,cut=2+3", "--until-loss", "1"]),
                (["--until-loss 2", "no loss"], ["--until-loss", "2", "--gradients", "off"]),
                (["--codec-rate 1e-300: want 0"], ["--codec-rate", "1e-300"]),
                (["--pipeline", "gradients"], ["--pipeline", "stages=2,cut=2+3", "--gradients", "off"]),
                (["--pipeline", "no stages"], ["--pipeline", ";"]),
                (["--nonsense"], ["--nonsense"])):
            with self.subTest(words=words):
                step_time = [] if "--step-time" in culprits else ["--step-time", "0.01"]
                done = self.refuse(2, culprits, "simulate", "image", "--data", self.data, *step_time, *words)
                self.assertEqual(done.stdout, "")
        self.refuse(2, ["there is no task", "nonsense", "image", "none"], "simulate", "nonsense")
        (self.folder / "summary.json").write_text("{}")
        self.refuse(2, ["--trace", self.folder, "summary.json", "task"], "simulate", "none", "--trace", self.folder,
                    "--step-time", "0.01")
        self.refuse(2, ["usage", "TASK"], "simulate")


if __name__ == "__main__":
    run_tests()
