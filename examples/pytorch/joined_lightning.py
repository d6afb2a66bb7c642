#!/usr/bin/env python3
"""The network of with_lightning.py on machines that know one address: each runs this line by itself, without torchrun.

    python examples/pytorch/joined_lightning.py --join 10.0.0.5:7000 --workers 2 --machine 0    # and --machine 1 on the other

Without --workers they come and go, and --machine is any number that no other has. Ctrl-C leaves, and the others go on."""

import argparse
from typing import List, Optional

import lightning
import torch
from torch.utils.data import DataLoader

from thinwire.torch.lightning import LocalUpdates
from with_lightning import Student, examples


def options(words: Optional[List[str]] = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--join", required=True, help="HOST:PORT")
    parser.add_argument("--workers", type=int, help="how many machines there are; without it they come and go")
    parser.add_argument("--quorum", type=int, default=0, help="without --workers, how many have to be there for those to go on; 1: one")
    parser.add_argument("--machine", type=int, default=0, help="by which it draws its examples")
    parser.add_argument("--spec", default="local:every=16", help="the method of local updates")
    parser.add_argument("--epochs", type=int, default=4)
    return parser.parse_args(words)


def main(words: Optional[List[str]] = None) -> None:
    o = options(words)
    lightning.seed_everything(1, verbose=False)
    module = Student()
    drawn = torch.Generator().manual_seed(o.machine)
    trainer = lightning.Trainer(accelerator="cpu", devices=1, max_epochs=o.epochs, logger=False, enable_checkpointing=False,
                                enable_progress_bar=False, enable_model_summary=False,
                                callbacks=[LocalUpdates(o.spec, join=o.join, workers=o.workers, quorum=o.quorum)])
    trainer.fit(module, DataLoader(examples(2048), batch_size=32, shuffle=True, generator=drawn))
    print(f"loss {sum(module.losses[-10:]) / 10:.3f} after {o.epochs} epochs", flush=True)


if __name__ == "__main__":
    main()
