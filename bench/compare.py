#!/usr/bin/env python3
"""Ways of exchanging, compared as fairly as two cores allow: one command, one JSON, one page with curves.

    bench/compare.py                                   a small CNN with SGD on Fashion-MNIST, four workers
    bench/compare.py --text input.txt                  a small transformer with AdamW on the characters of a text
    bench/compare.py --quick ...                       in minutes, to see that all goes well: its figures say nothing
    bench/compare.py --also ./libmine.so:mine:k=3      with a scheme of your own; --also :topk:density=0.01 for one of ours
    bench/compare.py --only --also ...                 with dense and the named ones alone

What is the same for all arms: the network, the data of each worker, the number of steps and so of tokens, the number of tuning
runs, and the seeds. Each arm is tuned by itself: it takes a third of the steps with each learning rate of the grid and one
seed, and the best by validation is taken. Then it runs with fresh seeds, and what it loses to dense is the mean over seeds of
the difference between two runs with one seed, with a 95 % interval. Controls: one worker alone; dense; workers that meet once, at
the end; and one worker that takes as many steps as all together, dense and with local updates.

Bytes are counted by the transport. Times are predicted: the simulator runs each arm's own code on the tensors, over three
lines and with one worker half as fast (docs/simulator.md). What an arm reaches in the time that the fastest one takes over a line
is the training loss there. With a text in which empty lines stand between speeches some arms run twice more: the workers' parts are alike,
or each has other speakers (shards.py). --long takes more outer momenta, more controls, and all arms through that.

With --failures a worker dies and another comes, with each seed: see failures.py. That
needs a text and PyTorch (THINWIRE_PYTHON names another Python that has it), and takes 300 steps at least.

A finished run is kept in --out. It is not made again as long as program, library, text and plug-in have the same bytes. There lie compare.json, curves.svg and report.html as well. --json FILE writes
the JSON there, too; tools/figures makes tables of documents out of it."""
import argparse
import functools
import hashlib
import json
import math
import pathlib
import shlex
import shutil
import statistics
import subprocess
import sys
import time
from typing import NamedTuple, Optional

import chart
import failures
import shards
from made import as_json, made

ROOT = pathlib.Path(__file__).resolve().parent.parent
LINES = {"gigabit": "1Gbit,0.1ms", "fast": "100Mbit,1ms", "slow": "10Mbit,5ms"}
STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101,
           2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042)  # 97.5 %, of freedom 1, 2, ...
TUNING_SEED = 1000
GRID = (0.5, 1, 2, 4)  # times the learning rate of the task


def transformer(hidden, layers, bptt, batch, *unit):
    return ["lm", "--model", "transformer", "--hidden", hidden, "--layers", layers, "--bptt", bptt, "--batch", batch, "--unit", *unit]


TASKS = {
    "cnn": {"words": ["image", "--validation", "0.1", "--batch", "32"], "lr": 0.05, "own": "dgc"},
    "transformer": {"words": transformer(48, 1, 48, 8, "char"), "lr": 0.012, "own": "dgc-adam"},
    "pieces": {"words": transformer(48, 1, 48, 8, "piece", "--vocabulary", 512), "lr": 0.012, "own": "dgc-adam"},
    "small": {"words": transformer(64, 2, 64, 8, "char"), "lr": 0.003, "own": "dgc-adam"},
    "gpt": {"words": transformer(128, 4, 64, 12, "char"), "lr": 0.003, "own": "dgc-adam"},  # nanoGPT's for a processor
}
DENSE = "allreduce"
LOCAL = ["diloco:every=20", "diloco:every=50"]  # with the outer momentum that is theirs, which is one of these
MOMENTA = ("0", "0.5", "0.9")
OWN_MOMENTUM = "0.5"
SPARSE = "sparseloco:every=20,k=256,agg=senders"
LATELY = 5  # figures of a curve, whose mean is what it has reached


class Arm(NamedTuple):
    name: str
    sync: str
    workers: int
    plugin: Optional[str] = None
    times: int = 1  # the steps of the others, so that one worker sees as many tokens as all
    control: bool = False


def reads_text(task):
    return TASKS[task]["words"][0] == "lm"


def arms_of(options, task):
    many = options.workers
    arms = [Arm("one worker", DENSE, 1, control=True), Arm("dense", DENSE, many)]
    if not options.only:
        arms += arms_of_all(options, task)
    for also in options.also:
        plugin, _, spec = also.partition(":")
        arms.append(Arm(spec, spec, many, plugin or None))
    return arms


