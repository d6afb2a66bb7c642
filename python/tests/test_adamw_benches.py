"""bench/adamw.py and bench/nanogpt.py: what they count, over links in network namespaces, and that a script trains as it is."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

import ranks

ranks.skip_without_torch()

import torch  # noqa: E402

BENCH = pathlib.Path(__file__).resolve().parents[2] / "bench"
sys.path.insert(0, str(BENCH))
import adamw  # noqa: E402
import link  # noqa: E402

SCRIPT = """
import sys
import torch
assert sys.argv[:2] == ["train.py", "config/train_shakespeare_char.py"] and "--max_iters=3" in sys.argv
torch.manual_seed(1337)
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.AdamW([{"params": [model.weight]}, {"params": [model.bias], "weight_decay": 0.0}], lr=0.1, betas=(0.9, 0.99))
for step in range(3):
    model(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
losses = {"val": model.weight.detach().sum()}
"""


def printed_by(name, *words):
    environment = {**os.environ, "PYTHONPATH": str(BENCH.parent / "python" / "src")}
    done = subprocess.run([sys.executable, "-B", BENCH / name, *map(str, words)], capture_output=True, text=True, env=environment,
                          timeout=2 * ranks.SECONDS)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def trained_by_hand(workers):
    """What SCRIPT ends with, where the gradient is the mean of workers that begin alike and draw for themselves."""
    models, draws = [], []
    for rank in range(workers):
        generator = torch.manual_seed(1337 + rank)
        models.append(torch.nn.Linear(4, 2))
        draws.append([torch.randn(8, 4, generator=generator) for _ in range(3)])
    model = models[0]
    optimizer = torch.optim.AdamW([{"params": [model.weight]}, {"params": [model.bias], "weight_decay": 0.0}], lr=0.1, betas=(0.9, 0.99))
    for drawn in zip(*draws):
        optimizer.zero_grad()
        sum(model(x).square().mean() for x in drawn).div(workers).backward()
        optimizer.step()
    return model.weight.detach().sum().item()


class CountsTest(unittest.TestCase):
    def test_what_would_train_without_its_averages_is_refused(self):
        done = subprocess.run([sys.executable, "-B", BENCH / "adamw.py", "fp8", "torch:postlocal"], capture_output=True, text=True,
                              timeout=ranks.SECONDS, env={**os.environ, "PYTHONPATH": str(BENCH.parent / "python" / "src")})
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("torch:postlocal would train without its averages", done.stderr)

    def test_the_last_quarter_is_told_apart(self):
        """Eight steps of 2 s that send 100 bytes, and three of 1 s, 1 s and 4 s that send 10."""
        marks = [(2.0 * step, 100 * step) for step in range(9)] + [(17, 810), (18, 820), (22, 830)]
        self.assertEqual(adamw.of_line(marks), {"step_ms": 1000, "sent_late": 10, "sent": 830 / 11, "seconds": 22})

    def test_each_rate_is_beside_its_dense(self):
        def run(hosts, gbit, words, seconds):
            runs = [{"scheme": scheme, "loss": 2.0, "step_ms": ms / gbit, "seconds": 1, "sent_late": 4, "sent": 5}
                    for scheme, ms in (("torch:dense", 100), ("dgc-adam", 20 * gbit))]
            return json.dumps({"workers": int(hosts), "made": {}, "runs": runs})

        told = []
        with mock.patch.object(link, "run", run), mock.patch("builtins.print", lambda text, **_: told.append(text)), \
                mock.patch.object(sys, "argv", ["adamw.py", "--lines", "1,0.1", "dgc-adam"]), mock.patch.dict(os.environ):
            adamw.main()
        found = json.loads(told[-1])
        self.assertEqual((found["workers"], [row["scheme"] for row in found["rows"]]), (2, ["torch:dense", "dgc-adam"]))
        self.assertEqual([{rate: round(at["faster"], 6) for rate, at in row["at"].items()} for row in found["rows"]],
                         [{"1 Gbit/s": 1, "0.1 Gbit/s": 1}, {"1 Gbit/s": 5, "0.1 Gbit/s": 50}])
        self.assertIn("bench/adamw.py --lines 1,0.1 dgc-adam", found["made"]["command"])

    def test_over_a_line(self):
        try:
            link.run("1", 1, ["true"], ranks.SECONDS)
        except link.Missing as missing:
            self.skipTest(str(missing))
        found = printed_by("adamw.py", "--lines", 1, "--steps", 12, "--batch", 2, "--width", 32, "--layers", 1, "torch:powersgd=1",
                           "powersgd:rank=1", "onebit-adam", "dgc-adam")
        rows = {row["scheme"]: row for row in found["rows"]}
        sent = {scheme: row["at"]["1 Gbit/s"]["sent_late"] / (4 * row["parameters"]) for scheme, row in rows.items()}
        self.assertTrue(1 < sent["torch:dense"] < 1.2, sent)  # each of two ranks sends the gradient once, and headers
        self.assertLess(max(sent[scheme] for scheme in rows if scheme != "torch:dense"), 0.25, sent)
        self.assertLess(max(row["loss"] for row in rows.values()), 5, rows)
        self.assertIsNone(rows["torch:powersgd=1"]["ratio"])  # nobody has counted


class ScriptTest(unittest.TestCase):
    @unittest.skipUnless(hasattr(torch.Tensor, "register_post_accumulate_grad_hook"), "Exchange needs torch 2.1")
    def test_a_script_trains_with_the_gradients_of_all_as_it_is(self):
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "train.py").write_text(SCRIPT)
            dense, *others = printed_by("nanogpt.py", folder, "allreduce", "dgc-adam:dense=*,nesterov=off", "powersgd:rank=1",
                                        "--steps", 3)["rows"]
        self.assertAlmostEqual(dense["loss"], trained_by_hand(2), 5)
        self.assertAlmostEqual(others[0]["loss"], dense["loss"], 2)  # where no gradient is long enough to be clipped
        for row in others:
            self.assertAlmostEqual(row["above"], row["loss"] - dense["loss"], 5)  # seven digits of each are written
        self.assertEqual((dense["ratio"], dense["above"]), (1, None))


if __name__ == "__main__":
    unittest.main()
