"""thinwire for Accelerate.

    import thinwire.torch.accelerate

    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    compressor = thinwire.torch.accelerate.attach(accelerator, model, "dgc:density=0.001", optimizer=optimizer)

The hooks that Accelerate knows by name are PyTorch's own; its argument for them takes no other."""

from typing import Any

from torch.nn.parallel import DistributedDataParallel

from . import _ranks, ddp
from .compressor import Compressor


def attach(accelerator: Any, model: DistributedDataParallel, spec: str, **more: Any) -> Compressor:
    """`thinwire.torch.attach`, after accelerator.prepare(). accelerator.save_state() then has every rank write what its
    scheme keeps for later steps beside the rest, as thinwire-R.pt, and load_state() reads it."""
    compressor = ddp.attach(model, spec, **more)
    accelerator.register_save_state_pre_hook(lambda models, weights, folder: _ranks.save_in(folder, compressor))
    accelerator.register_load_state_pre_hook(lambda models, folder: _ranks.load_from(folder, compressor))
    return compressor
