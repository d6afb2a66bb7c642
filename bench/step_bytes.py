#!/usr/bin/env python3
"""What a step of a transformer sends, and how long a line takes for it: the tables of docs/home-network.md.

    bench/step_bytes.py                              all models and schemes, as Markdown
    bench/step_bytes.py --models gpt2 --specs bf16 powersgd:rank=4
    bench/step_bytes.py --json FILE                  also a JSON, of which tools/figures makes tables

The bytes are the library's own: workers in one process exchange a gradient of noise, and the transport counts what
each sends and receives. Of matrices with a million elements or more, one of each shape is exchanged by itself and
counts as often as the model has it. All else of a model is exchanged together. The times are computed: the bytes of
the busiest worker, in the direction that has more, over the line's rate. They contain neither latency nor the codec's
time. The largest matrix of llama-7b takes 7 GB of memory with four workers.
"""
import argparse
import collections
import ctypes
import functools
import os
import pathlib
import random
import struct
import sys
import threading

from made import as_json, made

ROOT = pathlib.Path(__file__).resolve().parent.parent
LARGE = 1 << 20  # elements
SPECS = ["allreduce", "bf16", "fp8", "qsgd", "powersgd:rank=16", "powersgd:rank=4"]
RATES = {"100 Mbit/s": 1e8, "200 Mbit/s": 2e8, "1 Gbit/s": 1e9}


def gpt2(layers=12, width=768, words=50257, context=1024):
    """Radford et al. 2019, in Hugging Face's form: the first and the last layer share one matrix."""
    block = [(width,), (width,), (width, 3 * width), (3 * width,), (width, width), (width,),
             (width,), (width,), (width, 4 * width), (4 * width,), (4 * width, width), (width,)]
    return [(words, width), (context, width)] + layers * block + [(width,), (width,)]


def llama_linears(width, hidden, keys):
    return [(width, width), (keys, width), (keys, width), (width, width), (hidden, width), (hidden, width), (width, hidden)]


def llama(layers, width, hidden, keys, words=32000):
    """Touvron et al. 2023; `keys` is the width of keys and values, which groups of heads may share."""
    block = [*llama_linears(width, hidden, keys), (width,), (width,)]
    return [(words, width)] + layers * block + [(width,), (words, width)]


def lora(linears, rank):
    """The adapters of Hu et al. 2021, two thin matrices for each weight matrix; what they adapt is frozen."""
    return [shape for rows, columns in linears for shape in ((rank, columns), (rows, rank))]


TINY, SEVEN = (22, 2048, 5632, 256), (32, 4096, 11008, 4096)  # TinyLlama's sizes and those of Llama 2 7B
MODELS = {  # the name on the command line: (its title, its tensors, their elements as published)
    "gpt2": ("GPT-2", gpt2(), 124_439_808),
    "llama-1b": ("TinyLlama", llama(*TINY), 1_100_048_384),
    "llama-7b": ("Llama 2 7B", llama(*SEVEN), 6_738_415_616),
    "gpt2-lora": ("GPT-2, LoRA of rank 8 on `c_attn`", lora(12 * [(2304, 768)], 8), 294_912),
    "llama-1b-lora": ("TinyLlama, LoRA of rank 16 on each matrix", lora(TINY[0] * llama_linears(*TINY[1:]), 16), 12_615_680),
    "llama-7b-lora": ("Llama 2 7B, LoRA of rank 16 on each matrix", lora(SEVEN[0] * llama_linears(*SEVEN[1:]), 16), 39_976_960),
}


def elements(shapes):
    return sum(functools.reduce(int.__mul__, shape) for shape in shapes)


def noise(count, seed):
    """So many floats, made of some million over and over."""
    memory, draw = (ctypes.c_float * count)(), random.Random(seed)
    block = 1000 * struct.pack("<997f", *(draw.gauss(0, 1) for _ in range(997)))
    for begin in range(0, 4 * count, len(block)):
        ctypes.memmove(ctypes.addressof(memory) + begin, block, min(len(block), 4 * count - begin))
    return memory


