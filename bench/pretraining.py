#!/usr/bin/env python3
"""What pre-training on speech that nobody wrote down is good for: the table of docs/speech.md.

    tools/debian-speech speech
    bench/pretraining.py speech                         every run, in the order of what it tells; some hours
    bench/pretraining.py speech --only 5min             the runs whose name holds this, and what they begin with
    bench/pretraining.py speech --list                  their commands, and which are finished
    bench/pretraining.py speech --table                 the table of what is finished, as Markdown, and nothing else

A finished run is not made again and an interrupted one is resumed, so the table goes on where it was. Runs are in --out.
Of each row there are three lists of labelled minutes, which have a seed each. All but one are varied alike by masks, tempo
and dropout: without that, a pre-trained encoder learned five minutes by heart. What is compared:

    scratch     a conformer that begins at random
    plain       the same, not varied, with half of the steps: the better way to begin at random
    longer      the same with as many steps more as pre-training took time
    w2v1, w2v2  it begins with the encoder of w2v-BERT, pre-trained with seed 1 or 2
    noczech, contrastive, masked, random: with an encoder that was pre-trained without the language, or with a part of
                the method: contrastive blocks alone, masked prediction alone, codes of a random projection
    probe       only the last layer learns, on each of these encoders

Prints Markdown; --json writes the same as JSON. Letters wrong (CER) are of the test part: mean, least and most."""
import argparse
import json
import os
import pathlib
import shlex
import statistics
import subprocess
import sys
from typing import NamedTuple

from made import as_json, made

LISTS = (1, 2, 3)
LONGER_STEPS, SYNC_STEPS = 20000, 1500
ENCODERS = {  # what is pre-trained, on which list, and with which options
    "w2v1": ("unlabelled.json", []),
    "w2v2": ("unlabelled.json", ["--seed", "2"]),
    "noczech": ("unlabelled-no-czech.json", []),
    "contrastive": ("unlabelled.json", ["--contrastive-blocks", "8", "--masked-blocks", "0"]),
    "masked": ("unlabelled.json", ["--contrastive-blocks", "0", "--masked-blocks", "8"]),
    "random": ("unlabelled.json", ["--contrastive-blocks", "0", "--masked-blocks", "8", "--targets", "random"]),
}
SYNCS = {"dense": "allreduce", "topk": "topk:density=0.01", "adpsgd-random": "adpsgd-random", "scalecom": "scalecom"}


class Run(NamedTuple):
    """A run of `thinwire train`: its name, its row of the table, the options, and the run it begins with."""
    name: str
    row: str
    words: "list[str]"
    needs: "str | None" = None


def pretrain(options, name):
    data, own = ENCODERS[name]
    return Run(name, "pre-training", ["w2v-bert", "--data", str(options.speech / data), "--test",
                                      str(options.speech / "unlabelled-test.json"), "--workers", "2", "--batch", "8",
                                      "--steps", str(options.steps), *own])


def tune(options, kind, minutes, number, steps=None, encoder=None, extra=(), varied=True):
    """One list of labelled minutes, with a seed of its own."""
    czech = options.speech / "czech"
    begin = ["--init-from", str(options.out / encoder), *extra] if encoder else []
    return Run(f"{kind}-{minutes}min-{number}", f"{kind}-{minutes}min",
               ["asr", "--data", str(czech / f"train-{minutes}min-{number}.json"), "--test", str(czech / "test.json"),
                "--labels-from", str(czech / "train.json"), "--encoder", "conformer", "--features", FEATURES,
                "--steps", str(steps or options.tuning_steps), "--seed", str(number), *(VARIED if varied else []), *begin],
               encoder)


FEATURES = "rate=8000,bins=40,low=60,high=3800,floor=0.01"
VARIED = shlex.split("--dropout 0.1 --tempo 0.1 --time-masks 2 --time-mask 10 --frequency-masks 2 --frequency-mask 8")


def compressed(options, name, sync):
    return Run(f"sync-{name}", "sync", ["w2v-bert", "--data", str(options.speech / "unlabelled.json"), "--test",
                                        str(options.speech / "unlabelled-test.json"), "--workers", "4", "--batch", "4",
                                        "--steps", str(SYNC_STEPS), "--sync", sync])


