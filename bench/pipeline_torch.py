"""A stage of PyTorch's synchronous pipeline (its schedule 1F1B over Gloo) for bench/pipeline.py, which starts one for each
machine. The transformer is that of bench/networks_torch.py, which is thinwire's in shape; nothing is computed twice. Rank 0
writes the seconds of the steps behind the first, in which the stages tell each other their shapes."""
import itertools
import json
import pathlib
import sys
import time

import networks_torch as networks
import torch
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.nn import functional


def main():
    told, meeting, rank, cut, accumulate, micro_batches, networks.WIDTH, networks.BATCH, networks.STEPS = (
        int(word) if word.isdigit() else word for word in sys.argv[1:])
    networks.LAYERS, networks.VOCABULARY, networks.INNER = 8, 65, networks.WIDTH * 8 // 3 + 31 & ~31
    torch.set_num_threads(1)
    torch.manual_seed(1)
    counts = [int(count) for count in cut.split("+")]
    torch.distributed.init_process_group("gloo", init_method=meeting, rank=rank, world_size=len(counts))
    end = list(itertools.accumulate(counts))[rank]
    part = networks.transformer()[0][end - counts[rank]:end]
    stage = PipelineStage(part, rank, len(counts), torch.device("cpu"))
    schedule = Schedule1F1B(stage, accumulate, loss_fn=lambda y, next_words: functional.cross_entropy(
        y.flatten(0, 1), next_words.flatten()))
    optimizer = torch.optim.AdamW(part.parameters())
    networks.BATCH *= accumulate
    words = networks.tokens(networks.STEPS, networks.BATCH).T.contiguous()
    for step in range(1 + micro_batches // accumulate):
        if step == 1:
            begun = time.monotonic()
        optimizer.zero_grad()
        schedule.step(*[words[:, :-1]] * stage.is_first, target=words[:, 1:] if stage.is_last else None, return_outputs=False)
        optimizer.step()
    torch.distributed.barrier()
    if rank == 0:
        pathlib.Path(told).write_text(json.dumps({"seconds": {"training": time.monotonic() - begun}}))


if __name__ == "__main__":
    main()
