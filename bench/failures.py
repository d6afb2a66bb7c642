#!/usr/bin/env python3
"""What a way of exchanging loses when a worker dies, and when one comes: processes on this machine, over TCP.

Four workers begin. At a third of the steps the last one is killed, as if its machine were gone with its disk. At two thirds a
new one comes. bench/compare.py --failures runs each arm so, and without any of that, with each of its seeds: what an arm loses
is the mean of the differences between two runs with one seed.

How an arm goes on is its own: where all take each step together the others end, and are started again from the newest
checkpoint, three of them, with --forget-lost; for the fourth they are stopped and go on as four. By gossip the others go on
when one dies, and are stopped in the same way when one comes. Local updates in Python let members come and go."""
import argparse
import json
import os
import pathlib
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
WORKERS = 4
LEAST = 300  # steps, in which there is time for both
LIMIT = 900  # seconds, for any wait
TASK = ["lm", "--model", "transformer", "--unit", "char", "--hidden", "48", "--layers", "1", "--bptt", "48", "--batch", "8"]
ARMS = [("dense", "allreduce", 0.024), ("dgc-adam", "dgc-adam", 0.024), ("adpsgd-random", "adpsgd-random", 0.012)]
GO = "go"  # with a member's number: a file whose coming is its start
LOCAL, LOCAL_RATE = "diloco:every=20", 0.012


def free_place():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


def wait_until(what, done, processes=()):
    """What done() gives, when that is something."""
    end = time.monotonic() + LIMIT
    while time.monotonic() < end:
        found = done()
        if found:
            return found
        if processes and all(one.poll() is not None for one in processes):
            break
        time.sleep(0.02)
    found = done()  # it may have come with the end
    return found or sys.exit(f"failures: {what} never came: {[one.poll() for one in processes]}")


def last_step(path):
    """Of a file with a JSON object a line, each of which tells a step."""
    try:
        lines = path.read_text().splitlines()
    except FileNotFoundError:
        return 0
    for line in reversed(lines):
        try:
            row = json.loads(line)
        except ValueError:  # which is being written
            continue
        if row.get("kind", "step") == "step" and "step" in row:
            return row["step"]
    return 0


