"""Beginning with a LlamaForCausalLM of transformers: its sizes, its weights in any type and in any number of files, its
tokens, and what is refused. Whether its logits are those of transformers is asked in python/tests/test_llama.py."""
import gzip
import json
import pathlib
import random
import shutil
import struct

from checkpoint_file import join_file, split_file
from lm import LanguageTest, write_source
from support import run_tests, unless_kept

import parts

STILL = ("--lr", 0, "--warmup", 0, "--steps", 1)
TEXT = {"Sequence": {"id": "A", "type_id": 0}}  # in a template
KIN = (("--family", "llama", "--head-width", 6, "--rope-scaling", "linear:2"),
       ("--family", "qwen2", "--rope-scaling", "llama3:8,1,4,8192"),
       ("--family", "qwen3", "--head-width", 6, "--rope-scaling", "llama3:8,1,4,8", "--rope-theta", 500000))
LORA = ("--lora", "rank=2")
SIZES = ("--layers", 2, "--hidden", 16, "--heads", 4, "--kv-heads", 2, "--bptt", 10)


def read_tensors(path):
    """Name to type, shape and bytes."""
    header, data = split_file(pathlib.Path(path))
    return {name: (entry["dtype"], entry["shape"], bytes(data[slice(*entry["data_offsets"])]))
            for name, entry in header.items() if name != "__metadata__"}


def write_tensors(path, tensors):
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, (dtype, shape, values) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(values)]}
        data += values
    join_file(pathlib.Path(path), header, data)


def halved(values, dtype):
    """The values in two bytes each, and what these are in four."""
    count = len(values) // 4
    if dtype == "BF16":
        halves = b"".join(values[4 * i + 2:4 * i + 4] for i in range(count))
        return halves, b"".join(b"\0\0" + halves[2 * i:2 * i + 2] for i in range(count))
    halves = struct.pack(f"<{count}e", *struct.unpack(f"<{count}f", values))
    return halves, struct.pack(f"<{count}f", *struct.unpack(f"<{count}e", halves))


class LlamaFolderTest(LanguageTest):
    def setUp(self):
        super().setUp()
        self.run_folder, self.llama = self.folder / "run", self.folder / "llama"

    def train_words(self, *options):
        return ["train", "lm", "--data", self.texts, "--batch", 4, *options, *unless_kept(options)]

    def summary_of(self, *words):
        return json.loads(self.complete(*words, "--quiet", "--json").stdout)

    def make_folder(self, *options):
        self.train("--model", "transformer", *SIZES, "--lr", 0.01, "--steps", 5, "--out", self.run_folder, *options)
        self.succeed("export", self.run_folder, self.llama, "--transformers")

    def begun_from(self, begin, *options):
        """The tensors of a run that begins so and does not move."""
        again, out = self.folder / "again", self.folder / "again.llama"
        for path in (again, out):
            shutil.rmtree(path, ignore_errors=True)
        self.train(*STILL, "--init-from", begin, "--out", again, *options)
        self.succeed("export", again, out, "--transformers")
        return out

    def change_config(self, **values):
        path = self.llama / "config.json"
        config = {key: value for key, value in {**json.loads(path.read_text()), **values}.items() if value != "absent"}
        path.write_text(json.dumps(config))

    def refuse_folder(self, *culprits, options=()):
        self.refuse(2, culprits, *self.train_words(*STILL, "--quiet", "--init-from", self.llama, *options))


