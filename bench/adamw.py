#!/usr/bin/env python3
"""What AdamW learns beside each scheme: the same small GPT, batches and rates, exchanged by PyTorch and by thinwire.

    torchrun --standalone --nproc_per_node=2 bench/adamw.py --text shakespeare.txt > adamw.json

Without --text it reads the documents of this repository. Each scheme of the command line trains once with every seed,
after a run without thinwire, which is what its losses are put beside. Prints one JSON object: of each scheme the loss on
text that nobody trained on, in nats a character, its gap to dense, and how many times smaller messages are than fp32."""

import statistics
import time

import small_gpt
import thinwire.torch
import torch
from small_gpt import gpt
from thinwire.spec import defaults_of, name_of, options_of, with_option
from torch.nn.parallel import DistributedDataParallel

SCHEMES = ("fp8", "qsgd", "powersgd:rank=16", "powersgd:rank=4", "topk:density=0.01", "onebit-adam", "dgc-adam",
           "dgc-adam:density=0.01,warmup_density=0.1", "dgc-adam:density=0.01,warmup_density=0.1,momentum=0.7")
CLIP = 1.0  # of the gradient's norm


def trained(o, scheme, seed, symbols, learnt, unseen):
    """The loss on unseen text, what the scheme sent, and how many parameters there are. None: no scheme."""
    torch.manual_seed(seed)
    model = gpt.GPT(symbols, o.length, o.width, o.layers, 4)
    ddp = DistributedDataParallel(model, gradient_as_bucket_view=True)
    spec = scheme and thinwire.for_run(scheme, o.steps)
    own = options_of(spec) if spec else {}
    optimizer = thinwire.torch.AdamW(ddp.parameters(), lr=o.rate, betas=(float(own.get("momentum", 0.9)), 0.99), weight_decay=0.1)
    if spec and "beta2" in defaults_of(name_of(spec)) and "clip" in defaults_of(name_of(spec)):
        spec = with_option(spec, "clip", str(CLIP))  # what comes out is no gradient to clip
    compressor = spec and thinwire.torch.attach(ddp, spec, optimizer=optimizer, fallback=False, banner=False)

    def clip():
        if not optimizer.takes_directions:
            torch.nn.utils.clip_grad_norm_(ddp.parameters(), CLIP)

    small_gpt.train(o, seed, ddp, optimizer, learnt, clip)
    counts = compressor.stats() if compressor else {"ratio": 1.0, "ratio_traffic": 1.0}
    if compressor:
        compressor.close()
    return small_gpt.loss_on(unseen, model, o), counts, sum(p.numel() for p in model.parameters())


def row(o, scheme, dense, *text):
    begin, runs = time.perf_counter(), [trained(o, scheme, seed, *text) for seed in range(1, o.seeds + 1)]
    losses = [loss for loss, _, _ in runs]
    found = {"scheme": scheme or "none", "loss": statistics.mean(losses), "losses": losses}
    if dense:
        found["gap"] = statistics.mean(mine - without for mine, without in zip(losses, dense["losses"]))
        found["deviation"] = statistics.stdev(losses) if o.seeds > 1 else None
    found.update({name: statistics.mean(counts[name] for _, counts, _ in runs) for name in ("ratio", "ratio_traffic")})
    small_gpt.say(f"{found['scheme']}: {found['loss']:.4f} after {time.perf_counter() - begin:.0f} s")
    return {**found, "parameters": runs[0][2]}


def main():
    o = small_gpt.parser_of(__doc__, "schemes", SCHEMES, steps=500, seeds=1, width=128, layers=4).parse_args()

    def rows(*text):
        dense = row(o, None, None, *text)
        return [dense, *(row(o, scheme, dense, *text) for scheme in o.schemes)]

    small_gpt.run(o, "schemes", rows)


if __name__ == "__main__":
    main()
