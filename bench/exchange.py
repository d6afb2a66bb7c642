#!/usr/bin/env python3
"""What a reducer's exchange of ResNet-50's gradients costs over Ethernet links of a given rate, beside the line's limit.

    sudo bench/exchange.py                                      some schemes, 4 ranks, 1 Gbit/s
    sudo bench/exchange.py --rate 0.1 allreduce dgc:density=0.001,warmup_steps=0
    sudo bench/exchange.py --beside OTHER/bench_exchange        another build in turn with this one
    sudo bench/exchange.py --transports mpi,tcp allreduce       sockets in turn with MPI
    sudo bench/exchange.py --rate 0.1 --delay 40 --transports mpi,tcp,gloo --streams 1,2,4 allreduce
    sudo bench/exchange.py --delay 40 --transports tcp,raw --streams 4 allreduce       what the line itself carries
    sudo bench/exchange.py --ranks 8 --per-link 4 dgc dgc:per_host=4        4 ranks behind each of 2 links

gloo is PyTorch's own dense all-reduce of as many values; --python names the interpreter that has PyTorch. It takes part
in the spec allreduce only. So does raw, connections that carry as many bytes around a ring and do nothing else
(bench/raw_ring.py): what they do not reach is the machine's limit, or that of its long cables. --streams says how many
connections a pair of ranks has over tcp, and how many raw has, --delay how many milliseconds a round trip takes.

bench_exchange runs as MPI ranks, each in a network namespace of its own (bench/link.sh). A step is everything from the
first submit to the end of wait, codec included, on the slowest rank; the medians are over all steps of all rounds. The
limit, told where each rank has a link of its own, is the time that the bytes counted in the transport take at the
line's rate; of a full packet's 1,514 bytes 1,448 are a message's, so no share of the line is above 0.956. Each result
has the load average of the machine, the highest before any of its runs: with more than there are cores, others took
part. A table goes to stderr, JSON to stdout.
"""
import argparse
import json
import os
import pathlib
import signal
import statistics
import sys

import link
from made import as_json, made

HERE = pathlib.Path(__file__).resolve().parent
DENSE_ONLY = ("gloo", "raw")
SPECS = ["allreduce", "fp16", "dgc:warmup_steps=0", "scalecom:warmup_steps=0", "powersgd:rank=1,warmup_steps=0"]


def parse_line():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("specs", nargs="*", default=SPECS, metavar="SPEC", help=f"(default {' '.join(SPECS)})")
    parser.add_argument("--program", type=pathlib.Path, default=pathlib.Path("build/bench_exchange"), metavar="FILE",
                        help="bench_exchange of the build to measure (default build/bench_exchange)")
    parser.add_argument("--beside", type=pathlib.Path, metavar="FILE", help="bench_exchange of another build")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--per-link", type=int, default=1, metavar="N", help="ranks behind a link (default 1)")
    parser.add_argument("--rate", type=float, default=1, help="of the links, in Gbit/s (default 1)")
    parser.add_argument("--steps", type=int, default=11, help="measured in a round (default 11)")
    parser.add_argument("--rounds", type=int, default=2, help="in which the builds and specs take turns (default 2)")
    parser.add_argument("--transports", default="mpi", metavar="LIST",
                        help="of mpi, tcp, gloo and raw, with commas between them (default mpi)")
    parser.add_argument("--streams", default="1", metavar="LIST",
                        help="connections a pair, of tcp and raw (default 1)")
    parser.add_argument("--delay", type=float, default=0, metavar="MS",
                        help="of a round trip; needs bench_relay beside bench_exchange (default 0)")
    parser.add_argument("--python", default=sys.executable, metavar="FILE", help="of gloo (default this interpreter)")
    parser.add_argument("--seconds", type=float, default=900, help="to give a run up after (default 900)")
    options = parser.parse_args()
    options.relay = options.program.parent / "bench_relay"
    for program in filter(None, [options.program, options.beside, options.delay and options.relay]):
        if not program.is_file():
            parser.error(f"there is no {program}: cmake --build {program.parent} --target {program.name} makes it")
    options.ways = [way for transport in options.transports.split(",")
                    for way in ways_of(options, transport)]
    unknown = {transport for _, transport, _ in options.ways} - {"mpi", "tcp", *DENSE_ONLY}
    if unknown:
        parser.error(f"--transports are mpi, tcp, gloo and raw; there is none called {unknown.pop()!r}")
    return options


