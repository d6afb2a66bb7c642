#!/usr/bin/env python3
"""What thinwire plan predicts and chooses, beside what its candidates take: MPI ranks over shaped links on this machine.

    sudo bench/planned.py build/thinwire --ranks 2 --rates 10mbit,100mbit,1gbit image --batch 64
    sudo bench/planned.py build/thinwire lm --model transformer --unit char --data input.txt --optimizer adamw

The ranks plan first, on the links that they measure themselves. Then each candidate trains. A pass takes longer in some runs
than in others: where runs are short each candidate has three, in turn with the others, of which the median counts. A last
figure has the prediction with the pass of these runs. `dgc` is left out, as its warm-up takes hundreds of steps. Prints a table.

--json FILE puts a row for each rate into FILE, of which tools/figures makes the table of docs/planning.md. Rows of other
tasks, ranks and rates stay in it, so that several runs fill one table. --name is what the table calls the task.
Needs what bench/link.sh needs, and a machine that does nothing else."""
import argparse
import json
import math
import os
import pathlib
import shlex
import statistics
import subprocess
import sys
import tempfile

from made import made

LINK = pathlib.Path(__file__).with_name("link.sh")
PLANNED = 5000  # steps of the run that is planned
BRIEF = 0.05  # seconds of a step that is measured over many
TURNS = 3


def burst(rate):
    """What a millisecond carries: of a larger bucket whole messages would pass unshaped."""
    bits = float(rate[:-4]) * {"mbit": 1e6, "gbit": 1e9}[rate[-4:]]
    return {"BURST": f"{max(4, min(256, round(bits / 8 * 0.001 / 1024)))}kb"}


def run(arguments, rate, folder, command, *words):
    """The JSON that the program writes."""
    path = folder / "figures.json"
    subprocess.run(["sh", LINK, str(arguments.ranks), rate, arguments.program, command, *words, "--quiet", "--json", path], check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, **burst(rate)})
    return json.loads(path.read_text())


def steps_of(row, least):
    """How many steps of a candidate are measured. A gossip scheme's differ, and local updates exchange in few."""
    if row["step_seconds"] < BRIEF or row["sync"] == "adpsgd-random":
        return 300
    return 100 if "every=" in row["sync"] else least


def measure(arguments, rate, folder, row):
    """Seconds of a step, and of the pass in it."""
    sync = row["sync"]
    told = f"{sync},warmup_steps=0" if sync.startswith("powersgd:") else sync  # a larger share of so short a run
    steps = str(steps_of(row, arguments.steps))
    figures = run(arguments, rate, folder, "train", *arguments.task, "--steps", steps, "--sync", told, "--out", "none")
    return figures["seconds"]["training"] / figures["steps"], figures["pass"]["seconds"]


