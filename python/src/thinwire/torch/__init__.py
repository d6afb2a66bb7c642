"""thinwire for PyTorch.

    import thinwire.torch

    ddp = torch.nn.parallel.DistributedDataParallel(model)
    thinwire.torch.attach(ddp, "dgc")

docs/pytorch.md says what changes with these two lines, and when not to take them."""

try:
    import torch as _torch  # noqa: F401
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    raise ModuleNotFoundError("thinwire.torch needs PyTorch, 1.13 or later, which is not installed here: pip install torch, "
                              "or see https://pytorch.org; `import thinwire` works without it", name="torch") from error

from ..errors import Error, NonFinite, PeerError, SpecError
from ..tcp import Tcp
from .adamw import AdamW
from .clusters import Clusters
from .compressor import Compressor
from .ddp import attach
from .exchange import Exchange
from .fsdp import ShardCompressor, attach_fsdp2
from .gossip import GossipDataParallel
from .outer import OuterLoop
from .sgd import SGD

__all__ = ["AdamW", "Clusters", "Compressor", "Error", "Exchange", "GossipDataParallel", "NonFinite", "OuterLoop", "PeerError",
           "SGD", "ShardCompressor", "SpecError", "Tcp", "attach", "attach_fsdp2"]
