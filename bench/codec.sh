#!/bin/sh
# codec.sh [THINWIRE [COUNT]]: `thinwire bench codec` at a density of 0.001 on one thread, and beside it the same steps
# in PyTorch: how many times faster ours are. PyTorch is whatever PYTHON (default /usr/bin/python3) imports; without it,
# thinwire's figures stand alone. JSON, the joined table, goes to the file that CODEC_JSON names.
set -eu
thinwire=${1:-build/thinwire}
count=${2:-25600000}
python=${PYTHON:-/usr/bin/python3}
here=$(dirname "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$thinwire" bench codec --count "$count" --density 0.001 --json "$work/thinwire.json"
"$python" "$here/codec_torch.py" --count "$count" --density 0.001 > "$work/torch.json"
python3 - "$work" "${CODEC_JSON:-}" << 'PY'
import json, pathlib, sys
work, output = pathlib.Path(sys.argv[1]), sys.argv[2]
ours = {result["codec"]: result for result in json.loads((work / "thinwire.json").read_text())["results"]}
torch = json.loads((work / "torch.json").read_text())
if "skipped" in torch:
    print(torch["skipped"])
    sys.exit()
least = {"masked update, sampled threshold": 5, "momentum, torch.topk": 10}  # times faster that we answer for
rows = [{"codec": result["codec"], "step": result["step"], "torch_ms": result["encode_ms"],
         "thinwire_ms": ours[result["codec"]]["encode_ms"], "at_least": least.get(result["step"])}
        for result in torch["results"] if result["codec"] in ours]
print(f"\nbeside PyTorch {torch['torch']} on one thread, which codes no bytes")
print(f"{'codec':12} {'in PyTorch':34} {'torch ms':>9} {'thinwire ms':>12} {'ratio':>7} {'at least':>9}")
for row in rows:
    row["ratio"] = row["torch_ms"] / row["thinwire_ms"]
    print(f"{row['codec']:12} {row['step']:34} {row['torch_ms']:9.1f} {row['thinwire_ms']:12.1f} {row['ratio']:7.1f} "
          f"{row['at_least'] or '':>9}")
if output:
    pathlib.Path(output).write_text(json.dumps({"torch": torch["torch"], "results": rows}, indent=1) + "\n")
PY
