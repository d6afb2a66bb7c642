#!/bin/sh
# train.sh [THINWIRE]: ResNet-20 training steps a second, thinwire and PyTorch turn by turn on one thread; JSON.
# PyTorch is whatever PYTHON (default /usr/bin/python3) imports; without it, thinwire's figure stands alone.
set -eu
thinwire=${1:-build/thinwire}
python=${PYTHON:-/usr/bin/python3}
here=$(dirname "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export OMP_NUM_THREADS=1
for turn in 1 2 3; do
    "$thinwire" bench train --model resnet20 --batch 128 --steps 10 --json "$work/thinwire-$turn.json" > /dev/null
    "$python" "$here/resnet20_torch.py" --steps 10 > "$work/torch-$turn.json"
done
python3 - "$work" << 'PY'
import json, pathlib, statistics, sys
def median(name):
    rates = [json.loads(path.read_text()).get("images_per_second") for path in pathlib.Path(sys.argv[1]).glob(f"{name}-*.json")]
    return None if None in rates else statistics.median(rates)
ours, theirs = median("thinwire"), median("torch")
print(json.dumps({"model": "resnet20", "batch": 128, "threads": 1, "images_per_second": ours,
                  "torch_images_per_second": theirs, "ratio": ours / theirs if theirs else None}))
PY
