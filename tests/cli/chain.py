"""From a folder of photographs to a network in PyTorch: 2,000 JPEGs of all sizes in 5 classes are trained on, the run is
resumed, and what it made says of new files what they show, here and there."""
import json
import pathlib
import subprocess
import sys
import unittest

from pictures import png
from support import CommandLineTest, find_torch

HERE = pathlib.Path(__file__).parent
WRITE_JPEGS = sys.argv.pop(1)
CLASSES, PICTURES, SIDE = 5, 2000, 16
TORCH = find_torch()


class ChainTest(CommandLineTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.photos, cls.new = cls.shared / "photos", cls.shared / "new"
        for folder, count in ((cls.photos, PICTURES), (cls.new, 4 * CLASSES)):
            subprocess.run([WRITE_JPEGS, folder, str(CLASSES), str(count)], check=True)

    def train(self, *options):
        words = ("--data", self.photos, "--validation", 0.1, "--image-size", SIDE, "--workers", 2, "--batch", 16, "--sync",
                 "dgc", "--flip", "--quiet", "--json", "-")
        return json.loads(self.succeed("train", "image", *words, *options))

    def likeliest(self, run, *files):
        lines = self.succeed("predict", run, *files, "--json").splitlines()
        return [json.loads(line)["classes"][0]["class"] for line in lines]

    def test_from_a_folder_to_pytorch(self):
        run = self.folder / "run"
        first = self.train("--epochs", 1, "--out", run)
        self.assertEqual(first["steps"], PICTURES * 9 // 10 // 32)
        second = json.loads(self.succeed("train", "--resume", run, "--epochs", 2, "--quiet", "--json", "-"))
        self.assertEqual(second["steps"], 2 * first["steps"])
        self.assertGreater(second["metric"]["value"], 0.98)
        new = sorted(self.new.glob("*/*.jpg"))
        self.assertEqual(self.likeliest(run, *new), [file.parent.name for file in new])
        file, loader = self.folder / "photos.safetensors", self.folder / "load_network.py"
        self.succeed("export", run, file, "--loader", loader)
        if TORCH:
            self.check_in_pytorch(run, file, loader)

    def check_in_pytorch(self, run, file, loader):
        """A picture of the network's size, which no two programs scale differently."""
        colour = (90, 190, 60)
        picture, plain = self.folder / "picture.png", self.folder / "picture.bytes"
        picture.write_bytes(png(SIDE, SIDE, lambda x, y: colour))
        plain.write_bytes(b"".join(bytes([value]) * SIDE * SIDE for value in colour))
        done = self.finish(self.start(TORCH, "-B", HERE / "torch_outputs.py", loader, plain, file))
        self.assertEqual(done.returncode, 0, done.stderr)
        found = json.loads(done.stdout)
        names = found["description"]["classes"]
        self.assertEqual(names, [f"class{i}" for i in range(CLASSES)])
        likeliest = max(zip(found["outputs"], names))[1]
        self.assertEqual([likeliest], self.likeliest(run, picture))


if __name__ == "__main__":
    unittest.main()
