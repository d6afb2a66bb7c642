#!/bin/sh
# transformer.sh [THINWIRE]: milliseconds of a transformer's training step, thinwire and PyTorch turn by turn on one
# thread; JSON. cpu_ratio compares processor time instead of wall time: the figure to look at where others use the machine
# too. PyTorch, 2.4 or later, is whatever PYTHON (default /usr/bin/python3) imports; without it, thinwire's figures stand
# alone. STEPS (default 5) are timed in each of TURNS (default 3).
set -eu
thinwire=${1:-build/thinwire}
python=${PYTHON:-/usr/bin/python3}
here=$(dirname "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1
for turn in $(seq "${TURNS:-3}"); do
    "$thinwire" bench train --model lm-transformer --steps "${STEPS:-5}" --json "$work/thinwire-$turn.json" > /dev/null
    "$python" "$here/transformer_torch.py" --steps "${STEPS:-5}" > "$work/torch-$turn.json"
done
python3 - "$work" << 'PY'
import json, pathlib, statistics, sys
def turns(name):
    return [json.loads(path.read_text()) for path in sorted(pathlib.Path(sys.argv[1]).glob(f"{name}-[0-9]*.json"))]
def median(runs, key):
    times = [run.get(key) for run in runs]
    return None if None in times else statistics.median(times)
ours, theirs = turns("thinwire"), turns("torch")
result = {"model": "lm-transformer", "threads": 1, "torch": theirs[0].get("torch"), "skipped": theirs[0].get("skipped")}
for key, ratio in (("step_ms", "ratio"), ("step_cpu_ms", "cpu_ratio")):
    result[key], result["torch_" + key] = median(ours, key), median(theirs, key)
    result[ratio] = result["torch_" + key] / result[key] if result["torch_" + key] else None
print(json.dumps(result))
PY