def plan(options):
    """All runs, what decides first."""
    runs = [pretrain(options, "w2v1")]
    for number in LISTS:
        runs += [tune(options, "scratch", 5, number), tune(options, "w2v1", 5, number, encoder="w2v1")]
    runs += [tune(options, "plain", 5, number, steps=options.tuning_steps // 2, varied=False) for number in LISTS]
    runs += [compressed(options, name, sync) for name, sync in SYNCS.items()]
    runs += [tune(options, kind, minutes, number, encoder=kind if kind == "w2v1" else None)
             for minutes in (1, 10) for kind in ("scratch", "w2v1") for number in LISTS]
    runs += [tune(options, "longer", 5, number, steps=LONGER_STEPS) for number in LISTS]
    for name in ENCODERS:
        if name != "w2v1":
            runs += [pretrain(options, name), *(tune(options, name, 5, number, encoder=name) for number in LISTS)]
    runs += [tune(options, f"probe-{name}", 5, number, encoder=name, extra=["--freeze", "encoder"])
             for name in ENCODERS for number in LISTS]
    return runs


def wanted(options, runs):
    """Those that --only names, and before them what they begin with."""
    chosen = {run.name for run in runs if options.only in run.name}
    chosen |= {run.needs for run in runs if run.name in chosen and run.needs}
    return [run for run in runs if run.name in chosen]


def summary_of(options, run):
    path = options.out / run.name / "summary.json"
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        sys.exit(f"pretraining.py: {path}: {error}")


def command(options, run):
    folder = options.out / run.name
    if (folder / "checkpoints").is_dir() and any((folder / "checkpoints").iterdir()):
        return [options.program, "train", "--resume", str(folder)]
    return [options.program, "train", *run.words, "--feature-cache", str(options.out / "features"), "--out", str(folder)]


def make(options, run):
    """A collapse ends a run with 4: a result, too. Anything else that fails ends this."""
    words = command(options, run)
    print(shlex.join(words), file=sys.stderr, flush=True)
    done = subprocess.run(words, check=False, stdout=sys.stderr, env={**os.environ, "OMP_NUM_THREADS": "1"})
    if done.returncode == 4:
        (options.out / run.name / "collapsed").touch()
    elif done.returncode != 0:
        sys.exit(f"pretraining.py: {run.name} ended with {done.returncode}; run this again to go on with it")


def is_finished(options, run):
    return summary_of(options, run) is not None or has_collapsed(options, run.name)


def has_collapsed(options, name):
    return (options.out / name / "collapsed").exists()


# The tables

def tuning_rows(options, runs):
    rows = {}
    for run in runs:
        summary = summary_of(options, run)
        if summary and run.words[0] == "asr":
            rows.setdefault(run.row, []).append(summary)
    return [{"row": row, "runs": len(own), "cer": [100 * one["metrics"]["cer"] for one in own],
             "wer": [100 * one["metrics"]["wer"] for one in own],
             "seconds": statistics.mean(one["seconds"]["training"] for one in own)} for row, own in rows.items()]


def pretraining_rows(options, runs):
    rows = []
    for run in runs:
        summary = summary_of(options, run)
        if run.words[0] != "w2v-bert" or not is_finished(options, run):
            continue
        rows.append({"run": run.name, "collapsed": has_collapsed(options, run.name), "metrics": summary and
                     summary["metrics"], "seconds": summary and summary["seconds"]["training"],
                     "message": summary and summary["ratio"]["message"],
                     "traffic": summary and summary["ratio"]["traffic"]})
    return rows


def number(value, form=".2f"):
    return "-" if value is None else format(value, form)


def spread(values):
    return f"{statistics.mean(values):.1f} ({min(values):.1f} to {max(values):.1f})"


def print_tables(tables):
    if tables["tuned"]:
        print("| labelled speech | runs | letters wrong, % | words wrong, % | minutes a run |\n|---|---:|---:|---:|---:|")
        for row in tables["tuned"]:
            print(f"| {row['row']} | {row['runs']} | {spread(row['cer'])} | {spread(row['wer'])} | "
                  f"{row['seconds'] / 60:.1f} |")
    if tables["pretrained"]:
        print("\n| pre-training | contrastive loss below chance | accuracy | masked gain | hard perplexity | information | "
              "ratio, message | traffic | minutes |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|")
        for row in tables["pretrained"]:
            print(pretrained_line(row))


def pretrained_line(row):
    if row["collapsed"]:
        return f"| {row['run']} | collapsed | | | | | | | |"
    m = row["metrics"]
    gain = None if m.get("contrastive_loss") is None else m["contrastive_chance"] - m["contrastive_loss"]
    return (f"| {row['run']} | {number(gain)} | {number(m.get('accuracy'))} | {number(m.get('masked_gain'))} | "
            f"{number(m.get('hard_perplexity'), '.1f')} | {number(m.get('information'))} | "
            f"{number(row['message'], '.0f')} | {number(row['traffic'], '.1f')} | {row['seconds'] / 60:.0f} |")


def report(options, runs):
    tables = {"tuned": tuning_rows(options, runs), "pretrained": pretraining_rows(options, runs)}
    print_tables(tables)
    if options.json:
        options.json.write_text(as_json({"made": made(), **tables}) + "\n", encoding="utf-8")


def read_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("speech", type=pathlib.Path, help="what tools/debian-speech has made")
    parser.add_argument("--program", default="thinwire")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("pretraining"), help="the folder of the runs")
    parser.add_argument("--only", default="", help="the runs whose name holds this")
    parser.add_argument("--steps", type=int, default=6000, help="of pre-training, 64 seconds of sound each")
    parser.add_argument("--tuning-steps", type=int, default=2000)
    parser.add_argument("--list", action="store_true", help="say what there is to do, and do nothing")
    parser.add_argument("--table", action="store_true", help="make no run")
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    if not (options.speech / "unlabelled.json").is_file():
        parser.error(f"{options.speech}/unlabelled.json is not there; tools/debian-speech {options.speech} makes it")
    return options


def main():
    options = read_options()
    runs = wanted(options, plan(options))
    if not runs:
        sys.exit(f"pretraining.py: no run's name holds {options.only}; see --list")
    if options.list:
        for run in runs:
            print(f"{'finished' if is_finished(options, run) else 'to do   '}  {shlex.join(command(options, run))}")
        return
    for run in runs:
        if not options.table and not is_finished(options, run) and not (run.needs and has_collapsed(options, run.needs)):
            make(options, run)
    report(options, runs)


if __name__ == "__main__":
    main()
