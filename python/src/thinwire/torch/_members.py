"""What a group whose members come and go needs beside its rounds: who reads which examples."""

from typing import Any, Iterator

import torch

from ..errors import Error

SIZES = 1 << 16  # of a group: rank * SIZES + size is written at once


class Place:
    """A member's number and how many there are, which the processes of a DataLoader see change."""

    def __init__(self) -> None:
        self._numbers = torch.ones(1, dtype=torch.int64, device="cpu").share_memory_()

    def set(self, rank: int, size: int) -> None:
        self._numbers.fill_(rank * SIZES + size)

    def part_of(self, count: int) -> range:
        rank, size = divmod(int(self._numbers), SIZES)
        return range(rank, count, size)


class Part(torch.utils.data.Dataset):  # type: ignore[type-arg]
    """Of every `size` examples of a dataset the one that no other member has, of the members that there are when it is read.
    Its length is that of now."""

    def __init__(self, dataset: Any, place: Place):
        self.dataset, self._place = dataset, place

    @property
    def indices(self) -> range:
        return self._place.part_of(len(self.dataset))

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, index: int) -> Any:
        """A sampler that began when the part was longer goes on at its beginning."""
        mine = self.indices
        if not mine:
            raise Error(f"{len(self.dataset)} examples are too few for as many members as there are: this one has none")
        return self.dataset[mine[index % len(mine)]]

    def __iter__(self) -> Iterator[Any]:
        return (self[index] for index in range(len(self)))
