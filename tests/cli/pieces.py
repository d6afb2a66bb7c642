"""Language models of SentencePiece pieces, end to end. Whether their numbers are those of transformers is asked in
python/tests/test_llama.py, where there is one; what the pieces of a text are, in tests/text/pieces.c."""
import json

from llama_folder import STILL, LlamaFolderTest
from support import run_tests

import parts

PIECES = ("--unit", "piece", "--vocabulary", 271)


class PiecesTest(LlamaFolderTest):
    @parts.extra
    def test_the_entropy_of_a_source_is_approached(self):
        """A word is one piece or several, the numbers of which the loss is a mean over."""
        summary = self.train(*PIECES, "--epochs", 8, "--schedule", "decay:0.5,4", "--out", self.run_folder)
        self.assertLess(summary["metric"]["value"], 3.2)
        done = self.run_program("generate", self.run_folder, "--tokens", 60, "--top-k", 3, "--prompt", "w1 w3")
        self.assertTrue(done.stdout.startswith("w1 w3"), done)
        self.assertTrue(all(word.startswith("w") for word in done.stdout.split()[:-1]), done.stdout)
        again = self.run_program("generate", self.run_folder, "--tokens", 60, "--top-k", 3, "--prompt", "w1 w3", "--json")
        self.assertEqual(json.loads(again.stdout)["text"], done.stdout)

    def test_a_run_that_is_resumed_has_the_same_pieces(self):
        whole = self.train(*PIECES, "--steps", 8, "--out", self.folder / "whole")
        self.train(*PIECES, "--steps", 4, "--out", self.folder / "part")
        done = self.run_program("train", "--resume", self.folder / "part", "--steps", 8, "--quiet", "--json")
        self.assertEqual(json.loads(done.stdout)["weights_crc32c"], whole["weights_crc32c"], done.stderr)

    def test_workers_have_the_same_pieces(self):
        sums = [self.train(*PIECES, "--steps", 4, "--workers", workers, "--batch", 4 // workers)["loss"] for workers in (1, 2)]
        self.assertAlmostEqual(*sums, places=4)

    def test_a_folder_has_the_model_and_gives_it_again(self):
        self.make_folder(*PIECES)
        model = self.llama / "tokenizer.model"
        self.assertEqual(self.metadata(self.run_folder)["vocabulary.txt"], "pieces\n" + model.read_bytes().hex())
        tokenizer = json.loads((self.llama / "tokenizer.json").read_text())
        self.assertEqual((tokenizer["model"]["type"], len(tokenizer["model"]["vocab"])), ("BPE", 271))
        out = self.begun_from(self.llama)
        for name in ("model.safetensors", "config.json", "tokenizer.json", "tokenizer.model"):
            self.assertEqual((out / name).read_bytes(), (self.llama / name).read_bytes(), name)
        self.train("--unit", "piece", "--tokenizer", model, "--steps", 1, "--out", self.folder / "taken")
        self.assertEqual(self.metadata(self.folder / "taken")["vocabulary.txt"],
                         self.metadata(self.run_folder)["vocabulary.txt"])

    def test_what_is_refused(self):
        self.make_folder(*PIECES)
        wrong, words = self.folder / "wrong.model", self.train_words(*STILL, "--quiet")
        for bytes_of, sentence in ((b"no model of pieces", "damaged"),
                                   ((self.llama / "tokenizer.model").read_bytes()[:3000], "damaged"), (b"", "empty")):
            wrong.write_bytes(bytes_of)
            self.refuse(2, [wrong, sentence], *words, "--unit", "piece", "--tokenizer", wrong)
        self.refuse(2, ["are pieces", "--unit piece"], *words, "--tokenizer", self.llama / "tokenizer.model")
        self.refuse(2, ["makes no 4096 pieces", "--vocabulary must be"], *words, "--unit", "piece", "--vocabulary", 4096)
        self.refuse(2, ["100 pieces are too few", "--vocabulary must be"], *words, "--unit", "piece", "--vocabulary", 100)
        self.refuse(2, ["--memory"], *words, *PIECES, "--memory", 1, "--data", self.large_text())
        (self.llama / "tokenizer.model").write_bytes(b"no model")
        self.refuse_folder("tokenizer.model", "damaged")

    def large_text(self):
        path = self.folder / "large.txt"
        path.write_text("w1 w2\n" * 100000)
        return path


if __name__ == "__main__":
    run_tests()
