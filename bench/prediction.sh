#!/bin/sh
# What the simulator predicts, beside what was measured: thinwire train as MPI ranks over shaped links on this machine,
# and thinwire simulate from what each run recorded.
#
#     sudo bench/prediction.sh build/thinwire
#     sudo RANKS=4 RATE=1 STEPS=200 OPTIONS="--batch 64" bench/prediction.sh build/thinwire allreduce dgc adpsgd-random
#
# RATE is in Gbit/s. Needs what bench/link.sh needs, and a machine that does nothing else.
set -eu
[ $# -ge 1 ] || { sed -n '2,8s/^# \{0,1\}//p' "$0"; exit 2; }
program=$1
shift
[ $# -gt 0 ] || set -- allreduce dgc:density=0.001,warmup_steps=0 adpsgd-random
# Of 1,514 bytes that a full packet takes on the line, 1,448 are a message's.
line=$(awk "BEGIN { print ${RATE:-1} * 1448 / 1514 }")Gbit
runs=$(mktemp -d)
trap 'rm -rf "$runs"' EXIT
for sync in "$@"; do
    run=$runs/${sync%%:*}
    # shellcheck disable=SC2086 # OPTIONS are words
    "$(dirname "$0")/link.sh" "${RANKS:-4}" "${RATE:-1}gbit" "$program" train image --sync "$sync" \
        --steps "${STEPS:-200}" ${OPTIONS:---batch 64} --out "$run" --quiet
    "$program" simulate none --trace "$run" --link "$line,0.1ms" --workers 1 --steps 1 --sync allreduce --quiet |
        head -2
done
