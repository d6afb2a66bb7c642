#!/usr/bin/env python3
"""What a reducer's exchange of ResNet-50's gradients costs over Ethernet links of a given rate, beside the line's limit.

    sudo bench/exchange.py                                      some schemes, 4 ranks, 1 Gbit/s
    sudo bench/exchange.py --rate 0.1 allreduce dgc:density=0.001,warmup_steps=0
    sudo bench/exchange.py --beside OTHER/bench_exchange        another build in turn with this one
    sudo bench/exchange.py --ranks 8 --per-link 4 dgc dgc:per_host=4        4 ranks behind each of 2 links

bench_exchange runs as MPI ranks, each in a network namespace of its own (bench/link.sh). A step is everything from the
first submit to the end of wait, codec included, on the slowest rank; the medians are over all steps of all rounds. The
limit, told where each rank has a link of its own, is the time that the bytes counted in the transport take at the
line's rate; of a full packet's 1,514 bytes 1,448 are a message's, so no share of the line is above 0.956. A table goes
to stderr, JSON to stdout.
"""
import argparse
import json
import pathlib
import signal
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
SPECS = ["allreduce", "fp16", "dgc:warmup_steps=0", "scalecom:warmup_steps=0", "powersgd:rank=1"]


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
    options = parser.parse_args()
    for program in filter(None, [options.program, options.beside]):
        if not program.is_file():
            parser.error(f"there is no {program}: cmake --build {program.parent} --target bench_exchange makes it")
    return options


def measure(options, program, spec):
    """The line of JSON that bench_exchange prints, from a network of its own."""
    ranks = f"{options.ranks // options.per_link}x{options.per_link}"
    command = [HERE / "link.sh", ranks, f"{round(options.rate * 1e6)}kbit", "-x", f"STEPS={options.steps}",
               program.resolve(), "mpi", spec]
    run = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        output, errors = run.communicate()
    except KeyboardInterrupt:
        run.terminate()  # and it takes its network away
        run.wait()
        sys.exit(130)
    if run.returncode == 77:
        print(errors.strip(), file=sys.stderr)
        sys.exit(77)
    if run.returncode:
        sys.exit(f"{program} failed with {spec}:\n{errors}")
    return json.loads(output)


def summarise(options, name, runs):
    steps = [step for run in runs for step in run["step_ms"]]
    median = statistics.median(steps)
    limit = max(runs[0]["bytes_sent"], runs[0]["bytes_received"]) * 8 / (options.rate * 1e9) * 1e3
    return {"build": name, "spec": runs[0]["spec"], "ms": median, "least_ms": min(steps), "most_ms": max(steps),
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
    print(f"{options.ranks} ranks, {options.rate:g} Gbit/s, 25,557,032 gradients; ms of the slowest rank", file=sys.stderr)
    print(f"\n{'spec':<32} {'build':<7} {'median':>8} {'least':>8} {'most':>8} {'limit':>8} {'share':>6} {'x dense':>8}",
          file=sys.stderr)
    for result in results:
        print(f"{result['spec']:<32} {result['build']:<7} {result['ms']:8.1f} {result['least_ms']:8.1f} "
              f"{result['most_ms']:8.1f} {result.get('limit_ms', nan):8.1f} {result.get('share', nan):6.3f} "
              f"{result.get('faster_than_dense', nan):8.1f}", file=sys.stderr)


def main():
    options = parse_line()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    builds = {"this": options.program, **({"beside": options.beside} if options.beside else {})}
    runs = {(spec, name): [] for spec in options.specs for name in builds}
    for _ in range(options.rounds):
        for (spec, name), found in runs.items():
            found.append(measure(options, builds[name], spec))
    results = [summarise(options, name, found) for (spec, name), found in runs.items()]
    add_ratios(results)
    show(options, results)
    print(json.dumps({"ranks": options.ranks, "gbit_per_second": options.rate, "steps": options.steps * options.rounds,
                      "results": results}, indent=1))


if __name__ == "__main__":
    main()