def steps_of(options):
    """Of the run, and from one checkpoint to the next."""
    steps = max(LEAST, options.steps)
    return steps, max(40, steps // 12)


def between_checkpoints(options, share):
    """The step in the middle of two checkpoints at about that share of the run: by gossip the workers meet for one, and who
    dies then ends the run."""
    steps, every = steps_of(options)
    return round(share * steps) // every * every + every // 2


class Trainer:
    """Processes of thinwire train that join each other."""

    def __init__(self, options, folder, spec, lr, seed):
        self.program, self.folder, self.processes = options.program, folder, []
        steps, every = steps_of(options)
        self.words = [*TASK, "--data", options.text, "--steps", steps, "--lr", f"{lr:g}", "--seed", seed, "--sync", spec,
                      "--checkpoint-every", every, "--evaluate-every", 1000000, "--out", folder, "--quiet"]

    def begin(self, workers, *more):
        place = free_place()
        self.processes = [subprocess.Popen([str(word) for word in (self.program, "train", *self.words, "--join", place, "--workers", workers,
                                                                   "--rank", rank, *more)],
                                           stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
                          for rank in range(workers)]

    def step(self):
        return last_step(self.folder / "metrics.jsonl")

    def end(self, *allowed):
        for one in self.processes:
            told = one.communicate(timeout=LIMIT)[1]
            if one.returncode not in allowed:
                sys.exit(f"failures: {shlex.join(map(str, self.words))} ended with {one.returncode}: {told.strip()[-1000:]}")

    def resume(self, workers, *more):
        """Steps that are taken a second time."""
        before = self.step()
        self.begin(workers, "--resume", *more)
        newest = max(int(path.name.rsplit("-", 1)[-1]) for path in (self.folder / "checkpoints").iterdir() if path.name[-1].isdigit())
        return max(0, before - newest)

    def lose(self):
        """The last one, and all that is on its disk."""
        self.processes.pop().kill()
        for path in (self.folder / "checkpoints").glob(f"*/worker-{WORKERS - 1}.safetensors"):
            path.unlink()

    def stop(self):
        for one in self.processes:
            one.send_signal(signal.SIGINT)
        self.end(130)

    def result(self):
        self.end(0)
        summary = json.loads((self.folder / "summary.json").read_text())
        return {"loss": summary["loss"], "sent": summary["bytes"]["sent"]}


def at(run, step):
    return wait_until(f"step {step}", lambda: run.step() >= step, run.processes)


def after(run, begun):
    """Seconds since then until a step is told that comes after all that were."""
    before = run.step()
    wait_until("another step", lambda: run.step() > before, run.processes)
    return time.monotonic() - begun


def undisturbed(options, folder, spec, lr, seed):
    run = Trainer(options, folder, spec, lr, seed)
    run.begin(WORKERS)
    return run.result()


def disturbed(options, folder, spec, lr, seed):
    run, redone, gossips = Trainer(options, folder, spec, lr, seed), 0, spec.startswith("adpsgd")
    run.begin(WORKERS)
    at(run, between_checkpoints(options, 1 / 3))
    begun = time.monotonic()
    run.lose()
    if not gossips:
        run.end(3)
        redone += run.resume(WORKERS - 1, "--forget-lost")
    lost = [after(run, begun)]
    at(run, between_checkpoints(options, 2 / 3))
    begun = time.monotonic()
    run.stop()
    redone += run.resume(WORKERS, *(["--forget-lost"] if gossips else []))
    lost.append(after(run, begun))
    return {**run.result(), "redone": redone, "lost_dying": lost[0], "lost_coming": lost[1]}


# ---- local updates in Python -------------------------------------------------------------------------------------------


def python():
    return os.environ.get("THINWIRE_PYTHON", sys.executable)


def lacks_torch():
    """A sentence, or nothing."""
    if subprocess.run([python(), "-c", "import torch"], capture_output=True, check=False).returncode == 0:
        return None
    return f"--failures needs PyTorch, which {python()} cannot import: name a Python that has it with THINWIRE_PYTHON"


class Members:
    """Processes of this file, each of which trains in PyTorch by local updates."""

    def __init__(self, options, folder, seed):
        self.options, self.folder, self.seed, self.place, self.processes = options, folder, seed, free_place(), []
        folder.mkdir(parents=True, exist_ok=True)

    def add(self, steps):
        number = len(self.processes)
        words = [python(), __file__, "--member", self.folder / f"{number}.jsonl",
                 "--text", self.options.text, "--place", self.place, "--steps", steps, "--seed", self.seed, "--number", number]
        env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "python" / "src"),
               "THINWIRE_LIBRARY": str(pathlib.Path(self.options.program).resolve().with_name("libthinwire.so"))}
        self.processes.append(subprocess.Popen([str(word) for word in words], env=env, stderr=subprocess.PIPE, text=True))

    def load(self, *steps):
        """A member for each number of steps. To load PyTorch takes longer than many of these."""
        for one in steps:
            self.add(one)
        wait_until("the members", lambda: len(list(self.folder.glob("*.jsonl"))) == len(steps), self.processes)

    def start(self, *numbers):
        for number in numbers:
            (self.folder / f"{GO}{number}").touch()

    def step(self):
        return last_step(self.folder / "0.jsonl")

    def result(self):
        for one in self.processes:
            told = one.communicate(timeout=LIMIT)[1]
            if one.returncode not in (0, -signal.SIGKILL):
                sys.exit(f"failures: a member ended with {one.returncode}: {told.strip()[-1000:]}")
        first, last = (json.loads((self.folder / f"{number}.jsonl").read_text().splitlines()[-1])
                       for number in (0, len(self.processes) - 1))
        if not last["sent"]:
            sys.exit(f"failures: the last member of {self.folder} came when the others had ended; give --steps more than {self.options.steps}")
        return {"loss": first["loss"], "sent": first["sent"]}


