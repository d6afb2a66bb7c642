#!/usr/bin/env python3
"""Lightning with thinwire: one callback.

    torchrun --standalone --nproc_per_node=2 examples/pytorch/with_lightning.py --out runs/lightning

Started with --resume it goes on from the last checkpoint in --out, with what thinwire kept for later steps."""

import argparse
from pathlib import Path
from typing import List, Optional, Tuple

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from thinwire.torch.lightning import Thinwire


def options(words: Optional[List[str]] = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scheme", default="dgc", help="none: without thinwire")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("runs/lightning"))
    parser.add_argument("--resume", action="store_true")
    return parser.parse_args(words)


class Student(lightning.LightningModule):
    """Learns what another network says."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
        self.losses: List[float] = []

    def training_step(self, batch: Tuple[torch.Tensor, torch.Tensor], index: int) -> torch.Tensor:
        x, y = batch
        loss = nn.functional.cross_entropy(self.layers(x), y)
        self.losses.append(loss.item())
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.05)  # dgc has the momentum


def examples(count: int) -> TensorDataset:
    generator = torch.Generator().manual_seed(1)
    x, teacher = torch.randn(count, 64, generator=generator), torch.randn(64, 10, generator=generator)
    return TensorDataset(x, (x @ teacher).argmax(1))


def main(words: Optional[List[str]] = None) -> Tuple[nn.Module, List[float]]:
    o = options(words)
    lightning.seed_everything(1, verbose=False)
    module = Student()
    checkpoints = ModelCheckpoint(o.out, save_last=True)
    callbacks = [checkpoints] if o.scheme == "none" else [checkpoints, Thinwire(o.scheme)]
    trainer = lightning.Trainer(accelerator="cpu", devices=o.workers, strategy="ddp", max_epochs=o.epochs, logger=False,
                                enable_progress_bar=False, enable_model_summary=False, callbacks=callbacks)
    trainer.fit(module, DataLoader(examples(2048), batch_size=32, shuffle=True),
                ckpt_path=o.out / "last.ckpt" if o.resume else None)
    if trainer.is_global_zero:
        print(f"loss {sum(module.losses[-10:]) / 10:.3f} after {o.epochs} epochs", flush=True)
    return module, module.losses


if __name__ == "__main__":
    main()