def ways_of(options, transport):
    """The names of what takes turns, each with its transport and the connections a pair has."""
    if transport not in ("tcp", "raw"):
        return [(transport, transport, 1)]
    return [(f"{transport} x{count}" if "," in options.streams else transport, transport, int(count))
            for count in options.streams.split(",")]


def measure(options, program, way, spec):
    """The line of JSON that bench_exchange prints, from a network of its own. MPI's launcher starts the ranks in any case."""
    _, transport, streams = way
    load = os.getloadavg()[0]
    ranks = f"{options.ranks // options.per_link}x{options.per_link}"
    words = ["-x", f"STEPS={options.steps}"]
    if transport == "gloo":
        words += ["-x", "JOIN=10.77.0.1:29500", options.python, HERE / "gloo_torch.py"]
    elif transport == "raw":
        words += ["-x", f"THINWIRE_STREAMS={streams}", sys.executable, HERE / "raw_ring.py"]
    else:
        words += ["-x", "THINWIRE_JOIN=10.77.0.1:29400", "-x", f"THINWIRE_STREAMS={streams}", program.resolve(),
                  transport, spec]
    try:
        output = link.run(ranks, options.rate, words, options.seconds, options.delay, options.relay)
    except KeyboardInterrupt:
        sys.exit(130)
    except link.Missing as missing:
        print(missing, file=sys.stderr)
        sys.exit(77)
    except link.Failed as failure:
        sys.exit(f"{way[0]} failed with {spec}: {failure}")
    return {**json.loads(output), "load": load}


def summarise(options, name, runs):
    steps = [step for run in runs for step in run["step_ms"]]
    median = statistics.median(steps)
    limit = max(runs[0]["bytes_sent"], runs[0]["bytes_received"]) * 8 / (options.rate * 1e9) * 1e3
    return {"build": name, "spec": runs[0]["spec"], "ms": median, "least_ms": min(steps), "most_ms": max(steps),
            "load": max(run["load"] for run in runs),
            "codec_ms": statistics.median(run["codec_ms"] for run in runs),
            "bytes_sent": runs[0]["bytes_sent"], "bytes_received": runs[0]["bytes_received"],
            **({"limit_ms": limit, "share": limit / median} if options.per_link == 1 else {})}


def add_ratios(results):
    """How many times faster than the dense exchange of the same build."""
    dense = {result["build"]: result["ms"] for result in results if result["spec"].split(":")[0] == "allreduce"}
    for result in results:
        if result["build"] in dense:
            result["faster_than_dense"] = dense[result["build"]] / result["ms"]


def show(options, results):
    nan = float("nan")
    delay = f", {options.delay:g} ms" if options.delay else ""
    print(f"{options.ranks} ranks, {options.rate:g} Gbit/s{delay}, 25,557,032 gradients; ms of the slowest rank",
          file=sys.stderr)
    print(f"\n{'spec':<32} {'build':<11} {'median':>8} {'least':>8} {'most':>8} {'limit':>8} {'share':>6} "
          f"{'x dense':>8} {'load':>5}", file=sys.stderr)
    for result in results:
        print(f"{result['spec']:<32} {result['build']:<11} {result['ms']:8.1f} {result['least_ms']:8.1f} "
              f"{result['most_ms']:8.1f} {result.get('limit_ms', nan):8.1f} {result.get('share', nan):6.3f} "
              f"{result.get('faster_than_dense', nan):8.1f} {result['load']:5.1f}", file=sys.stderr)


def main():
    options = parse_line()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    programs = {"this": options.program, **({"beside": options.beside} if options.beside else {})}
    builds = {f"{name} {way[0]}": (program, way) for name, program in programs.items() for way in options.ways
              if name == "this" or way[1] not in DENSE_ONLY}
    runs = {(spec, name): [] for spec in options.specs for name, (_, way) in builds.items()
            if spec == "allreduce" or way[1] not in DENSE_ONLY}
    for _ in range(options.rounds):
        for (spec, name), found in runs.items():
            found.append(measure(options, *builds[name], spec))
    results = [summarise(options, name, found) for (spec, name), found in runs.items()]
    add_ratios(results)
    show(options, results)
    print(as_json({"made": made(), "ranks": options.ranks, "gbit_per_second": options.rate, "round_trip_ms": options.delay,
                   "steps": options.steps * options.rounds,
                   "results": results}))


if __name__ == "__main__":
    main()
