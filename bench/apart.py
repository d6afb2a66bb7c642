#!/usr/bin/env python3
"""Fine-tuning with LoRA by programs on machines of their own, over a slow line: what they learn, send and wait for.

    sudo bench/apart.py --base-text shakespeare.txt --text letters.txt > apart.json

Each worker is a process in a network namespace of its own (bench/link.sh), and runs AdamW on adapters (peft) of a small
Llama of transformers, on a part of the text that no other has. The base was trained before on another text. Prints one
JSON object: of each way the losses by seed on text that nobody trained on, in nats a byte, the seconds of the training and
how much of them was waited, and what a worker sent on average by the count of its network card. "alone" is one worker with
its own part of the text, "ddp" PyTorch's DistributedDataParallel, which averages gradients in every step. Needs torch,
transformers and peft, and what bench/link.sh needs.

With --program build/thinwire the workers are `thinwire train lm`, and "ddp" is its allreduce: its own transformer begins
with the same base."""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import link
from made import as_json, made

PORTS = {"thinwire": 29700, "torch": 29701}
FIRST = "10.77.0.1"  # link.sh's first host
HELD_OUT = 20  # batches
SHARES = {2: "half", 4: "a quarter"}


def add_problem(parser):
    """What bench/adapters.py takes, too."""
    parser.add_argument("--base-text", type=Path, required=True)
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--base-steps", type=int, default=600)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--length", type=int, default=96)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seconds", type=float, default=1800, help="that one way may take")