class TakingTest(LlamaFolderTest):
    def test_what_is_exported_again_is_the_same(self):
        self.check_exports(("--unit", "char", "--inner", 24), KIN[2])

    @parts.extra
    def test_what_others_export_again_is_the_same(self):
        self.check_exports((), ("--tied",), *KIN[:2])

    def check_exports(self, *forms):
        for options in forms:
            with self.subTest(options=options):
                self.make_folder(*options)
                for begin in (self.llama, self.run_folder):
                    out = self.begun_from(begin, "--bptt", 10)
                    for name in ("model.safetensors", "config.json", "tokenizer.json"):
                        self.assertEqual((out / name).read_bytes(), (self.llama / name).read_bytes(), name)
                for path in (self.run_folder, self.llama):
                    shutil.rmtree(path)

    def test_positions_and_norms_are_the_folders(self):
        """The base of the positions and the norms' epsilon, which shapes do not tell."""
        self.make_folder()
        for values in ({"rope_theta": 500000}, {"rope_theta": "absent", "rope_parameters": {"rope_theta": 5e5}}):
            self.change_config(rms_norm_eps=1e-6, **values)
            config = json.loads((self.begun_from(self.llama) / "config.json").read_text())
            self.assertEqual((config["rope_theta"], config["rms_norm_eps"]), (500000, 1e-6))
            self.assertEqual(self.metadata(self.folder / "again")["transformer"],
                             "heads=4,kv_heads=2,context=10,theta=500000,epsilon=9.99999997e-07")
        self.change_config(rope_theta=10000, rope_parameters={"rope_theta": 5e5})
        self.refuse_folder("rope_parameters.rope_theta 500000", "10000", "leave one of them out")
        self.change_config(rope_theta=500000, rope_parameters={"rope_theta": 5e5}, rope_scaling={"rope_theta": 5e5})
        self.refuse_folder("--rope-theta 10000,", "has 500000", options=("--rope-theta", 10000))
        for key, value in (("rms_norm_eps", 0), ("rms_norm_eps", "x"), ("rope_theta", -1), ("rope_theta", 0.5)):
            self.change_config(**{key: value})
            self.refuse_folder(key.replace("rope_theta", "rope"))
            self.change_config(rms_norm_eps=1e-6, rope_theta=500000)

    def test_a_folder_is_of_the_family_that_it_came_from(self):
        """What transformers 5 calls rope_parameters is rope_scaling of older versions."""
        llama3 = {"rope_type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4,
                  "original_max_position_embeddings": 8}
        qwen2 = {**llama3, "original_max_position_embeddings": 8192}
        for name, head, options, positions, scaling in (
                ("Llama", 6, KIN[0], 10, {"rope_type": "linear", "factor": 2}), ("Qwen2", 4, KIN[1], 65536, qwen2),
                ("Qwen3", 6, KIN[2], 64, llama3)):
            self.make_folder(*options)
            config = json.loads((self.llama / "config.json").read_text())
            self.assertEqual([config[key] for key in ("architectures", "model_type", "head_dim", "max_position_embeddings",
                                                      "rope_scaling")],
                             [[f"{name}ForCausalLM"], name.lower(), head, positions, scaling])
            whole = (self.llama / "config.json").read_bytes()
            self.change_config(rope_scaling=None, rope_theta="absent", use_sliding_window=False, sliding_window=4096,
                               layer_types=["full_attention"] * 2,
                               rope_parameters={**scaling, "rope_theta": config["rope_theta"]})
            self.assertEqual((self.begun_from(self.llama, "--bptt", 10) / "config.json").read_bytes(), whole)
            for path in (self.run_folder, self.llama):
                shutil.rmtree(path)

    def test_half_precision_becomes_fp32(self):
        self.make_folder()
        path = self.llama / "model.safetensors"
        tensors = read_tensors(path)
        for dtype in ("F16", "BF16"):
            both = {name: halved(values, dtype) for name, (_, _, values) in tensors.items()}
            write_tensors(path, {name: (dtype, tensors[name][1], both[name][0]) for name in tensors})
            found = read_tensors(self.begun_from(self.llama) / "model.safetensors")
            self.assertEqual({name: values for name, (_, _, values) in found.items()}, {name: both[name][1] for name in both})

    def test_several_files_in_any_order(self):
        self.make_folder("--tied")
        tensors = list(read_tensors(self.llama / "model.safetensors").items())
        expected = (self.llama / "model.safetensors").read_bytes()
        (self.llama / "model.safetensors").unlink()
        random.Random(1).shuffle(tensors)
        tensors.append(("lm_head.weight", dict(tensors)["model.embed_tokens.weight"]))  # some write tied weights twice
        pieces = [dict(tensors[i::3]) for i in range(3)]
        for i, piece in enumerate(pieces):
            write_tensors(self.llama / f"model-{i}.safetensors", piece)
        places = {name: f"model-{i}.safetensors" for i, piece in enumerate(pieces) for name in piece}
        (self.llama / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": places}))
        self.assertEqual((self.begun_from(self.llama) / "model.safetensors").read_bytes(), expected)
        for i in range(3):  # a single file is what transformers takes where there are both
            write_tensors(self.llama / f"model-{i}.safetensors", {})
        (self.llama / "model.safetensors").write_bytes(expected)
        self.assertEqual((self.begun_from(self.llama) / "model.safetensors").read_bytes(), expected)

    def test_tied_weights_that_are_there_twice_are_the_same(self):
        """Else transformers does not tie them."""
        self.make_folder("--tied")
        path = self.llama / "model.safetensors"
        tensors = read_tensors(path)
        dtype, shape, values = tensors["model.embed_tokens.weight"]
        shorter = (dtype, [shape[0] - 1, shape[1]], values[:-4 * shape[1]])
        for head in ((dtype, shape, values[4:] + values[:4]), (dtype, shape[::-1], values), shorter):
            write_tensors(path, {"lm_head.weight": head, **tensors})
            self.refuse_folder("tie_word_embeddings", "lm_head.weight", "model.embed_tokens.weight")
        both = ("BF16", shape, halved(values, "BF16")[0])
        write_tensors(path, {**tensors, "model.embed_tokens.weight": both, "lm_head.weight": both})
        self.begun_from(self.llama)

    def test_the_tokens_are_those_of_the_weights(self):
        """Of a text with other frequencies, whose own vocabulary would be another."""
        self.make_folder()
        for begin in (self.llama, self.run_folder):
            other = self.folder / "other.txt"
            generator = random.Random(7)
            write_source(other, 3000, generator)
            other.write_text("w3 " * 500 + other.read_text())
            self.begun_from(begin, "--data", other)
            self.assertEqual(self.metadata(self.folder / "again")["vocabulary.txt"],
                             self.metadata(self.run_folder)["vocabulary.txt"])
            self.refuse_other_order(begin)
            other.write_text(other.read_text() + "zebra\n")
            self.refuse(2, ["other.txt", "zebra"], *self.train_words(*STILL, "--quiet", "--init-from", begin, "--data", other))

    def refuse_other_order(self, begin):
        """As many tokens, but a number means another."""
        tokenizer = json.loads((self.llama / "tokenizer.json").read_text())
        words, path = tokenizer["model"]["vocab"], self.folder / "mine.json"
        path.write_text(json.dumps(tokenizer))
        self.begun_from(begin, "--tokenizer", path)
        tokenizer["model"]["vocab"] = {word: len(words) - 1 - number for word, number in words.items()}
        path.write_text(json.dumps(tokenizer))
        options = (*STILL, "--quiet", "--init-from", begin, "--tokenizer", path)
        self.refuse(2, [path, "another order"], *self.train_words(*options))

    def test_a_run_that_began_so_goes_on(self):
        self.check_going_on(((), LORA), (KIN[2], ()))

    @parts.extra
    def test_other_runs_that_began_so_go_on(self):
        self.check_going_on(((), ()), (KIN[1], ()), (KIN[1], LORA), (KIN[2], LORA))

    def check_going_on(self, *runs):
        for kin, lora in runs:
            self.make_folder(*kin)
            options = ("--init-from", self.llama, "--bptt", 10, "--lr", 0.01, "--schedule", "constant", *lora)
            self.train(*options, "--steps", 4, "--out", self.folder / "part")
            whole = self.train(*options, "--steps", 8)
            resumed = self.summary_of("train", "--resume", self.folder / "part", "--steps", 8)
            self.assertEqual(resumed["weights_crc32c"], whole["weights_crc32c"])
            for path in (self.run_folder, self.llama, self.folder / "part"):
                shutil.rmtree(path)

    def test_a_folder_writes_text(self):
        self.make_folder("--family", "qwen3", "--head-width", 6)
        texts = [self.run_program("generate", path, "--tokens", 30, "--seed", 2) for path in (self.run_folder, self.llama)]
        self.assertEqual(texts[0].stdout, texts[1].stdout)
        self.assertEqual(texts[1].returncode, 0, texts[1].stderr)


def write_ids(path, ids):
    """As numpy.save writes an array of uint16."""
    header = f"{{'descr': '<u2', 'fortran_order': False, 'shape': ({len(ids)},), }}"
    path.write_bytes(b"\x93NUMPY\x01\x00v\x00" + f"{header:117}\n".encode() + struct.pack(f"<{len(ids)}H", *ids))


class IdsTest(LlamaFolderTest):
    """Whether the losses are those of transformers is asked in python/tests/test_llama.py."""

    def setUp(self):
        super().setUp()
        self.make_folder()
        words = json.loads((self.llama / "tokenizer.json").read_text())["model"]["vocab"]
        self.ids = self.folder / "ids"
        self.ids.mkdir()
        for split in ("train", "valid", "test"):
            text = (self.texts / f"source.{split}.txt").read_text().replace("\n", " <eos> ")
            write_ids(self.ids / f"{split}.npy", [words[word] for word in text.split()])
        self.words = words

    def test_numbers_are_as_good_as_words(self):
        """The same bits from the text, cut into words, and from the words' numbers."""
        for begin in (self.llama, self.run_folder):
            summaries = [self.train("--init-from", begin, "--lr", 0.01, "--steps", 5, *options)
                         for options in (("--data", self.texts), ("--data", self.ids, "--unit", "id"))]
            self.assertEqual(*[summary["weights_crc32c"] for summary in summaries])
            self.assertEqual(*[summary["loss"] for summary in summaries])

    def test_a_run_of_numbers_is_used_as_any(self):
        run, again, out = self.folder / "numbers", self.folder / "more", self.folder / "exported"
        options = ("--data", self.ids, "--workers", 2, "--batch", 2, "--lr", 0.01, "--checkpoint-every", 4, "--schedule",
                   "constant")
        begin = ("--init-from", self.llama, "--unit", "id")
        whole = self.train(*begin, *options, "--steps", 8)
        self.train(*begin, *options, "--steps", 4, "--out", run)
        resumed = self.summary_of("train", "--resume", run, "--steps", 8)
        self.assertEqual(resumed["weights_crc32c"], whole["weights_crc32c"])
        self.assertEqual(self.metadata(run)["vocabulary.txt"], f"ids\n{len(self.words)}\n")
        self.train("--init-from", run, *options, "--steps", 1, "--out", again)  # which knows that its tokens are ids
        text = self.run_program("generate", run, "--prompt", "w3 w9", "--temperature", 0)
        self.assertIn('"w3" is not in the model\'s vocabulary', text.stderr)
        text = self.run_program("generate", run, "--prompt", "3 1", "--tokens", 9).stdout.split()
        self.assertEqual((text[:2], len(text)), (["3", "1"], 11))
        self.assertTrue(all(int(word) < len(self.words) for word in text))
        self.succeed("export", run, out, "--transformers")
        self.assertEqual(sorted(path.name for path in out.iterdir()), ["config.json", "model.safetensors"])
        self.assertIsNone(json.loads((out / "config.json").read_text())["bos_token_id"])
        self.refuse(2, ["--unit id"], *self.train_words(*STILL, "--quiet", "--init-from", out))
        self.train(*STILL, "--init-from", out, "--unit", "id", "--data", self.ids)

    def test_what_is_refused(self):
        def refuse(culprits, *options):
            self.refuse(2, culprits, *self.train_words(*STILL, "--quiet", "--data", self.ids, "--unit", "id", *options))
        refuse(["--vocabulary N is missing"])
        refuse(["train.npy", "tokens 0 to 8"], "--vocabulary", 9)
        refuse(["2 to 4194304"], "--vocabulary", 4194305)
        refuse(["--vocabulary 9,", f"has {len(self.words)};"], "--vocabulary", 9, "--init-from", self.llama)
        refuse(["--unit id", "word"], "--tokenizer", self.llama / "tokenizer.json", "--init-from", self.llama)
        refuse(["named like train.npy"], "--vocabulary", 20, "--data", self.texts)
        refuse(["source.train.txt", "numpy.save"], "--vocabulary", 20, "--data", self.texts / "source.train.txt")
        refuse(["--memory", "ids"], "--vocabulary", 20, "--memory", 1, "--data", self.large_array())
        run = self.folder / "lstm"
        self.train("--data", self.ids, "--unit", "id", "--vocabulary", 20, "--steps", 1, "--out", run)
        self.refuse(2, ["--prompt has no id", "1 15 4"], "generate", run)

    def large_array(self):
        path = self.folder / "large.npy"
        write_ids(path, [1] * 200000)
        return path


class RefusalTest(LlamaFolderTest):
    def test_options_that_contradict(self):
        self.make_folder()
        for option, wanted, has in (("--layers", 3, 2), ("--hidden", 32, 16), ("--heads", 2, 4), ("--kv-heads", 4, 2),
                                    ("--inner", 32, 64), ("--unit", "char", "word"), ("--model", "small", "transformer")):
            for begin in (self.llama, self.run_folder):
                self.refuse(2, [f"{option} {wanted},", f"has {has};", begin], *self.train_words(
                    *STILL, "--quiet", "--init-from", begin, option, wanted))
        self.refuse_folder("--tied true", "has false", options=("--tied",))
        self.refuse_folder("--vocabulary 9", "--tokenizer", options=("--vocabulary", 9))

    def test_a_context_that_nothing_holds(self):
        """Too long for a text, and for a machine; a shorter one is said."""
        self.make_folder()
        self.change_config(max_position_embeddings=131072)
        self.refuse_folder("strips of 65536 ", "write a smaller --bptt or --batch")
        text = self.folder / "long.txt"
        text.write_text((self.texts / "source.train.txt").read_text() * 400)
        self.refuse(2, ["--bptt 65536:", " GB in a step with --batch 20,", "such as --bptt 512"], *self.train_words(
            *STILL, "--quiet", "--init-from", self.llama, "--data", text, "--batch", 20))
        self.begun_from(self.llama, "--bptt", 10)

    def test_what_this_transformer_has_not(self):
        self.make_folder()
        config = (self.llama / "config.json").read_text()
        for key, value, *culprits in (
                ("rope_scaling", {"type": "dynamic", "factor": 8}, "dynamic"), ("attention_bias", True),
                ("rope_parameters", {"rope_type": "yarn"}, "yarn"), ("mlp_bias", True), ("hidden_act", "gelu"),
                ("rope_scaling", {"rope_type": "longrope", "long_factor": [1] * 99}, "longrope"), ("rope_scaling", []),
                ("rope_parameters", {"full_attention": {"rope_type": "yarn", "factor": 4}}, "rope_parameters", "all layers"),
                ("rope_scaling", {"rope_type": 3}), ("partial_rotary_factor", 0.5), ("use_sliding_window", True),
                ("layer_types", ["full_attention", "sliding_attention"], "sliding_attention"), ("layer_types", [3]),
                ("model_type", "mistral", "qwen3"), ("model_type", 3), ("head_dim", 8), ("quantization_config", {"bits": 4}),
                ("model_type", "qwen2", "of llama"), ("model_type", "qwen3", "of llama")):
            self.change_config(**{key: value})
            self.refuse_folder(self.llama, *(culprits or [key]))
            (self.llama / "config.json").write_text(config)
        self.change_config(rope_parameters={"rope_type": "default"}, rope_scaling=None)
        self.begun_from(self.llama)

    def test_scaling_that_cannot_be(self):
        self.make_folder()
        whole = {"rope_type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4,
                 "original_max_position_embeddings": 8192}
        for key in list(whole)[1:]:
            for value in (None, "8", -1, 1e300, True):
                self.change_config(rope_scaling={**whole, key: value})
                self.refuse_folder("config.json", key)
        for changed, *culprits in (({"low_freq_factor": 4}, "low_freq_factor 4", "high_freq_factor 4"),
                                   ({"factor": 0.5}, "factor", "from 1 to"), ({"partial_rotary_factor": 0.5}, "partial")):
            self.change_config(rope_scaling={**whole, **changed})
            self.refuse_folder(*culprits)
        self.change_config(rope_scaling=whole, rope_parameters={**whole, "factor": 32})
        self.refuse_folder("rope_scaling", "rope_parameters", "leave one of them out")
        self.change_config(rope_parameters=whole)
        self.refuse_folder("--rope-scaling linear:2,", "has llama3:8,1,4,8192;", options=("--rope-scaling", "linear:2"))
        self.begun_from(self.llama, "--rope-scaling", "llama3:8.0,1,4,8192")

    def test_families_that_their_tensors_contradict(self):
        for kin in KIN[1:]:
            self.make_folder(*kin)
            config = (self.llama / "config.json").read_text()
            self.change_config(model_type="llama")
            self.refuse_folder("model_type llama", f"of {json.loads(config)['model_type']}")
            (self.llama / "config.json").write_text(config)
            self.change_config(num_key_value_heads="absent")
            self.refuse_folder("num_key_value_heads")
            self.change_config(num_key_value_heads=2, head_dim=2)
            self.refuse_folder("head_dim 2")
            (self.llama / "config.json").write_text(config)
            self.refuse_folder("--family llama,", f"has {json.loads(config)['model_type']};", options=("--family", "llama"))
            for path in (self.run_folder, self.llama):
                shutil.rmtree(path)

    def test_a_config_that_is_not_of_its_weights(self):
        self.make_folder()
        config = (self.llama / "config.json").read_text()
        for key, value in (("vocab_size", 14), ("hidden_size", 32), ("intermediate_size", 65), ("num_hidden_layers", 3),
                           ("num_hidden_layers", 0), ("num_attention_heads", 3), ("num_attention_heads", 1e300),
                           ("vocab_size", "13"), ("hidden_size", "absent"), ("num_attention_heads", 17)):
            self.change_config(**{key: value})
            self.refuse_folder(self.llama, key if key != "num_attention_heads" else "heads")
            (self.llama / "config.json").write_text(config)
        for key, value, culprits in (("rms_norm_eps", 1e-50, ("rms_norm_eps", "1e-12")), ("rope_theta", 0.5, ("rope_theta",)),
                                     ("num_attention_heads", 17, ("num_attention_heads 17", "hidden_size 16")),
                                     ("num_key_value_heads", 3, ("num_key_value_heads 3", "heads 4"))):
            self.change_config(**{key: value})
            self.refuse_folder("config.json has", *culprits)
            (self.llama / "config.json").write_text(config)
        self.change_config(num_key_value_heads=4)
        self.refuse_folder("k_proj.weight", "8x16", "16x16")

    def test_weights_that_cannot_be(self):
        self.make_folder()
        path = self.llama / "model.safetensors"
        tensors, norm = read_tensors(path), "model.layers.1.input_layernorm.weight"
        def refuse_with(changed, *culprits):
            write_tensors(path, {name: entry for name, entry in {**tensors, **changed}.items() if entry})
            self.refuse_folder(self.llama, *culprits)
            for words in (("generate", self.llama, "--tokens", 3), ("export", self.llama, self.folder / "new")):
                self.refuse(2, culprits[:1], *words)
        refuse_with({norm: None}, norm)
        refuse_with({norm: ("I32", *tensors[norm][1:])}, norm, "bf16")
        refuse_with({norm: ("F32", [15], tensors[norm][2][4:])}, norm, "15", "16")
        refuse_with({"another.weight": tensors[norm]}, "another.weight")
        key, head = "model.layers.0.self_attn.k_proj.weight", "lm_head.weight"
        refuse_with({key: ("F32", [16, 8], tensors[key][2])}, key, "16x8", "8x16")
        refuse_with({key: ("F32", [128], tensors[key][2])}, key, "128", "8x16")
        refuse_with({head: ("F32", tensors[head][1][::-1], tensors[head][2])}, head)
        refuse_with({key.replace("weight", "bias"): tensors[norm]}, key.replace("weight", "bias"))
        refuse_with({"model.layers.5.mlp.up_proj.weight": tensors[norm]}, "model.layers.5.mlp.up_proj.weight")
        refuse_with({norm: ("F32", [16], b"\0\0\xc0\x7f" * 16)}, norm, "NaN")
        refuse_with({"lm_head.weight": None}, "lm_head.weight", "tie_word_embeddings")
        whole = path.read_bytes()
        path.write_bytes(whole[:len(whole) // 2])
        self.refuse_folder("model.safetensors")
        path.unlink()
        self.refuse_folder("model.safetensors")

    def test_a_list_that_cannot_be(self):
        self.make_folder()
        index = self.llama / "model.safetensors.index.json"
        (self.llama / "model.safetensors").unlink()
        for text, culprit in (("[]", "index.json"), ("{", "index.json"), ("{}", "weight_map"),
                              ('{"weight_map": 3}', "weight_map"), ('{"weight_map": ["x.safetensors"]}', "weight_map"),
                              ('{"weight_map": {}}', "embed_tokens"),
                              ('{"weight_map": {"a": "../run/x"}}', "for a"), ('{"weight_map": {"a": 1}}', "for a"),
                              ('{"weight_map": {"a": "missing.safetensors"}}', "missing.safetensors")):
            index.write_text(text)
            self.refuse_folder(culprit)

    def test_tokens_that_cannot_be(self):
        self.make_folder()
        path = self.llama / "tokenizer.json"
        good = json.loads(path.read_text())
        def refuse_with(model, *culprits):
            path.write_text(json.dumps({**good, "model": {**good["model"], **model}}))
            self.refuse_folder(*culprits)
        words = good["model"]["vocab"]
        refuse_with({"type": "BPE"}, "--tokenizer")
        refuse_with({"vocab": {word: 0 for word in words}}, "tokenizer.json", "numbers")
        refuse_with({"vocab": {word: number for word, number in words.items() if number < 5}}, "--tokenizer 5")
        refuse_with({"vocab": {}}, "tokenizer.json", "two tokens")
        self.make_deep_numbers(path, good)
        path.write_bytes(json.dumps(good).encode().replace(b"\"w1\"", b"\"\x9d\""))
        self.refuse_folder("tokenizer.json", "not UTF-8")
        path.write_bytes(gzip.compress(b" " * (64 << 20) + b"{}"))
        self.refuse_folder("tokenizer.json", "64 MiB")
        self.make_other_tokens(path, good)
        path.unlink()
        self.refuse_folder("tokenizer.json", "--tokenizer")
        (self.folder / "mine.json").write_text(json.dumps(good))
        self.begun_from(self.llama, "--tokenizer", self.folder / "mine.json")

    def make_deep_numbers(self, path, good):
        """Two that are compared at each of their levels twice would take longer than anybody waits."""
        deep = 0
        for _ in range(64):
            deep = {"a": deep}
        word = next(iter(good["model"]["vocab"]))
        vocab = {**good["model"]["vocab"], word: deep}
        path.write_text(json.dumps({**good, "model": {**good["model"], "vocab": vocab},
                                    "added_tokens": [{"id": deep, "content": word}]}))
        self.refuse_folder("tokenizer.json", "numbers")

    def make_other_tokens(self, path, good):
        """A text would be cut otherwise than the weights were trained with."""
        word, number = next(iter(good["model"]["vocab"].items()))
        for changed, culprit in (({"normalizer": {"type": "Lowercase"}}, "normalizer"), ({"normalizer": None}, "normalizer"),
                                 ({"pre_tokenizer": {**good["pre_tokenizer"], "invert": True}}, "pre_tokenizer"),
                                 ({"truncation": {"max_length": 2, "stride": 0}}, "truncation"),
                                 ({"post_processor": self.template({"SpecialToken": {"id": word, "type_id": 0}}, TEXT)},
                                  "post_processor"),
                                 ({"post_processor": self.template(TEXT, TEXT)}, "post_processor"),
                                 ({"post_processor": self.template({"SpecialToken": {"id": word, "type_id": 0}})},
                                  "post_processor"),
                                 ({"post_processor": {"type": "BertProcessing", "sep": [word, 0], "cls": [word, 0]}},
                                  "post_processor"),
                                 ({"added_tokens": [{"id": 99, "content": "<s>"}]}, "<s>"),
                                 ({"added_tokens": [{"id": number + 1, "content": word}]}, word)):
            path.write_text(json.dumps({**good, **changed}))
            self.refuse_folder("--tokenizer")
            self.refuse_folder("tokenizer.json", culprit, options=("--tokenizer", path))
        path.write_text(json.dumps({**good, "added_tokens": [{"id": number, "content": word}]}))
        self.begun_from(self.llama)
        saved_again = {"truncation": None, "padding": None, "decoder": None, "post_processor": self.template(TEXT)}
        path.write_text(json.dumps({**good, **saved_again}))  # by transformers
        self.begun_from(self.llama)

    def template(self, *single):
        return {"type": "TemplateProcessing", "single": single, "pair": [], "special_tokens": {}}


if __name__ == "__main__":
    run_tests()
