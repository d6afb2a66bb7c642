#!/usr/bin/env python3
"""The Trainer of transformers with thinwire: one callback. A small GPT-2 learns characters.

    torchrun --standalone --nproc_per_node=2 examples/pytorch/with_trainer.py --text shakespeare.txt --out runs/trainer

Without --text it reads the documents of this repository. Started with --resume it goes on from the last checkpoint in
--out, with what thinwire kept for later steps."""

import argparse
from pathlib import Path
from typing import Dict, List, Optional, Tuple

import torch
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed

from thinwire.torch.transformers import Thinwire

DOCUMENTS = Path(__file__).resolve().parents[2] / "docs"


def options(words: Optional[List[str]] = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=Path, nargs="*", default=sorted(DOCUMENTS.glob("*.md")), help="files in UTF-8")
    parser.add_argument("--scheme", default="powersgd:rank=16", help="none: without thinwire")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--every", type=int, default=100, help="steps between checkpoints")
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--out", type=Path, default=Path("runs/trainer"))
    parser.add_argument("--resume", action="store_true")
    return parser.parse_args(words)


def rows_of(paths: List[Path], length: int) -> Tuple[int, List[Dict[str, torch.Tensor]]]:
    """How many symbols there are, and the text in rows of `length`."""
    text = "\n".join(path.read_text(encoding="utf-8") for path in paths)
    alphabet = sorted(set(text))
    number = {symbol: i for i, symbol in enumerate(alphabet)}
    rows = torch.tensor([number[symbol] for symbol in text[:len(text) // length * length]]).reshape(-1, length)
    return len(alphabet), [{"input_ids": row, "labels": row} for row in rows]


def main(words: Optional[List[str]] = None) -> Tuple[nn.Module, List[float]]:
    o = options(words)
    set_seed(1)
    symbols, rows = rows_of(o.text, o.length)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=symbols, n_positions=o.length, n_embd=o.width, n_layer=2, n_head=2,
                                       resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0, eos_token_id=0))
    arguments = TrainingArguments(
        output_dir=str(o.out), max_steps=o.steps, per_device_train_batch_size=8, learning_rate=3e-3, save_steps=o.every,
        save_total_limit=2, logging_steps=1, logging_strategy="steps", report_to=[], disable_tqdm=True, use_cpu=True,
        ddp_find_unused_parameters=False)
    trainer = Trainer(model, arguments, train_dataset=rows)
    if o.scheme != "none":
        trainer.add_callback(Thinwire(trainer, o.scheme))
    trainer.train(resume_from_checkpoint=o.resume)
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    if trainer.is_world_process_zero():
        print(f"loss {sum(losses[-10:]) / 10:.3f} after {o.steps} steps", flush=True)
    return model, losses


if __name__ == "__main__":
    main()
