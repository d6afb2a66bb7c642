#!/bin/sh
# w2v_bert.sh [--check] [BENCH]: milliseconds of a training step of w2v-BERT's size "tiny" on 64 seconds of audio,
# thinwire and PyTorch turn by turn on one thread, with dropout 0.1 and without; JSON. cpu_ratio compares processor time
# instead of wall time: the figure to look at where others use the machine too. With --check both take one step from the
# same weights, and their three losses must agree to 1e-4 and their gradients to 1e-3 of each tensor's length.
# PyTorch, 2.0 or later, is whatever PYTHON (default python3) imports. BENCH is build/bench_w2v_bert, which
# `cmake --build build --target bench_w2v_bert` makes. STEPS (default 5) are timed in each of TURNS (default 3).
set -eu
check=
if [ "${1:-}" = --check ]; then check=1; shift; fi
bench=${1:-build/bench_w2v_bert}
python=${PYTHON:-python3}
here=$(dirname "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export OMP_NUM_THREADS=1
if [ -n "$check" ]; then
    "$bench" 1 1 "$work" > "$work/ours.json"
    "$python" "$here/w2v_bert_torch.py" --check "$work" > "$work/torch.json"
else
    for turn in $(seq "${TURNS:-3}"); do
        for dropout in 0.1 0; do
            "$bench" "${STEPS:-5}" "$(python3 -c "print(1 - $dropout)")" > "$work/ours-$dropout-$turn.json"
            "$python" "$here/w2v_bert_torch.py" --steps "${STEPS:-5}" --dropout $dropout > "$work/torch-$dropout-$turn.json"
        done
    done
fi
python3 - "$work" "$check" << 'PY'
import json, pathlib, statistics, sys
work = pathlib.Path(sys.argv[1])
def read(name):
    return [json.loads(path.read_text()) for path in sorted(work.glob(f"{name}.json"))]
def compare(ours, theirs):
    if "skipped" in theirs:
        sys.exit(theirs["skipped"])
    apart = {name: abs(ours[name] - theirs[name]) for name in ("contrastive", "diversity", "masked")}
    print(json.dumps({"thinwire": ours, "torch": theirs, "apart": apart}))
    return max(apart.values()) <= 1e-4 and theirs["gradient_apart"] <= 1e-3
if sys.argv[2]:
    sys.exit(0 if compare(read("ours")[0], read("torch")[0]) else 1)
results = []
for dropout in ("0.1", "0"):
    ours, theirs = read(f"ours-{dropout}-*"), read(f"torch-{dropout}-*")
    result = {"dropout": float(dropout), "torch": theirs[0].get("torch")}
    for key, ratio in (("step_ms", "ratio"), ("step_cpu_ms", "cpu_ratio")):
        result[key] = statistics.median(run[key] for run in ours)
        if "skipped" not in theirs[0]:
            result["torch_" + key] = statistics.median(run[key] for run in theirs)
            result[ratio] = result["torch_" + key] / result[key]
    results.append(result)
print(json.dumps({"threads": 1, "seconds_of_audio": 64, "results": results}, indent=1))
PY
