#!/usr/bin/env python3
"""The small GPT of gpt.py on machines that know one address: each runs this line by itself, without torchrun.

    python examples/pytorch/joined.py --join 10.0.0.5:7000 --workers 2     # on both machines, of which one is 10.0.0.5
    python examples/pytorch/joined.py --join 10.0.0.5:7000                 # on any number, which may change

Without --workers the machine at the address opens the group, and others come while it trains. Ctrl-C leaves, and those that are
left go on. Without --key-file whoever reaches the port may take part."""

import argparse
import signal
from pathlib import Path
from typing import List, Optional

import torch

import gpt
import thinwire
import thinwire.torch
from thinwire.spec import settings_of


def options(words: Optional[List[str]] = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
                                     epilog="--text, --steps, --rate and the others of gpt.py --help go with it, but for --scheme, "
                                            "--every and --out.")
    parser.add_argument("--join", required=True, help="HOST:PORT")
    parser.add_argument("--workers", type=int, help="how many machines there are; without it they come and go")
    parser.add_argument("--quorum", type=int, default=0, help="without --workers, how many of them have to be there for those to go "
                        "on: 1 lets the last one train alone, and 0 is more than half")
    parser.add_argument("--key-file", type=Path, help="a secret that all machines have")
    parser.add_argument("--spec", default="diloco:every=50", help="the method of local updates")
    mine, rest = parser.parse_known_args(words)
    for word in rest:
        if word.split("=")[0] in ("--scheme", "--every", "--out"):
            parser.error(f"{word.split('=')[0]} is of no use here: --spec says what is exchanged and when, and nothing is saved")
    return argparse.Namespace(**{**vars(gpt.options(rest)), **vars(mine)})


def main(words: Optional[List[str]] = None) -> None:
    o = options(words)
    alphabet, text = gpt.read(o.text)
    learnt, unseen = text[:len(text) * 9 // 10], text[len(text) * 9 // 10:]
    torch.manual_seed(o.seed)
    model = gpt.GPT(len(alphabet), o.length, o.width, o.layers, o.heads).to(o.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=o.rate, weight_decay=0.01)
    transport = thinwire.Tcp(key=thinwire.read_key(o.key_file)) if o.key_file else "tcp"
    outer = thinwire.torch.OuterLoop(model, optimizer, o.spec, join=o.join, workers=o.workers, quorum=o.quorum, transport=transport,
                                     hook=False)
    every, own, asked = int(settings_of(o.spec)["every"]), 0, []
    meetings = 0 if o.workers else 1  # the one that opens a group counts as a round

    def tell(when: str) -> None:
        with outer.averaged():
            bits = gpt.bits(model, unseen, o.batch, o.length)
            print(f"{when}: {bits:.3f} bits a character, with weights {outer.hash}", flush=True)

    outer.begin()  # waits for the others, or to be let in
    if o.workers is None:
        signal.signal(signal.SIGINT, lambda *which: asked.append(which))
    while not asked:
        step = every * (int(outer.stats()["rounds"]) - meetings) + own  # the group's: a newcomer begins where the others are
        if step >= o.steps:
            break
        for group in optimizer.param_groups:
            group["lr"] = gpt.rate_at(step, o)
        generator = torch.Generator().manual_seed((o.seed * 1_000_000 + step) * 1000 + outer.rank)
        loss = gpt.loss_of(model, *gpt.drawn(learnt, generator, o.batch, o.length))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        own += 1
        if outer.step():  # a round has changed the weights
            own = 0
            tell(f"step {step + 1} of {outer.size}")
    if asked:
        outer.leave()
    else:
        outer.finish()
    tell("end")
    print(outer.summary(), flush=True)


if __name__ == "__main__":
    main()
