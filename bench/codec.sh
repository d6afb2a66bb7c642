#!/bin/sh
# codec.sh [THINWIRE [COUNT]]: `thinwire bench codec` at a density of 0.001 on one thread, and beside it the same steps
# in PyTorch: how many times faster ours are. PyTorch is whatever PYTHON (default /usr/bin/python3) imports; without it,
# thinwire's figures stand alone.
set -eu
thinwire=${1:-build/thinwire}
count=${2:-25600000}
python=${PYTHON:-/usr/bin/python3}
here=$(dirname "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$thinwire" bench codec --count "$count" --density 0.001 --json "$work/thinwire.json"
"$python" "$here/codec_torch.py" "$count" 0.001 > "$work/torch.json"
python3 - "$work" << 'PY'
import json, pathlib, sys
work = pathlib.Path(sys.argv[1])
ours = {result["codec"]: result for result in json.loads((work / "thinwire.json").read_text())["results"]}
torch = json.loads((work / "torch.json").read_text())
if "skipped" in torch:
    print(torch["skipped"])
    sys.exit()
least = {"masked update, sampled threshold": 5, "momentum, torch.topk": 10}  # times faster that we answer for
print(f"\nbeside PyTorch {torch['torch']} on one thread, which codes no bytes")
print(f"{'codec':12} {'in PyTorch':34} {'torch ms':>9} {'thinwire ms':>12} {'ratio':>7} {'at least':>9}")
for result in torch["results"]:
    theirs, mine = result["encode_ms"], ours[result["codec"]]["encode_ms"]
    print(f"{result['codec']:12} {result['step']:34} {theirs:9.1f} {mine:12.1f} {theirs / mine:7.1f} "
          f"{least.get(result['step'], ''):>9}")
PY
