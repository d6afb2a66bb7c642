"""What plain connections carry around a ring of ranks, for bench/exchange.py: the line as any program finds it.

Each rank sends the rank after it the bytes of a dense all-reduce of ResNet-50's gradients, and receives as many from
the one before it; nothing is summed and nothing waits for anything. Between two steps the connections rest as long as a
program computes, PAUSE seconds: Linux then begins anew with a small window, which a long line feels. Started by mpirun,
it prints the line of JSON that bench_exchange prints. THINWIRE_STREAMS connections share a rank's bytes; rank r listens
at 10.77.0.(r+1), as bench/link.sh has it.
"""
import json
import os
import socket
import time
from concurrent.futures import ThreadPoolExecutor

VALUES, UNMEASURED, PORT, BLOCK = 25_557_032, 2, 29600, 1 << 20


def connect(rank, ranks, streams):
    """Connections to the rank after this one, and from the one before."""
    door = socket.create_server((f"10.77.0.{rank + 1}", PORT), backlog=streams)
    going, coming = [], []
    deadline = time.monotonic() + 20
    while len(going) < streams:
        try:
            going.append(socket.create_connection((f"10.77.0.{(rank + 1) % ranks + 1}", PORT), timeout=20))
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)
    while len(coming) < streams:
        coming.append(door.accept()[0])
    for one in going + coming:
        one.settimeout(60)
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return going, coming


def send(connection, count):
    """So many bytes of no meaning."""
    block = memoryview(bytes(BLOCK))
    while count > 0:
        connection.sendall(block[:min(count, BLOCK)])
        count -= BLOCK


def receive(connection, count):
    """As many as send sends, into memory that is used again."""
    block = memoryview(bytearray(BLOCK))
    while count > 0:
        size = connection.recv_into(block[:min(count, BLOCK)])
        if size == 0:
            raise ConnectionError("the rank before this one has ended")
        count -= size


def exchange(pool, going, coming, count):
    """`count` bytes each way over each connection; returns when the rank before has sent all, and this one has, too."""
    ends = [pool.submit(send, one, count) for one in going] + [pool.submit(receive, one, count) for one in coming]
    for end in ends:
        end.result()  # or what went wrong there


def main():
    rank, ranks = int(os.environ["OMPI_COMM_WORLD_RANK"]), int(os.environ["OMPI_COMM_WORLD_SIZE"])
    streams, steps = int(os.environ["THINWIRE_STREAMS"]), int(os.environ["STEPS"])
    going, coming = connect(rank, ranks, streams)
    pool = ThreadPoolExecutor(2 * streams)
    share, seconds, pause = 2 * (ranks - 1) * 4 * VALUES // ranks // streams, [], float(os.environ.get("PAUSE", "0.3"))
    for _ in range(UNMEASURED + steps):
        time.sleep(pause)
        for _ in range(2 * ranks):  # a word twice around the ring: all begin together
            exchange(pool, going[:1], coming[:1], 1)
        start = time.monotonic()
        exchange(pool, going, coming, share)
        seconds.append(time.monotonic() - start)
    if rank == 0:
        print(json.dumps({"spec": "allreduce", "ranks": ranks, "elements": VALUES, "bytes_sent": share * streams,
                          "bytes_received": share * streams, "codec_ms": 0.0,
                          "step_ms": [1e3 * one for one in seconds[UNMEASURED:]]}), flush=True)


if __name__ == "__main__":
    main()