def measure_all(arguments, rate, folder, rows):
    """Puts the run whose step is the median into the rows; and what is predicted of a step of so short a run, of which its end is a larger share than of
    the one that is planned."""
    found = [[] for _ in rows]
    for turn in range(TURNS):
        for row, runs in zip(rows, found):
            if turn == 0 or row["step_seconds"] < BRIEF:
                runs.append(measure(arguments, rate, folder, row))
    for row, runs in zip(rows, found):
        row["measured_step_seconds"], row["measured_pass_seconds"] = sorted(runs)[len(runs) // 2]
        row["step_seconds"] += row["end_seconds"] * (1 / steps_of(row, arguments.steps) - 1 / PLANNED)


def judge(rows, chosen, seconds):
    """Whose time to the same loss is the shortest, of those whose cost is known; and by how much the chosen one's is longer."""
    times = {row["sync"]: seconds(row) * (1 + row["extra_steps"]) for row in rows if row["extra_steps"] is not None}
    best = min(times, key=times.get)
    return best, times.get(chosen, float("nan")) / times[best] - 1


def at_rate(arguments, rate, folder):
    plan = run(arguments, rate, folder, "plan", *arguments.task, "--steps", str(PLANNED))
    rows = [row for row in plan["candidates"] if "left_out" not in row and row["sync"] != "dgc"]
    measure_all(arguments, rate, folder, rows)
    for row in rows:
        step, passed, predicted = row["measured_step_seconds"], row["measured_pass_seconds"], row["step_seconds"]
        known = predicted - plan["pass_seconds"] + passed
        print(f"{rate:>8} {row['sync']:40} {predicted:9.4f} {step:9.4f} {100 * (predicted / step - 1):+7.1f} %"
              f"  with that run's pass {100 * (known / step - 1):+7.1f} %", flush=True)
    usual = statistics.median(row["measured_pass_seconds"] for row in rows)
    chosen = plan["choice"]
    best, behind = judge(rows, chosen, lambda row: row["measured_step_seconds"])
    _, alike = judge(rows, chosen, lambda row: row["measured_step_seconds"] - row["measured_pass_seconds"] + usual)
    print(f"{rate:>8} a line of {plan['link']}; {chosen} is chosen, {best} is the best measured, {100 * behind:.1f} % before it, and "
          f"{100 * alike:.1f} % were all passes alike", flush=True)
    errors = [abs((row["step_seconds"] - plan["pass_seconds"] + row["measured_pass_seconds"]) / row["measured_step_seconds"] - 1)
              for row in rows]
    return {"rate": rate, "ranks": arguments.ranks, "best_measured": best, "behind": behind, "behind_with_passes_alike": alike,
            "median_error": statistics.median(errors), "largest_error": max(errors), **plan, "candidates": rows}


def percent(share):
    return None if math.isnan(share) else 100 * share


def row_of(result, name, by):
    """A row of the page's table. Shares are in per cent. A candidate's step has its seconds as predicted, as measured, and those of
    the pass in the measured run. With `pass_seconds`, which were predicted with, and `extra_steps` all else follows from them."""
    rate, rows = result["rate"], result["candidates"]
    return {"task": name, "ranks": result["ranks"], "rate": f"{rate[:-4]} {rate[-4].upper()}bit/s", "link": result["link"],
            "chosen": result["choice"], "best": result["best_measured"], "behind": percent(result["behind"]),
            "behind_with_passes_alike": percent(result["behind_with_passes_alike"]),
            "median": 100 * result["median_error"], "largest": 100 * result["largest_error"], "pass_seconds": result["pass_seconds"],
            "steps": {row["sync"]: [row[f"{key}_seconds"] for key in ("step", "measured_step", "measured_pass")] for row in rows},
            "extra_steps": {row["sync"]: row["extra_steps"] for row in rows}, "made": by}


def place_of(row):
    return row["task"], row["ranks"], row["rate"]


def table_in(path):
    """The rows that earlier runs left there, by place."""
    return {place_of(row): row for row in json.loads(path.read_text())["rows"]} if path.exists() else {}


def add(path, row):
    rows = {**table_in(path), place_of(row): row}.values()
    path.write_text('{"rows": [\n' + ",\n".join(map(json.dumps, rows)) + "\n]}\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rates", default="10mbit,100mbit,1gbit")
    parser.add_argument("--steps", type=int, default=20, help="of a candidate that exchanges in every step")
    parser.add_argument("--name", help="of the task in the table (default: its words)")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="to which rows are added")
    arguments, arguments.task = parser.parse_known_args()
    try:
        if arguments.json:
            table_in(arguments.json)  # what is wrong with it is told before anything is measured
    except (OSError, ValueError, TypeError, KeyError) as error:
        parser.error(f"--json {arguments.json}: it is there, and is not what an earlier run wrote; name another file ({error!r})")
    with tempfile.TemporaryDirectory() as folder:
        for rate in arguments.rates.split(","):
            result = at_rate(arguments, rate, pathlib.Path(folder))
            if arguments.json:
                add(arguments.json, row_of(result, arguments.name or shlex.join(arguments.task), made(arguments.program)))


if __name__ == "__main__":
    sys.exit(main())