def exchange(comm, spec, table, counts):
    """One rank's side of one step after the warm-up; counts[rank] is the larger of what it sends and receives."""
    import thinwire
    from thinwire.spec import with_option

    memory = noise(elements(shape for _, shape in table), comm.rank)
    with thinwire.Reducer(comm, with_option(spec, "warmup_steps", "0"), table) as reducer:
        before, address = comm.traffic(), ctypes.addressof(memory)
        for index, (_, shape) in enumerate(table):
            reducer.submit(index, address)
            address += 4 * elements([shape])
        assert reducer.wait(), "the step was skipped"
        after = comm.traffic()
    counts[comm.rank] = max(after[way] - before[way] for way in ("bytes_sent", "bytes_received"))


def bytes_together(spec, shapes, workers):
    """Bytes per step and direction, of the busiest worker, where all of `shapes` are one model."""
    import thinwire

    if not shapes:
        return 0
    table = [(f"tensor{index}", shape) for index, shape in enumerate(shapes)]
    comms, counts = thinwire.Comm.threads(workers), {}
    threads = [threading.Thread(target=exchange, args=(comm, spec, table, counts)) for comm in comms]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for comm in comms:
        comm.close()
    if len(counts) < workers:
        sys.exit(f"{spec}: the exchange failed; the reason is above")
    return max(counts.values())


@functools.lru_cache(maxsize=None)
def bytes_of_one(spec, shape, workers):
    return bytes_together(spec, [shape], workers)


def bytes_per_step(spec, shapes, workers, large=LARGE):
    """The same of a model that need not fit into memory."""
    alone = collections.Counter(shape for shape in shapes if elements([shape]) >= large)
    rest = bytes_together(spec, [shape for shape in shapes if shape not in alone], workers)
    return rest + sum(count * bytes_of_one(spec, shape, workers) for shape, count in alone.items())


def short(value):
    """Two digits that count, and no more than three places behind the point."""
    return f"{value:,.0f}" if value >= 9.95 else f"{value:.1f}" if value >= 0.995 else f"{value:.2g}" if value >= 0.01 else f"{value:.3f}"


def pairs(values):
    return " / ".join(map(short, values))


def rows_of(name, result):
    """A row a spec, of which the first names the model."""
    title, shapes, _ = MODELS[name]
    first = f"{title}, {elements(shapes) / 1e6:,.1f} M"
    for spec, counts in result.items():
        yield {"model": first, "spec": spec, "bytes": counts, "megabytes": pairs([count / 1e6 for count in counts]),
               "seconds": {line: pairs([8 * count / rate for count in counts]) for line, rate in RATES.items()}}
        first = ""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS), metavar="NAME", help=", ".join(MODELS))
    parser.add_argument("--specs", nargs="+", default=SPECS, metavar="SPEC", help=" ".join(SPECS))
    parser.add_argument("--workers", nargs="+", type=int, default=[2, 4], metavar="N", help="(default 2 4)")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE")
    parser.add_argument("--library", default=str(ROOT / "build/libthinwire.so.0"), help="(default build/libthinwire.so.0)")
    options = parser.parse_args()
    os.environ["THINWIRE_LIBRARY"] = options.library
    sys.path.insert(0, str(ROOT / "python/src"))
    print("| parameters that are trained | scheme | MB per step | " + " | ".join(f"s at {name}" for name in RATES) + " |")
    print("|---|---|" + "---:|" * (1 + len(RATES)))
    found = {"made": made(), "workers": options.workers, "whole": [], "adapters": []}
    for name in options.models:
        result = {spec: [bytes_per_step(spec, MODELS[name][1], workers) for workers in options.workers] for spec in options.specs}
        for row in rows_of(name, result):
            print(f"| {row['model']} | `{row['spec']}` | {row['megabytes']} | " + " | ".join(row["seconds"].values()) + " |", flush=True)
            found["adapters" if name.endswith("-lora") else "whole"].append(row)
    if options.json:
        options.json.write_text(as_json(found) + "\n")


if __name__ == "__main__":
    main()