def arms_of_all(options, task):
    """What is compared in any case, besides one worker and dense."""
    many = options.workers
    alone = f"one worker, {many} times the steps"
    arms = [Arm("one average at the end", f"local:every={options.steps}", many, control=True), Arm(alone, DENSE, 1, times=many, control=True)]
    local = [spec for spec in LOCAL if int(spec.partition("every=")[2]) <= options.steps]
    specs = ["bf16", "qsgd", "powersgd:rank=4", TASKS[task]["own"], *local, SPARSE]
    for spec in local if options.long else local[:1]:
        specs += [f"{spec},outer_momentum={momentum}" for momentum in MOMENTA if momentum != OWN_MOMENTUM]
        arms.append(Arm(f"{spec}, {alone}", spec, 1, times=many, control=True))
    return arms + [Arm(spec, spec, many) for spec in specs]


# ---- runs --------------------------------------------------------------------------------------------------------------


def words_of(options, task, arm, lr, seed, steps, text=None):
    words = [*TASKS[task]["words"], *(["--data", text or options.text] if reads_text(task) else []), "--workers", arm.workers,
             "--steps", arm.times * steps, "--lr", f"{lr:g}", "--seed", seed, "--sync", arm.sync, "--evaluate-every", 1000000,
             *(["--plugin", arm.plugin] if arm.plugin else [])]
    return [str(word) for word in words]


@functools.lru_cache(maxsize=None)
def bytes_in(path):
    """What stands for them; of a file that is not there thinwire itself speaks."""
    path = pathlib.Path(path)
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""


def name_of(options, words):
    """A run's folder: another text, program or plug-in of the same name makes another run."""
    files = [options.program, library_of(options.program), *(word for flag, word in zip(words, words[1:]) if flag in ("--data", "--plugin"))]
    return hashlib.sha256(json.dumps([words, *map(bytes_in, files)]).encode()).hexdigest()[:16]


def run(options, words):
    """The summary of a run, which is made unless it lies there; and its folder."""
    folder = options.out / name_of(options, words)
    summary, diverged = folder / "summary.json", folder / "diverged"
    if diverged.exists():
        return None, folder
    if not summary.exists():
        shutil.rmtree(folder, ignore_errors=True)  # of a comparison that was stopped in the midst of it
        done = subprocess.run([options.program, "train", *words, "--out", folder, "--quiet"], capture_output=True, text=True, check=False)
        if done.returncode == 4:  # which is a result
            folder.mkdir(parents=True, exist_ok=True)
            diverged.touch()
            return None, folder
        if done.returncode:
            sys.exit(f"compare: thinwire train {shlex.join(words)} ended with {done.returncode}: {done.stderr.strip()[-1000:]}")
    return json.loads(summary.read_text()), folder


def validation_of(summary):
    """Of a run that diverged it is infinite, so that another rate is taken."""
    loss = math.inf if summary is None else (summary["validation"] or summary)["loss"]
    return loss if loss is not None and math.isfinite(loss) else math.inf


