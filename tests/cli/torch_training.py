"""What PyTorch loses, step by step, when it trains a transformer with AdamW, or Muon, as thinwire does: `torch_training.py LOADER FILE
TOKENS ...` prints the losses of the steps, in a line for each FILE, which is the exported network that it begins with. TOKENS is a
file of JSON: the numbers of a step's tokens, (steps, batch), and of those that follow them, for every step, and what the optimiser
is told. All in one process, since PyTorch takes long to begin."""
import importlib.util
import json
import sys

import torch
from torch.nn import functional


def load_module(path):
    spec = importlib.util.spec_from_file_location("loader", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Muon(torch.optim.Optimizer):
    """Jordan's, in fp32, with the length of Liu et al."""

    def step(self):
        for group in self.param_groups:
            for weight in group["params"]:
                memory = self.state[weight]
                memory["mean"] = memory.get("mean", 0) * group["momentum"] + (1 - group["momentum"]) * weight.grad
                x = (1 - group["momentum"]) * weight.grad + group["momentum"] * memory["mean"]
                x = x / x.norm()
                for _ in range(5):
                    square = x @ x.T
                    x = 3.4445 * x - 4.775 * square @ x + 2.0315 * square @ square @ x
                length = 0.2 * max(weight.shape) ** 0.5
                with torch.no_grad():
                    weight.sub_(group["lr"] * (length * x + group["weight_decay"] * weight))


def losses(network, told):
    parameters = list(network.parameters())
    inner = [weight for name, weight in network.named_parameters() if ".layers." in name and weight.dim() == 2]
    optimizers = []
    if told.get("optimizer") == "muon":
        optimizers.append(Muon(inner, {key: told[key] for key in ("lr", "weight_decay")} | {"momentum": told["betas"][0]}))
        parameters = [weight for weight in parameters if all(weight is not other for other in inner)]
    groups = [{"params": [p for p in parameters if p.dim() >= 2], "weight_decay": told["weight_decay"]},
              {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0}]
    optimizers.append(torch.optim.AdamW(groups, lr=told["lr"], betas=told["betas"], eps=1e-8))
    for tokens, targets in told["batches"]:
        logits = network(torch.tensor(tokens))[0]
        loss = functional.cross_entropy(logits.flatten(0, 1), torch.tensor(targets).flatten())
        network.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), told["clip"])
        for optimizer in optimizers:
            optimizer.step()
        yield float(loss)


def main():
    loader, words = load_module(sys.argv[1]), sys.argv[2:]
    for path, told in zip(words[::2], words[1::2]):
        network, _ = loader.load(path)
        with open(told, encoding="utf-8") as file:
            print(*(f"{loss:.9g}" for loss in losses(network, json.load(file))))


main()
