#!/usr/bin/env python3
"""What nanoGPT's own train.py learns with AdamW beside each scheme. Not a line of it is changed.

    git clone https://github.com/karpathy/nanoGPT && python3 nanoGPT/data/shakespeare_char/prepare.py
    bench/nanogpt.py nanoGPT > nanogpt.json             the schemes of docs/pytorch.md; or those that are named

Each worker is a process that runs the script, on this machine's processor. The script knows no other worker: it has
AdamW made by thinwire.torch, and an Exchange of the model that this optimizer trains. So the batches differ, and the
gradients are those of all. The network is the one that nanoGPT's README has for a processor, of 0.8 million parameters. Prints
one JSON object: of each scheme the validation loss that the script found at its last step, how many times smaller
messages were than fp32 after the warm-up, and how many times less a worker sent over the whole run than a dense ring.
Needs torch 2.1 and numpy."""

import argparse
import contextlib
import json
import os
import runpy
import subprocess
import sys
import tempfile
from pathlib import Path

from made import as_json, made

SCHEMES = ("allreduce", "fp8", "qsgd", "powersgd:rank=16,warmup_steps=0", "powersgd:rank=4,warmup_steps=0",
           "powersgd:rank=1,warmup_steps=0", "onebit-adam", "dgc-adam", "dgc-adam:density=0.01,warmup_density=0.1",
           "dgc-adam:density=0.005,warmup_density=0.05", "scalecom", "topk:density=0.01", "adacomp")
NETWORK = {"device": "cpu", "compile": False, "n_layer": 4, "n_head": 4, "n_embd": 128, "block_size": 64, "batch_size": 12,
           "dropout": 0.0, "eval_iters": 50, "log_interval": 50}


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="of nanoGPT, with data/shakespeare_char/train.bin")
    parser.add_argument("schemes", nargs="*", default=SCHEMES)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--clip", type=float, default=1.0, metavar="NORM", help="of the gradient; 0: none is (default %(default)s)")
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)  # its number, and where they meet
    return parser.parse_intermixed_args()


def work(o):
    """One worker's run of the script. Rank 0 prints a line of JSON."""
    import small_gpt
    import thinwire.torch
    import torch
    from thinwire.torch.launch import trained_by
    rank, exchanges = int(o.worker[0]), []
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{o.worker[1]}/meeting", rank=rank, world_size=o.workers)
    scheme = small_gpt.Beside(o.schemes[0], o.steps, o.clip)

    def adamw(groups, **words):
        torch.optim.AdamW = torchs  # which thinwire's needs in each step
        optimizer = thinwire.torch.AdamW(groups, **words)
        model, = trained_by(optimizer)  # the script's only one
        exchanges.append(thinwire.torch.Exchange(model, scheme.spec, optimizer=optimizer, banner=False))
        return optimizer

    torchs, seeded, torch.optim.AdamW = torch.optim.AdamW, torch.manual_seed, adamw
    torch.manual_seed = lambda seed: seeded(seed + rank)  # as the script itself has it where it knows its rank
    words = {**NETWORK, "max_iters": o.steps, "lr_decay_iters": o.steps, "eval_interval": o.steps, "beta1": scheme.beta1,
             "grad_clip": 0.0 if scheme.gives_directions else o.clip, "out_dir": f"{o.worker[1]}/{rank}"}
    os.chdir(o.folder)
    sys.argv = ["train.py", "config/train_shakespeare_char.py", *(f"--{name}={value}" for name, value in words.items())]
    sys.path.insert(0, os.getcwd())
    with contextlib.redirect_stdout(sys.stderr if rank == 0 else None):
        left = runpy.run_path("train.py", run_name="__main__")
    stats = exchanges[0].compressor.stats()
    if rank == 0:
        print(json.dumps({"loss": left["losses"]["val"].item(), "ratio": stats["ratio"], "ratio_traffic": stats["ratio_traffic"]}))
    exchanges[0].close()
    torch.distributed.barrier()
    os._exit(0)


def run(o, scheme):
    with tempfile.TemporaryDirectory() as meeting:
        jobs = [subprocess.Popen([sys.executable, __file__, o.folder.resolve(), scheme, f"--workers={o.workers}",
                                  f"--steps={o.steps}", f"--clip={o.clip}", "--worker", str(rank), meeting], stdout=subprocess.PIPE, text=True)
                for rank in range(o.workers)]
        told = [job.communicate()[0] for job in jobs]
    if any(job.returncode for job in jobs):
        sys.exit(f"{scheme}: a worker has failed")
    return {"scheme": scheme, **json.loads(told[0])}


def main():
    o = options()
    if o.worker:
        work(o)
    rows = []
    for scheme in o.schemes:
        rows.append(run(o, scheme))
        rows[-1]["above"] = rows[-1]["loss"] - rows[0]["loss"] if len(rows) > 1 else None
        print(rows[-1], file=sys.stderr, flush=True)
    print(as_json({"made": made(), "workers": o.workers, "steps": o.steps, "clip": o.clip, "rows": rows}))


if __name__ == "__main__":
    main()
