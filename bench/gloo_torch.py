"""PyTorch's dense all-reduce over Gloo, for bench/exchange.py: as many values as ResNet-50 has, started by mpirun.

Prints the line of JSON that bench_exchange prints. Ranks meet at JOIN, HOST:PORT, and use the device eth0. The bytes
are those that an all-reduce by parts needs, which is what a ring sends, too.
"""
import json
import os
import time

import torch
import torch.distributed as dist

VALUES, UNMEASURED = 25_557_032, 2


def main():
    rank, ranks = int(os.environ["OMPI_COMM_WORLD_RANK"]), int(os.environ["OMPI_COMM_WORLD_SIZE"])
    os.environ["GLOO_SOCKET_IFNAME"] = "eth0"
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="tcp://" + os.environ["JOIN"], rank=rank, world_size=ranks)
    values, seconds = torch.zeros(VALUES), []
    for _ in range(UNMEASURED + int(os.environ["STEPS"])):
        dist.barrier()
        start = time.monotonic()
        dist.all_reduce(values)
        seconds.append(time.monotonic() - start)
    slowest = torch.tensor(seconds[UNMEASURED:], dtype=torch.float64)
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
    sent = 2 * (ranks - 1) * 4 * VALUES / ranks
    if rank == 0:
        print(json.dumps({"spec": "allreduce", "ranks": ranks, "elements": VALUES, "bytes_sent": sent,
                          "bytes_received": sent, "codec_ms": 0.0, "step_ms": (1e3 * slowest).tolist()}), flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