def parser_of(description):
    """What bench/changing.py takes, too."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_problem(parser)
    parser.add_argument("--rate", type=float, default=0.1, help="of a line, Gbit/s")
    parser.add_argument("--delay", type=float, default=40, help="of a round trip, ms; needs build/bench_relay")
    parser.add_argument("--relay", type=Path, default=Path("build/bench_relay"))
    parser.add_argument("--worker", nargs=3, help=argparse.SUPPRESS)
    return parser


def options():
    parser = parser_of(__doc__)
    parser.add_argument("ways", nargs="*", default=["alone", "ddp", "local:every=16", "diloco:every=16", "diloco:every=32", "local:every=100000"],
                        help="alone, ddp, or a spec of OuterLoop's; a period beyond the steps is one average at the end")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--steps", type=int, default=320)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--program", type=Path, help="that trains; without it PyTorch does")
    return parser.parse_args()


def tokens(path):
    import torch
    return torch.frombuffer(bytearray(path.read_bytes()), dtype=torch.uint8).long()


def batch(text, generator, o):
    import torch
    at = torch.randint(len(text) - o.length, (o.batch,), generator=generator)
    rows = torch.stack([text[i:i + o.length] for i in at.tolist()])
    return {"input_ids": rows, "labels": rows}


def train_base(o, path):
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(
        vocab_size=256, hidden_size=128, intermediate_size=344, num_hidden_layers=4, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=o.length, bos_token_id=0, eos_token_id=0))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    generator, text = torch.Generator().manual_seed(0), tokens(o.base_text)
    for step in range(o.base_steps):
        optimizer.param_groups[0]["lr"] = 3e-3 * min(1, step / 50, (o.base_steps - step) / o.base_steps * 2)
        optimizer.zero_grad()
        model(**batch(text, generator, o)).loss.backward()
        optimizer.step()
    model.save_pretrained(path)


def save_ids(o, folder):
    """The text as `thinwire train lm --unit id` reads it: all of it, and what one worker alone has."""
    import numpy
    whole = numpy.frombuffer(o.text.read_bytes(), dtype="uint8").astype("uint16")
    learnt, unseen = whole[:len(whole) * 9 // 10], whole[len(whole) * 9 // 10:]
    for name, part in (("all", learnt), ("alone", learnt[:len(learnt) // o.workers])):
        (folder / name).mkdir()
        for split, ids in (("train", part), ("valid", unseen), ("test", unseen)):
            numpy.save(folder / name / f"{split}.npy", ids)


def sent():
    return link.bytes_of_device()[0]


def problem(o, base, seed, number, workers):
    """The base with adapters, its optimizer, a worker's own part of the text, what nobody trains on, and the draws."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import LlamaForCausalLM
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    model = get_peft_model(LlamaForCausalLM.from_pretrained(base), LoraConfig(r=8, lora_alpha=16, target_modules=["q_proj", "v_proj"]))
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=o.lr)
    whole = tokens(o.text)
    learnt, unseen = whole[:len(whole) * 9 // 10], whole[len(whole) * 9 // 10:]
    part = learnt[len(learnt) * number // workers:][:len(learnt) // workers]
    return model, optimizer, part, unseen, torch.Generator().manual_seed(1000 * seed + number)


def train(model, optimizer, part, generator, steps, o):
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = o.lr * min(1, (step + 1) / 20, 1.1 - step / steps)
        optimizer.zero_grad()
        model(**batch(part, generator, o)).loss.backward()
        optimizer.step()


def loss_of(model, unseen, o):
    import torch
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        return sum(float(model(**batch(unseen, generator, o)).loss) for _ in range(HELD_OUT)) / HELD_OUT


def run_program(o, way, seed, base, rank, size):
    """What the program says of its training, and the bytes that its card has sent."""
    words = [o.program, "train", "lm", "--unit", "id", "--data", Path(base) / ("alone" if way == "alone" else "all"), "--init-from",
             base, "--lora", "rank=8,alpha=16,targets=q+v", "--batch", o.batch, "--bptt", o.length, "--steps", o.steps, "--lr", o.lr,
             "--warmup", 20, "--schedule", "cosine", "--weight-decay", 0.01, "--clip", 0, "--seed", seed, "--quiet", "--out", "none",
             "--json", "-"]
    if way != "alone":
        words += ["--join", f"{FIRST}:{PORTS['thinwire']}", "--workers", size, "--rank", rank, "--sync", "allreduce" if way == "ddp" else way]
    before = sent()
    own = {name: value for name, value in os.environ.items() if not name.startswith(("OMPI_", "PMIX_"))}
    done = subprocess.run([str(word) for word in words], check=True, stdout=subprocess.PIPE, text=True, env=own)
    return (json.loads(done.stdout) if rank == 0 else None), sent() - before


def work_by_program(o, way, seed, base, rank, size):
    told, bytes_sent = run_program(o, way, seed, base, rank, size)
    if rank > 0:
        return None
    return told["loss"], bytes_sent, told["seconds"]["training"], told["seconds"]["wait"], told["parameters"]


def work(o):
    way, seed, base = o.worker[0], int(o.worker[1]), o.worker[2]
    rank, size = (int(os.environ.get(f"OMPI_COMM_WORLD_{name}", default)) for name, default in (("RANK", 0), ("SIZE", 1)))
    found = (work_by_program if o.program else work_by_torch)(o, way, seed, base, rank, size)
    if rank == 0:
        loss, bytes_sent, seconds, waited, trained = found
        print(json.dumps({"way": way, "seed": seed, "loss": loss, "bytes_sent": bytes_sent, "seconds": round(seconds, 2),
                          "waited": None if waited is None else waited / seconds, "trained": trained}), flush=True)


def work_by_torch(o, way, seed, base, rank, size):
    import torch
    model, optimizer, part, unseen, generator = problem(o, base, seed, rank, o.workers)
    loop, trained = None, model
    if way == "ddp":
        torch.distributed.init_process_group("gloo", init_method=f"tcp://{FIRST}:{PORTS['torch']}", rank=rank, world_size=size)
        trained = torch.nn.parallel.DistributedDataParallel(model)
    elif way != "alone":
        import thinwire.torch
        loop = thinwire.torch.OuterLoop(model, optimizer, way, join=f"{FIRST}:{PORTS['thinwire']}", workers=size, rank=rank)
    if loop:
        loop.begin()
    begin, before = time.monotonic(), sent()
    train(trained, optimizer, part, generator, o.steps, o)
    if loop:
        loop.finish()
    seconds, bytes_sent, loss = time.monotonic() - begin, sent() - before, loss_of(model, unseen, o)
    return (loss, bytes_sent, seconds, loop.stats()["seconds_wait"] if loop else None,
            sum(p.numel() for p in model.parameters() if p.requires_grad))


def summed_up(o, way, rows):
    """As a page's table has it: by seeds the losses and what was waited of the time, and what a worker sent, on average."""
    names = {"alone": f"one program alone, with {SHARES.get(o.workers, f'1/{o.workers}')} of the text",
             "ddp": ("`allreduce`" if o.program else "PyTorch's DDP") + ", the mean in every step",
             "local:every=100000": "one average at the end"}
    megabytes = sum(row["bytes_sent"] for row in rows) / len(rows) / 1e6
    waited = ", ".join(f"{100 * row['waited']:.1f}" for row in rows if row["waited"] is not None)
    return {"way": names.get(way, f"`{way}`"), "losses": [row["loss"] for row in rows],
            "seconds": [row["seconds"] for row in rows], "sent": None if way == "alone" else f"{megabytes:.3g} MB",
            "waited": f"{waited} %" if waited and way != "alone" else None}


def main():
    o = options()
    if o.worker:
        return work(o)
    os.environ["GLOO_SOCKET_IFNAME"] = "eth0"
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        train_base(o, folder)
        save_ids(o, Path(folder))
        for seed in range(1, o.seeds + 1):
            for way in o.ways:
                words = [sys.executable, __file__, *sys.argv[1:], "--worker", way, seed, folder]
                row = json.loads(link.run("1" if way == "alone" else str(o.workers), o.rate, words, o.seconds, o.delay,
                                          o.relay).strip().splitlines()[-1])
                rows.append(row)
                print(row, file=sys.stderr, flush=True)
    print(as_json({"made": made(), "workers": o.workers, "gbit": o.rate, "ms": o.delay, "steps": o.steps,
                   "rows": [summed_up(o, way, [row for row in rows if row["way"] == way]) for way in o.ways]}))


if __name__ == "__main__":
    main()
