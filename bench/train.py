#!/usr/bin/env python3
"""A training step of thinwire's beside PyTorch's: the same network, turn by turn on one thread; JSON.

    bench/train.py build/thinwire                                         ResNet-20
    bench/train.py build/thinwire lstm-2x650 bilstm-2x256 lm-medium
    PYTHON=venv/bin/python bench/train.py build/thinwire lm-transformer   PyTorch 2.4 or later
    PYTHON=venv/bin/python bench/train.py build/thinwire w2v-bert w2v-bert-no-dropout

PyTorch is whatever PYTHON (default /usr/bin/python3) imports; without it, thinwire's figures stand alone. cpu_ratio
compares processor time instead of wall time: the figure to look at where others use the machine too. w2v-BERT's
size "tiny" takes 64 seconds of audio a step, and needs build/bench_w2v_bert (cmake --build build --target
bench_w2v_bert)."""
import argparse
import json
import os
import pathlib
import statistics
import subprocess

HERE = pathlib.Path(__file__).resolve().parent
KEEP = {"w2v-bert": "0.9", "w2v-bert-no-dropout": "1"}
MODELS = ["resnet20", "lstm-2x650", "bilstm-2x256", "lm-medium", "lm-transformer", *KEEP]


def words_of(options, model):
    """What prints thinwire's figures, and what PyTorch's."""
    steps = str(options.steps)
    ours = [options.thinwire, "bench", "train", "--model", model, "--steps", steps, "--json"]
    if model in KEEP:
        ours = [options.thinwire.with_name("bench_w2v_bert"), steps, KEEP[model]]
    return ours, [os.environ.get("PYTHON", "/usr/bin/python3"), HERE / "networks_torch.py", model, steps]


def told_by(words):
    alone = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    done = subprocess.run(words, check=True, stdout=subprocess.PIPE, env={**os.environ, **alone})
    return json.loads(done.stdout)


def compared(options, model):
    turns = [[told_by(words) for words in words_of(options, model)] for _ in range(options.turns)]
    theirs = {key: turns[0][1].get(key) for key in ("torch", "blas", "layout", "skipped") if key in turns[0][1]}
    result = {"model": model, **theirs}
    for key, ratio in (("step_ms", "ratio"), ("step_cpu_ms", "cpu_ratio")):
        result[key] = statistics.median(ours[key] for ours, _ in turns)
        if "skipped" not in theirs:
            result["torch_" + key] = statistics.median(torch[key] for _, torch in turns)
            result[ratio] = result["torch_" + key] / result[key]
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("thinwire", nargs="?", type=pathlib.Path, default=pathlib.Path("build/thinwire"))
    parser.add_argument("models", nargs="*", default=["resnet20"], metavar="MODEL", help=f"of {', '.join(MODELS)}")
    parser.add_argument("--steps", type=int, default=10, help="that are timed in a turn, after two that are not")
    parser.add_argument("--turns", type=int, default=3)
    options = parser.parse_intermixed_args()
    for model in options.models:
        if model not in MODELS:
            parser.error(f"{model}: want one of {', '.join(MODELS)}")
        program = words_of(options, model)[0][0]
        if not program.exists():
            parser.error(f"{program} is not there: cmake --build build --target {program.name}")
    print(json.dumps({"threads": 1, "results": [compared(options, model) for model in options.models]}, indent=1))


if __name__ == "__main__":
    main()
