#!/usr/bin/env python3
"""The GPT-2 of with_trainer.py on machines that know one address: each runs this line by itself, without torchrun.

    python examples/pytorch/joined_trainer.py --join 10.0.0.5:7000 --workers 2 --machine 0    # and --machine 1 on the other

Without --workers they come and go, and --machine is any number that no other has. Ctrl-C leaves, and the others go on."""

import argparse
from pathlib import Path
from typing import List, Optional

from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed

import thinwire
from with_trainer import DOCUMENTS, rows_of


def options(words: Optional[List[str]] = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--join", required=True, help="HOST:PORT")
    parser.add_argument("--workers", type=int, help="how many machines there are; without it they come and go")
    parser.add_argument("--quorum", type=int, default=0, help="without --workers, how many have to be there for those to go on; 1: one")
    parser.add_argument("--machine", type=int, default=0, help="by which it draws its examples")
    parser.add_argument("--spec", default="local:every=16", help="the method of local updates")
    parser.add_argument("--steps", type=int, default=192)
    parser.add_argument("--out", type=Path, default=Path("runs/joined_trainer"))
    return parser.parse_args(words)


def main(words: Optional[List[str]] = None) -> None:
    o = options(words)
    set_seed(1)
    symbols, rows = rows_of(sorted(DOCUMENTS.glob("*.md")), 64)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=symbols, n_positions=64, n_embd=64, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0))
    arguments = TrainingArguments(
        output_dir=str(o.out / f"machine{o.machine}"), max_steps=o.steps, per_device_train_batch_size=8, learning_rate=3e-3,
        data_seed=o.machine, logging_steps=16, report_to=[], disable_tqdm=True, use_cpu=True)
    trainer = Trainer(model, arguments, train_dataset=rows)
    trainer.add_callback(thinwire.TrainerCallback(o.spec, join=o.join, workers=o.workers, quorum=o.quorum))
    trainer.train()


if __name__ == "__main__":
    main()