def members(options, folder, fails, seed):
    group, lost, steps = Members(options, folder, seed), {}, steps_of(options)[0]
    group.load(*WORKERS * [steps], *fails * [steps // 3])
    group.start(*range(WORKERS))  # the first of them opens the group
    if fails:
        at(group, between_checkpoints(options, 1 / 3))
        begun = time.monotonic()
        group.processes[WORKERS - 1].kill()
        lost["lost_dying"] = after(group, begun)
        at(group, between_checkpoints(options, 2 / 3))
        begun = time.monotonic()
        group.start(WORKERS)
        lost["lost_coming"] = after(group, begun)
        lost["redone"] = 0
    return {**group.result(), **lost}


def member(options):
    """One of them: a small network of PyTorch on the characters of the text, by AdamW."""
    import torch
    import thinwire.torch

    torch.manual_seed(options.seed)
    text = pathlib.Path(options.text).read_text()
    known = {one: i for i, one in enumerate(sorted(set(text)))}
    data = torch.tensor([known[one] for one in text])
    train, test = data[:len(data) * 9 // 10], data[len(data) * 9 // 10:]

    class Network(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder, self.body = torch.nn.Embedding(len(known), 48), torch.nn.GRU(48, 96, batch_first=True)
            self.decoder = torch.nn.Linear(96, len(known))

        def forward(self, tokens):
            return self.decoder(self.body(self.encoder(tokens))[0])

    network = Network()
    optimizer = torch.optim.AdamW(network.parameters(), lr=LOCAL_RATE)
    path = pathlib.Path(options.member)
    path.touch()
    wait_until("the start", (path.parent / f"{GO}{options.number}").exists)
    outer = thinwire.torch.OuterLoop(network, optimizer, LOCAL, join=options.place, banner=False)
    drawn = torch.Generator().manual_seed(1000 * options.seed + options.number)

    def loss_of(rows):
        return torch.nn.functional.cross_entropy(network(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())

    with path.open("w") as file:
        for step in range(1, options.steps + 1):
            begins = torch.randint(len(train) - 49, (8,), generator=drawn)
            optimizer.zero_grad()
            loss_of(torch.stack([train[begin:begin + 49] for begin in begins.tolist()])).backward()
            optimizer.step()
            if not hasattr(torch.optim.Optimizer, "register_step_post_hook"):
                outer.step()
            print(json.dumps({"step": step, "size": outer.size}), file=file, flush=True)
        sent = outer.stats()["bytes_sent"]
        outer.finish()
        with torch.no_grad():
            loss = float(loss_of(test[:len(test) // 49 * 49].view(-1, 49)))
        print(json.dumps({"step": options.steps, "loss": loss, "sent": sent}), file=file, flush=True)


# ---- all of it ---------------------------------------------------------------------------------------------------------


def pair(options, name, run, seed):
    """Two runs with one seed, of which the second is disturbed."""
    folder = options.out / f"failures-{name}-{seed}"
    shutil.rmtree(folder, ignore_errors=True)
    calm, hit = (run(folder / way, fails, seed) for way, fails in (("off", False), ("on", True)))
    return {"seed": seed, "loss_calm": calm["loss"], "loss": hit["loss"], "more": hit["loss"] - calm["loss"],
            "megabytes_calm": calm["sent"] / 1e6, "megabytes": hit["sent"] / 1e6,
            **{key: hit[key] for key in ("redone", "lost_dying", "lost_coming")}}


def measure(options, progress):
    """A row an arm, with a pair of runs a seed, for the JSON of bench/compare.py."""
    def trained(spec, lr):
        return lambda folder, fails, seed: (disturbed if fails else undisturbed)(options, folder, spec, lr, seed)

    arms = [(name, spec, trained(spec, lr)) for name, spec, lr in ARMS]
    arms.append((f"{LOCAL}, members of Python", LOCAL, lambda folder, fails, seed: members(options, folder, fails, seed)))
    rows = []
    for name, spec, run in arms:
        rows.append({"name": name, "sync": spec, "runs": []})
        for seed in range(1, options.seeds + 1):
            rows[-1]["runs"].append(pair(options, spec.partition(":")[0], run, seed))
            progress(f"failures: {name}: {json.dumps(rows[-1]['runs'][-1])}")
    return rows


def main():
    parser = argparse.ArgumentParser(description="One member of a group; bench/compare.py --failures starts them.")
    parser.add_argument("--member", required=True)
    parser.add_argument("--text", required=True)
    parser.add_argument("--place", required=True)
    for name in ("steps", "seed", "number"):
        parser.add_argument(f"--{name}", type=int, required=True)
    member(parser.parse_args())


if __name__ == "__main__":
    main()
