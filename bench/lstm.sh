#!/bin/sh
# lstm.sh [THINWIRE]: milliseconds of an LSTM training step, thinwire and PyTorch turn by turn on one thread; JSON.
# PyTorch is whatever PYTHON (default /usr/bin/python3) imports; without it, thinwire's figures stand alone. STEPS
# (default 5) are timed in each of TURNS (default 3).
set -eu
thinwire=${1:-build/thinwire}
python=${PYTHON:-/usr/bin/python3}
here=$(dirname "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
for turn in $(seq "${TURNS:-3}"); do
    for model in lstm-2x650 bilstm-2x256 lm-medium; do
        "$thinwire" bench train --model $model --steps "${STEPS:-5}" --json "$work/thinwire-$model-$turn.json" > /dev/null
        "$python" "$here/lstm_torch.py" --model $model --steps "${STEPS:-5}" > "$work/torch-$model-$turn.json"
    done
done
python3 - "$work" << 'PY'
import json, pathlib, statistics, sys
def turns(name):
    return [json.loads(path.read_text()) for path in sorted(pathlib.Path(sys.argv[1]).glob(f"{name}-[0-9]*.json"))]
def median(runs):
    times = [run.get("step_ms") for run in runs]
    return None if None in times else statistics.median(times)
results = []
for model in ("lstm-2x650", "bilstm-2x256", "lm-medium"):
    torch = turns(f"torch-{model}")
    ours, theirs = median(turns(f"thinwire-{model}")), median(torch)
    results.append({"model": model, "step_ms": ours, "torch_step_ms": theirs, "ratio": theirs / ours if theirs else None,
                    "torch": torch[0].get("torch"), "blas": torch[0].get("blas")})
print(json.dumps({"threads": 1, "results": results}))
PY