def tune(options, task, arm):
    """The learning rate, and what each of the grid reached."""
    tried = []
    for times in options.grid:
        lr = TASKS[task]["lr"] * times
        summary, _ = run(options, words_of(options, task, arm, lr, TUNING_SEED, max(1, options.steps // 3)))
        tried.append({"lr": lr, "loss": validation_of(summary)})
    best = min(tried, key=lambda one: one["loss"])
    return best["lr"], [{**one, "loss": one["loss"] if math.isfinite(one["loss"]) else None} for one in tried]


def told_by(folder, kind):
    """What the run told of that kind."""
    rows = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    return [row for row in rows if row.get("kind") == kind]


def curve_of(folder):
    """(step, training loss), as the run told them."""
    return [(row["step"], row["loss"]) for row in told_by(folder, "step") if row.get("loss") is not None]


def data_of(folder):
    """What the run learned: a file, or a folder, which has the hash of what `sha256sum *` prints in it."""
    path = pathlib.Path(told_by(folder, "start")[0]["data"])
    if not path.is_dir():
        return {"path": str(path), "sha256": bytes_in(path)}
    listed = "".join(f"{bytes_in(one)}  {one.name}\n" for one in sorted(path.glob("[!.]*")) if one.is_file())
    return {"path": str(path), "sha256": hashlib.sha256(listed.encode()).hexdigest()}


def finish(options, arm, lr, seed, words):
    """A run for which tuning has found a rate: its summary, its folder and its command."""
    summary, folder = run(options, words)
    if summary is None:
        sys.exit(f"compare: {arm.name} with the rate {lr:g} that tuning found diverges with seed {seed}; take another grid with --grid")
    return summary, folder, shlex.join(["thinwire", "train", *words])


def measure(options, task, arm, progress):
    lr, tuning = tune(options, task, arm)
    runs, folders, of_all = [], [], None  # of the first run what is alike in all
    for seed in range(1, options.seeds + 1):
        words = words_of(options, task, arm, lr, seed, options.steps)
        summary, folder, command = finish(options, arm, lr, seed, words)
        runs.append({"seed": seed, "loss": summary["loss"], "metric": summary["metric"], "sent": summary["bytes"]["sent"],
                     "weights": summary["weights_crc32c"], "seconds": summary["seconds"], "pass": summary["pass"]["seconds"],
                     "curve": dict(zip(("steps", "losses"), zip(*curve_of(folder))))})
        of_all = of_all or {"ratio_message": summary["ratio"]["message"], "ratio_traffic": summary["ratio"]["traffic"], "command": command}
        folders.append(folder)
    reached = ", ".join(format(one["loss"], ".4f") for one in runs)
    progress(f"{task}: {arm.name}: rate {lr:g}, test loss {reached}")
    return {"name": arm.name, "sync": summary["sync"], "workers": arm.workers, "plugin": arm.plugin, "control": arm.control,
            "steps": arm.times * options.steps, "lr": lr, "parameters": summary["parameters"], **of_all, "tuning": tuning, "runs": runs}, folders


def measure_shards(options, task, arms, rows, progress):
    """With the rates that tuning found: parts of the text that are alike, and parts of other speakers."""
    taken = ("dense", TASKS[task]["own"], LOCAL[0], SPARSE)
    texts = {how: shards.arrange(options.text, options.out, how) for how in shards.WAYS}
    found = []
    for arm, row in zip(arms, rows):
        if arm.workers == 1 or not (options.long or arm.name in taken):
            continue
        runs = []
        for seed in range(1, options.seeds + 1):
            made_of = {how: finish(options, arm, row["lr"], seed, words_of(options, task, arm, row["lr"], seed, options.steps, text))
                       for how, text in texts.items()}
            runs.append({"seed": seed, **{how: summary["loss"] for how, (summary, _, _) in made_of.items()},
                         "commands": {how: command for how, (_, _, command) in made_of.items()}})
        progress(f"{task}: {arm.name}: " + ", ".join(f"{how} parts {statistics.mean(one[how] for one in runs):.4f}" for how in shards.WAYS))
        found.append({"name": arm.name, "lr": row["lr"], "runs": runs})
    return found


# ---- what is made of them ----------------------------------------------------------------------------------------------


def paired(losses, others):
    """The mean difference of paired runs and half of its 95 % interval; None where one pair says nothing of it."""
    differences = [mine - other for mine, other in zip(losses, others)]
    if len(differences) < 2:
        return differences[0], None
    free = min(len(differences) - 1, len(STUDENT))  # beyond the table the interval is a little too wide
    spread = statistics.stdev(differences) / math.sqrt(len(differences))
    return statistics.mean(differences), STUDENT[free - 1] * spread


def add_means(arms):
    dense = next(arm for arm in arms if arm["name"] == "dense")
    for arm in arms:
        losses = [one["loss"] for one in arm["runs"]]
        arm["loss"] = statistics.mean(losses)
        arm["behind"], arm["behind_half"] = paired(losses, [one["loss"] for one in dense["runs"]])
        arm["behind_percent"] = 100 * arm["behind"] / statistics.mean(one["loss"] for one in dense["runs"])
        arm["megabytes"] = statistics.mean(one["sent"] for one in arm["runs"]) / 1e6


def add_shards(rows):
    """What each loses to dense, where all have parts of the same kind."""
    for row in rows:
        for how in shards.WAYS:
            losses, dense = ([run[how] for run in one["runs"]] for one in (row, rows[0]))
            row[how] = statistics.mean(losses)
            row[f"behind_{how}"], row[f"behind_{how}_half"] = paired(losses, dense)
    return rows


def loss_at(curves, steps):
    """Of the seeds' mean, what the last figures up to so many steps have on average; None before the first one."""
    reached = [[loss for step, loss in curve if step <= steps][-LATELY:] for curve in curves]
    return statistics.mean(map(statistics.mean, reached)) if all(reached) else None


def add_in_time(arms, curves):
    """The training loss of each arm when the fastest one that is no control has taken its steps, line by line."""
    fastest = {}
    for line in LINES:
        first = min((arm for arm in arms if not arm["control"]), key=lambda arm: arm["seconds"][line])
        fastest[line] = {"name": first["name"], "seconds": first["seconds"][line]}
        for arm in arms:
            steps = min(1, first["seconds"][line] / arm["seconds"][line]) * arm["steps"]
            arm.setdefault("steps_in_time", {})[line] = int(steps + 1e-6)
            arm.setdefault("in_time", {})[line] = loss_at(curves[arm["name"]], steps + 1e-6)
    return fastest


def add_failures(rows):
    """Of each figure the mean over the seeds, and of what an arm loses half of its interval."""
    for row in rows:
        row.update({key: statistics.mean(run[key] for run in row["runs"]) for key in row["runs"][0] if key != "seed"})
        row["more"], row["more_half"] = paired([run["loss"] for run in row["runs"]], [run["loss_calm"] for run in row["runs"]])
    return rows


def table_of(folder, parameters):
    """A file with the tensors of a run, out of its checkpoint: safetensors begins with the length of a JSON header."""
    model = sorted(folder.glob("checkpoints/*/model.safetensors"))[-1]
    with open(model, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    shapes = {name: one["shape"] for name, one in header.items()
              if name != "__metadata__" and one["dtype"] == "F32" and not name.startswith("optimiser.")}
    if sum(map(math.prod, shapes.values())) != parameters:
        sys.exit(f"compare: {model} has other tensors than the {parameters} parameters of the run")
    path = folder / "shapes.txt"
    path.write_text("".join(f"{name} {' '.join(map(str, shape))}\n" for name, shape in shapes.items()))
    return path


def library_of(program):
    return str(pathlib.Path(program).resolve().with_name("libthinwire.so"))


def simulate(options, arm, table, step_time, link, slow):
    """Seconds of the whole run, predicted."""
    if arm["workers"] == 1:
        return step_time * arm["steps"]
    words = ["simulate", "none", "--parameters", table, "--workers", arm["workers"], "--steps", options.steps,
             "--step-time", f"{step_time:.6g}", "--link", link, "--sync", arm["sync"],
             *(["--slow", "1:2"] if slow else []), *(["--plugin", arm["plugin"]] if arm["plugin"] else []), "--quiet", "--json", "-"]
    done = subprocess.run([options.program, *map(str, words)], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"compare: the simulator fails for {arm['sync']}: {done.stderr.strip()[-1000:]}")
    return json.loads(done.stdout)["runs"][0]["step_seconds"] * options.steps


def add_times(options, arms, table):
    """The pass of the worker alone is nobody's but its own, and so the step of all."""
    step_time = min(one["pass"] for one in arms[0]["runs"])
    for arm in arms:
        arm["seconds"] = {name: simulate(options, arm, table, step_time, link, False) for name, link in LINES.items()}
        arm["seconds"]["slow_worker"] = simulate(options, arm, table, step_time, LINES["fast"], True)
    return step_time


def draw(options, results, curves):
    page = chart.Page()
    for task, arms in results["tasks"].items():
        for line, link in LINES.items():
            named = []
            for arm in arms["arms"]:
                step = arm["seconds"][line] / arm["steps"]
                named.append((arm["name"], [(number * step, loss) for number, loss in curves[task][arm["name"]][0]]))
            chart.curves(page, f"{task}: a line of {link}", [one for one in named if len(one[1]) > 1], "s", "training loss")
    page.write(options.out / "curves.svg")


def compare(options):
    """The results, each arm's curves by task, and the folder of its first run."""
    def progress(text):
        print(text, file=sys.stderr, flush=True)

    results = {"made": made(options.program), "lines": LINES, "steps": options.steps, "seeds": options.seeds, "grid": list(options.grid), "tasks": {}}
    curves, first = {}, []
    for task in options.tasks:
        arms, curves[task], table = [], {}, None
        chosen = arms_of(options, task)
        for arm in chosen:
            row, folders = measure(options, task, arm, progress)
            arms.append(row)
            curves[task][row["name"]] = list(map(curve_of, folders))
            first.append(folders[0])
            table = table or table_of(folders[0], row["parameters"])
        add_means(arms)
        results["tasks"][task] = {"data": data_of(folders[0]), "step_seconds": add_times(options, arms, table), "fastest": add_in_time(arms, curves[task]), "arms": arms}
        if reads_text(task) and not options.only and shards.has_blocks(options.text):
            results["tasks"][task]["shards"] = add_shards(measure_shards(options, task, chosen, arms, progress))
    if options.failures:
        results["failures"] = add_failures(failures.measure(options, progress))
    return results, curves, first


def interval(half):
    return "" if half is None else f" +- {half:.3f}"


def show_in_time(found):
    print("training loss in the time of " + ", ".join(f"{first['name']} over {LINES[line]} ({first['seconds']:.4g} s)" for line, first in found["fastest"].items()))
    for arm in found["arms"]:
        print(f"{arm['name']:46} " + " ".join("        -" if loss is None else f"{loss:9.3f}" for loss in arm["in_time"].values()))


def show(results):
    for task, found in results["tasks"].items():
        print(f"\n{task}: {results['steps']} steps, {results['seeds']} seeds")
        print(f"{'':46} {'rate':>8} {'test loss':>10} {'to dense':>18} {'MB sent':>9} " + " ".join(f"{name:>9}" for name in LINES))
        for arm in found["arms"]:
            print(f"{arm['name']:46} {arm['lr']:8g} {arm['loss']:10.4f} {arm['behind']:+9.4f}{interval(arm['behind_half']):9} {arm['megabytes']:9.3g} "
                  + " ".join(f"{arm['seconds'][name]:8.4g}s" for name in LINES))
        show_in_time(found)
        for row in found.get("shards", []):
            print(f"parts of the text: {row['name']}: to dense " + ", ".join(
                f"{how} {row[f'behind_{how}']:+.4f}{interval(row[f'behind_{how}_half'])}" for how in shards.WAYS))
    for row in results.get("failures", []):
        print(f"with failures: {row['name']}: loss {row['more']:+.4f}{interval(row['more_half'])}, by seed "
              + ", ".join(f"{run['seed']}: {run['more']:+.4f}" for run in row["runs"]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", help="a text file, for the transformers")
    parser.add_argument("--tasks", help="of cnn, transformer (of characters), pieces (a transformer of SentencePiece's), small and gpt (larger ones of characters), with commas "
                        "(default: transformer with --text, else cnn)")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--steps", type=int, help="(default: 600; with --quick 60)")
    parser.add_argument("--seeds", type=int, help="(default: 3; with --quick 2)")
    parser.add_argument("--grid", help="times the rate of the task, with commas (default: 0.5,1,2,4; with --quick 1)")
    parser.add_argument("--also", action="append", default=[], metavar="PLUGIN:SPEC", help="one more arm; without PLUGIN one of ours")
    parser.add_argument("--only", action="store_true", help="one worker, dense and the arms of --also, and no others")
    parser.add_argument("--failures", action="store_true", help="lose a worker and take in another one, too; needs --text and PyTorch")
    parser.add_argument("--long", action="store_true", help="each outer momentum and one worker for all local methods, and all arms with unlike parts")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--program", default=str(ROOT / "build" / "thinwire"))
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("compare"), help="a folder for the runs")
    parser.add_argument("--json", help="a file")
    options = parser.parse_args()
    options.tasks = (options.tasks or ("transformer" if options.text else "cnn")).split(",")
    for task in options.tasks:
        if task not in TASKS:
            parser.error(f"--tasks {task}: there are {', '.join(TASKS)}")
    for what in (*filter(reads_text, options.tasks), *(["--failures"] if options.failures else [])):
        if not options.text:
            parser.error(f"{what} needs a text: --text FILE")
    if options.failures and failures.lacks_torch():
        parser.error(failures.lacks_torch())
    for also in options.also:
        if ":" not in also:
            parser.error(f"--also {also}: want PLUGIN:SPEC, such as ./libmine.so:mine, or :SPEC for a scheme of the library")
    for name, least in (("workers", 2), ("steps", 1), ("seeds", 1)):  # a worker alone has nobody to exchange with
        given = getattr(options, name)
        if given is not None and given < least:
            parser.error(f"--{name} {given}: want {least} or more")
    options.steps = options.steps or (60 if options.quick else 600)
    options.seeds = options.seeds or (2 if options.quick else 3)
    try:
        options.grid = [float(one) for one in options.grid.split(",")] if options.grid else [1.0] if options.quick else list(GRID)
    except ValueError:
        parser.error(f"--grid {options.grid}: want numbers with commas between them")
    options.out.mkdir(parents=True, exist_ok=True)
    begun = time.monotonic()
    results, curves, first = compare(options)
    results["wall_seconds"] = time.monotonic() - begun
    for path in [options.out / "compare.json", *([options.json] if options.json else [])]:
        pathlib.Path(path).write_text(as_json(results, allow_nan=False) + "\n")
    show(results)
    draw(options, results, curves)
    subprocess.run([options.program, "report", *first, "--out", options.out / "report.html"], check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
