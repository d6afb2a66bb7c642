#!/bin/sh
# Runs a program as MPI ranks that see each other over Ethernet links of a given rate, on this one machine: each rank in
# a network namespace of its own, a veth pair to a common bridge, and token buckets (tc tbf) on both ends of the pair.
#
#     sudo bench/link.sh 4 1gbit build/thinwire train image --sync dgc --steps 200
#     sudo bench/link.sh 4x2 1gbit build/thinwire train image --sync dgc:per_host=2 --steps 200
#
# HOSTSxRANKS puts so many ranks behind each link; they talk to each other through the machine's memory. With MPI=no in
# the environment the program runs once, in no namespace: it finds their name without the number in LINK, and starts what
# it wants in there. With
# DELAY=MILLISECONDS in the environment a round trip takes so long: the cables are bench/relay.c, built as RELAY
# (build/bench_relay).
# Needs root, iproute2 (ip, tc) and Open MPI; ends with 77 where they are not to be had. The namespaces, tw-link-PID-0
# and so on, are removed at the end.
set -eu
[ $# -ge 3 ] || { sed -n '2,14s/^# \{0,1\}//p' "$0"; exit 2; }
links=${1%x*} each=1 rate=$2
[ "$1" = "$links" ] || each=${1#*x}
ranks=$((links * each))
delay=${DELAY:-0} relay=${RELAY:-build/bench_relay}
shift 2

cannot() { echo "link.sh: $1" >&2; exit 77; }
[ "$(id -u)" = 0 ] || cannot "only root may make network namespaces; run it with sudo"
for tool in ip tc $([ "${MPI:-yes}" = no ] || echo mpirun); do command -v "$tool" >/dev/null || cannot "$tool is not installed"; done
name=tw-link-$$
ip netns add "$name-hub" 2>/dev/null || cannot "this machine lets nobody make a network namespace (ip netns add)"

work=$(mktemp -d)
hosts="" relays=""
remove() {
    trap '' INT TERM PIPE # a second one would leave half of it
    for pid in $relays; do kill "$pid" 2>/dev/null || true; done
    for i in $(seq 0 $((links - 1))) hub; do
        ip netns pids "$name-$i" 2>/dev/null | xargs -r kill -KILL 2>/dev/null || true # a rank that mpirun has lost
        ip netns del "$name-$i" 2>/dev/null || true
    done
    rm -rf "$work"
}
trap remove EXIT
trap 'exit 130' INT TERM

# Bursts pass unshaped: at 1 Gbit/s 256 kB is as small as a bucket can be here before it throttles TCP. BURST in the
# environment is another size.
shape() { ip netns exec "$1" tc qdisc add dev "$2" root tbf rate "$rate" burst "${BURST:-256kb}" latency 20ms; }

# The kernel hands over a train of packets as one of up to 64 kB, and a queue that has no room for it loses most of it at
# once: on slow links two fifths of all that was sent. A network card would have put single packets on the cable.
single_packets() {
    awk -v rate="$rate" 'BEGIN { exit (rate / (rate ~ /gbit$/ ? 1 : rate ~ /mbit$/ ? 1e3 : 1e6) < 1) }' && return
    ip -n "$1" link set dev eth0 gso_max_segs 1 || cannot "this ip cannot set gso_max_segs"
}

# Between host $1 and port $2 of the hub. A round trip goes through four cables.
connect() {
    if [ "$delay" = 0 ]; then
        ip link add eth0 netns "$1" type veth peer name "$2" netns "$name-hub"
        return
    fi
    "$relay" "$(awk "BEGIN { print $delay / 4 }")" "$1:eth0" "$name-hub:$2" &
    relays="$relays $!"
    until ip -n "$name-hub" link show "$2" >/dev/null 2>&1; do
        kill -0 "$!" 2>/dev/null || cannot "$relay makes no cable"
        sleep 0.05
    done
}

ip -n "$name-hub" link add bridge type bridge
ip -n "$name-hub" link set bridge up
for i in $(seq 0 $((links - 1))); do
    host=$name-$i
    ip netns add "$host"
    connect "$host" "port$i"
    ip -n "$name-hub" link set "port$i" master bridge up
    ip -n "$host" addr add "10.77.0.$((i + 1))/24" dev eth0
    ip -n "$host" link set lo up
    ip -n "$host" link set eth0 up
    ip netns exec "$host" sysctl -qw net.ipv4.tcp_congestion_control=cubic 2>/dev/null || true
    single_packets "$host"
    shape "$host" eth0
    shape "$name-hub" "port$i"
    hosts=${hosts:+$hosts,}$host:$each
done

btl=tcp,self
[ "$each" = 1 ] || btl=vader,$btl

# mpirun starts its daemons through what it takes for rsh. A host name of its own keeps their folders apart.
cat >"$work/agent" <<'EOF'
#!/bin/sh
host=$1
shift
exec ip netns exec "$host" unshare --uts /bin/sh -c "hostname $host; $*"
EOF
chmod +x "$work/agent"
if [ "${MPI:-yes}" = no ]; then
    LINK=$name "$@" &
else
    OMP_NUM_THREADS=1 ip netns exec "$name-0" unshare --uts \
        sh -c 'hostname "$0"; exec mpirun --allow-run-as-root "$@"' "$name-0" \
        -np "$ranks" --host "$hosts" --bind-to none -x OMP_NUM_THREADS \
        --mca plm rsh --mca plm_rsh_agent "$work/agent" --mca btl "$btl" --mca pml ob1 \
        --mca btl_tcp_if_include eth0 --mca oob_tcp_if_include eth0 --mca mpi_yield_when_idle 1 "$@" &
fi
run=$!
# mpirun ends its ranks. Should it not, it is ended itself, and remove() ends them.
end() {
    trap '' INT TERM PIPE # nobody may read what the shell says of it
    kill -TERM "$run"
    (sleep 10; kill -KILL "$run") >/dev/null 2>&1 &
    wait "$run" || true
    kill -KILL $! 2>/dev/null || true
    exit 130
}
trap end INT TERM
wait "$run"
