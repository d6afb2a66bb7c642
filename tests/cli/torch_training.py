"""What PyTorch loses, step by step, when it trains a transformer with AdamW as thinwire does: `torch_training.py LOADER FILE
TOKENS` prints the losses of the steps. FILE is the exported network that it begins with. TOKENS is a file of JSON: the
numbers of a step's tokens, (steps, batch), and of those that follow them, for every step, and what AdamW is told."""
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


def main():
    network, _ = load_module(sys.argv[1]).load(sys.argv[2])
    with open(sys.argv[3], encoding="utf-8") as file:
        told = json.load(file)
    parameters = list(network.parameters())
    groups = [{"params": [p for p in parameters if p.dim() >= 2], "weight_decay": told["weight_decay"]},
              {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=told["lr"], betas=told["betas"], eps=1e-8)
    for tokens, targets in told["batches"]:
        logits = network(torch.tensor(tokens))[0]
        loss = functional.cross_entropy(logits.flatten(0, 1), torch.tensor(targets).flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, told["clip"])
        optimizer.step()
        print(f"{float(loss):.9g}")


main()
