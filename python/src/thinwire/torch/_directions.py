"""What a scheme gives in the place of a gradient to step along, and who shortens it."""

import ctypes
from typing import List, Optional, Sequence

import torch

from ..errors import Error
from ..table import BYTES
from ._parameters import Row, local

SAMPLE = 16  # elements that the tensor has which is looked at
SHORTENED, ROUNDING = 0.99, 1e-2  # a bf16 that was fp32 is up to 0.4 % shorter


class Directions:
    """An Adam direction has about one of every element, and so it is as long as the network is large. Who clips it to a
    norm that suits gradients stands still. One small tensor is looked at, as the scheme gave it and as the optimiser has it."""

    def __init__(self, rows: List[Row]):
        fit = [i for i, row in enumerate(rows) if row.elements >= SAMPLE and list(row.order) == sorted(row.order)]
        self._index = min(fit, key=lambda i: rows[i].elements, default=-1)
        self._row = rows[self._index]
        self._address, self._dtype = 0, ""
        self._given: Optional[torch.Tensor] = None

    def submitted(self, indices: Sequence[int], addresses: Sequence[int], dtype: str) -> None:
        if self._index in indices:
            self._address, self._dtype = addresses[indices.index(self._index)], dtype

    def keep(self) -> None:
        """The step is over, and the direction is where the gradient was."""
        if self._address:
            size = self._row.elements * BYTES[self._dtype]
            there = bytearray((ctypes.c_char * size).from_address(self._address))
            self._given, self._address = torch.frombuffer(there, dtype=getattr(torch, self._dtype)).double(), 0

    def refuse_shortened(self, scheme: str, instead: str) -> None:
        """An optimiser has stepped. Zeros are those of a step that was skipped, or a person's."""
        given, self._given = self._given, None
        gradient = self._row.parameter.grad
        if given is None or gradient is None or given.count_nonzero() < 2:
            return
        now = local(gradient).detach().to("cpu", torch.float64).flatten()
        part = float(now @ given / (given @ given))
        if 0 < part < SHORTENED and bool((now - part * given).norm() <= ROUNDING * part * given.norm()):
            raise Error(f"{scheme} gives a direction to step in, which is as long as the network is large, and it is {part:.2g} of "
                        "that length where the optimizer has it: leave clip_grad_norm_ out, which is max_grad_norm=0 in the Trainer "
                        f"and no gradient_clip_val in Lightning{instead}; a GradScaler is to be given to attach() as scaler=")
