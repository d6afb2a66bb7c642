"""What PyTorch gives for exported networks: `torch_outputs.py LOADER PICTURE FILE ...` prints a line of JSON for each FILE.
A picture is three numbers a pixel, 0 to 255, channel after channel, in a file of bytes. All in one process, since PyTorch
takes long to begin."""
import importlib.util
import json
import sys

import torch

STEPS, BATCH = 9, 2  # as in network_outputs.c


def load_module(path):
    spec = importlib.util.spec_from_file_location("loader", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def outputs(loader, network, d, picture):
    if d["task"] == "lm":
        tokens = torch.tensor([(7 * i + 3) % len(d["vocabulary"]) for i in range(STEPS * BATCH)])
        return network(tokens.reshape(STEPS, BATCH))[0]
    if d["task"] == "asr":
        count = STEPS * BATCH * d["features"]
        frames = torch.tensor([i * 37 % 101 / 50 - 1 for i in range(count)], dtype=torch.float32)
        return network(frames.reshape(STEPS, BATCH, d["features"]))
    pixels = torch.frombuffer(bytearray(open(picture, "rb").read()), dtype=torch.uint8).reshape(1, *d["input"])
    return network(loader.normalise(pixels, d)).double().log_softmax(-1)


def main():
    loader = load_module(sys.argv[1])
    for path in sys.argv[3:]:
        network, description = loader.load(path)
        with torch.no_grad():
            found = outputs(loader, network, description, sys.argv[2])
        print(json.dumps({"outputs": found.flatten().tolist(), "description": description}))


main()
