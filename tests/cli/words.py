"""What the program says about itself: help as wide as the terminal, what somebody may have meant, pages of man and
what shells complete."""
import os
import pathlib
import pty
import re
import shutil
import subprocess
import tempfile
import unittest

from support import PROGRAM, run_tests

ROOT = pathlib.Path(__file__).resolve().parents[2]


def say(*words, code=0, **environment):
    """What the program prints; its exit code must be this one."""
    run = subprocess.run([PROGRAM, *words], capture_output=True, text=True, timeout=60, check=False,
                         env={**os.environ, **environment})
    if run.returncode != code:
        raise AssertionError(f"thinwire {' '.join(words)} ended with {run.returncode}: {run.stderr}")
    return run.stdout if code == 0 else run.stderr


def say_on_terminal(*words, **environment):
    """What a terminal gets to see."""
    leader, follower = pty.openpty()
    with subprocess.Popen([PROGRAM, *words], stdout=follower, env={**os.environ, **environment}) as process:
        os.close(follower)
        text = b""
        while True:
            try:
                part = os.read(leader, 65536)
            except OSError:  # the program has ended
                break
            if not part:
                break
            text += part
    os.close(leader)
    assert process.returncode == 0
    return text.decode()


def complete(*words):
    return [line.partition("\t")[0] for line in say("complete", *words).splitlines()]


def commands():
    return complete("")


class Help(unittest.TestCase):
    def test_help_of_a_command_is_its_page(self):
        self.assertEqual(say("help", "train", "lm"), say("train", "lm", "--help"))
        self.assertEqual(say("help", "bench", "codec"), say("bench", "codec", "--help"))
        self.assertEqual(say("help"), say("--help"))
        for command in commands():
            self.assertIn("Usage: thinwire " + command, say("help", command))
        self.assertIn('there is no command "trian"; did you mean train?', say("help", "trian", code=2))
        self.assertIn("image is a task, not a command; thinwire train image trains on it", say("image", code=2))
        self.assertIn("launch is a command of the Python package: type python -m thinwire launch, and the same words", say("launch", "train.py", code=2))

    def test_options_of_another_page_are_named_once_and_explained_there(self):
        def explained(page):
            return re.findall(r"^  (--[\w-]+)", page, re.M)

        for command, task in (("plan", "image"), ("simulate", "lm")):
            page = say("help", command, task)
            self.assertIn("--lr", complete(command, task, "--"))
            further = page.partition("\nFurther options:\n")[2].partition("\nExamples:")[0]
            self.assertTrue(further.startswith(f"thinwire help train {task} explains these:"), page)
            named = re.findall(r"--[\w-]+", further)
            self.assertLessEqual(set(named), set(explained(say("help", "train", task))))
            self.assertEqual(sorted(["--help", *explained(page), *named]), sorted(complete(command, task, "--")))

    def test_pages_are_as_wide_as_the_terminal(self):
        for command in ("train", "simulate", "predict", "doctor"):
            for width in (60, 80, 200):
                page = say("help", command, COLUMNS=str(width)).partition("\nExamples:")[0]
                too_long = [line for line in page.splitlines() if len(line) > width and " " in line.strip()]
                self.assertEqual(too_long, [], f"thinwire help {command}, {width} columns")
        words = say("help", "train", COLUMNS="60").partition("\nExamples:")[0].split()
        self.assertEqual(words, say("help", "train", COLUMNS="200").partition("\nExamples:")[0].split())
        self.assertGreater(max(map(len, say("help", "train", COLUMNS="200").splitlines())), 150)
        self.assertEqual(say("help", "train"), say("help", "train", COLUMNS="80"))

    def test_letters_are_bold_on_a_terminal_alone(self):
        self.assertNotIn("\033", say("help", "train", TERM="xterm"))
        self.assertIn("\033[1m", say_on_terminal("help", "train", TERM="xterm", NO_COLOR=""))
        self.assertNotIn("\033", say_on_terminal("help", "train", TERM="xterm", NO_COLOR="1"))
        self.assertNotIn("\033", say_on_terminal("help", "train", TERM="dumb", NO_COLOR=""))

    def test_sentences_begin_with_capitals_and_no_number_means_nothing(self):
        for command in commands():
            text = say("help", command, COLUMNS="1000")
            page = " ".join(text.split())
            self.assertNotRegex(page, r"default: -1|-1:|; 0:|[( ]0: ", command)
            self.assertNotRegex(page, r"to 10{6,}", command)
            for line in text.splitlines():
                option = re.match(r"  --\S+(?: [\[A-Z]\S*)?  +(\S.*)", line)
                if option and not re.match(r"[A-Z]|beta2|off ", option[1]):
                    self.fail(f"thinwire help {command}: {line}")


class Lists(unittest.TestCase):
    def test_what_there_is_can_be_listed(self):
        for name in ("image", "lm", "asr", "w2v-bert"):
            self.assertRegex(say("tasks"), rf"(?m)^  {name} ")
        for name in ("resnet18", "medium", "ctc"):
            self.assertIn(name, say("models"))
        self.assertNotIn("resnet18", say("models", "lm"))
        self.assertIn("did you mean image?", say("models", "imag", code=2))
        self.assertRegex(say("models", "lm"), r"(?m)^  medium +LSTM of Zaremba et al. 2014 \(2 x 650, half dropped\)$")
        self.assertRegex(say("models"), r"(?m)^  dgc +LSTM of Deep Gradient Compression")
        self.assertRegex(say("models", "resnet18"), r"ImageNet ResNet of 18[^$]*thinwire train image --model resnet18 ")
        self.assertIn("thinwire train lm --model large ", say("models", "large"))

    def test_the_word_that_is_missing_has_a_name(self):
        for missing, words in (("RUN", ["report"]), ("SHELL", ["completion"]), ("CHECKPOINT", ["export"]),
                               ("FILE", ["export", "x"]), ("FILE", ["check-scheme"])):
            self.assertIn(f"thinwire: {missing} is missing; usage: thinwire {words[0]} ", say(*words, code=2))

    def test_a_task_behind_its_options_is_told_to_come_first(self):
        said = say("train", "--workers", "2", "lm", "--data", "ph", code=2)
        self.assertIn("thinwire: the task comes first: thinwire train lm ...", said)
        self.assertIn("thinwire: TASK is missing, ", say("train", "--workers", "2", code=2))

    def test_a_task_begins_its_page(self):
        tasks = ("image", "lm", "asr", "w2v-bert")
        for task in tasks:
            head = " ".join(say("help", "train", task).partition("\n\nWhat to train")[0].split())
            others = ", ".join(other for other in tasks if other != task)
            self.assertIn(f"[options] This is the page of task {task}: ", head)
            self.assertTrue(head.endswith(f"thinwire help train {others}."), head)

    def test_no_example_sends_a_part_of_a_gradient_to_adam(self):
        """Which learns little of what comes late; behind its moments, and all of a gradient, are another matter."""
        for task in ("image", "lm", "asr", "w2v-bert"):
            page = say("help", "train", task, COLUMNS="1000")
            own = re.search(r"^  --optimizer .*default: (\w+)", page, re.M).group(1)
            for line in page.partition("\nExamples:\n")[2].replace("\\\n", " ").splitlines():
                scheme = re.search(r"--sync ([\w-]+)", line)
                by = re.search(r"--optimizer (\w+)", line)
                if scheme and (by.group(1) if by else own) != "sgd":
                    options = dict(re.findall(r"^  (\w+) +(\S+)", say("schemes", scheme.group(1)), re.M))
                    self.assertFalse("density" in options and float(options.get("beta2", 0)) == 0, line)

    def test_somebody_meant_another_word(self):
        none = ("--out", "none")
        for meant, words in (("train", ["trian"]), ("codec", ["bench", "codecs"]), ("image", ["train", "imgae"]),
                             ("resnet20", ["train", "image", "--model", "resnet21", *none]),
                             ("medium", ["train", "lm", "--data", __file__, "--model", "mediun", *none]),
                             ("dgc", ["train", "image", "--sync", "dcg", *none]), ("dgc", ["schemes", "dcg"]),
                             ("dgc", ["train", "image", "--sync", "DGC", *none]),
                             ("adpsgd-random", ["train", "image", "--sync", "adpsgd-randon", *none]),
                             ("density", ["train", "image", "--sync", "dgc:densty=0.1", *none]),
                             ("pace", ["train", "image", "--sync", "adpsgd-random:pac=free", *none]),
                             ("--epochs", ["train", "image", "--epoch", "5"])):
            self.assertIn(f"did you mean {meant}?", say(*words, code=2), words)

    def test_a_run_is_resumed_by_an_option(self):
        self.assertIn("thinwire train --resume runs/photos", say("train", "resume", "runs/photos", code=2))


class Manual(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.share = pathlib.Path(self.folder.name)
        subprocess.run([ROOT / "tools/write-pages", PROGRAM, self.share], check=True)

    def test_every_command_has_a_page_with_every_option(self):
        for command in commands():
            page = (self.share / f"man/man1/thinwire-{command}.1").read_text().replace("\\-", "-")
            self.assertRegex(page, r"^\.TH THINWIRE-" + command.upper())
            for option in re.findall(r"^  (--[\w-]+)", say("help", command), re.M):
                self.assertIn(f"\n.TP\n\\fB{option}\\fR", page, command)
        self.assertTrue((self.share / "man/man1/thinwire-train-lm.1").exists())
        self.assertIn("thinwire", (self.share / "man/man1/thinwire.1").read_text())

    @unittest.skipUnless(shutil.which("groff"), "groff is not installed")
    def test_groff_has_no_complaint(self):
        for page in (self.share / "man/man1").glob("*.1"):
            run = subprocess.run(["groff", "-man", "-Tutf8", "-ww", "-z", page], capture_output=True, text=True, check=True)
            self.assertEqual(run.stderr, "", page.name)


class Completion(unittest.TestCase):
    def test_words_are_completed(self):
        self.assertEqual(complete("tr"), ["train", "transcribe"])
        self.assertEqual(complete("train", ""), ["image", "lm", "asr", "w2v-bert"])
        self.assertEqual(complete("train", "image", "--wei"), ["--weight-decay"])
        self.assertIn("--tied", complete("train", "lm", "--"))
        self.assertNotIn("--tied", complete("train", "image", "--"))
        self.assertEqual(complete("train", "image", "--compute", ""), ["fp32", "bf16"])
        self.assertEqual(complete("train", "image", "--compute", "=", "b"), ["bf16"])
        self.assertEqual(complete("train", "image", "--epochs", "5", "--model", "resnet1"), ["resnet110", "resnet18"])
        self.assertEqual(complete("train", "image", "--sync", "dg"), ["dgc", "dgc-bold", "dgc-adam"])
        self.assertEqual(complete("schemes", "adpsgd-r"), ["adpsgd-random"])
        self.assertEqual(complete("bench", ""), ["codec", "train"])
        self.assertEqual(complete("train", "image", "--data", ""), [])  # the shell's files

    @unittest.skipUnless(shutil.which("bash"), "bash is not installed")
    def test_bash_completes(self):
        script = ('source <("$0" completion bash); complete -p thinwire; COMP_WORDS=("$0" train image --model resnet1);'
                  ' COMP_CWORD=4; _thinwire; echo "${COMPREPLY[@]}"; COMP_WORDS=("$0" predict x); COMP_CWORD=2;'
                  ' _thinwire; echo "${#COMPREPLY[@]}"')
        said = subprocess.run(["bash", "-c", script, PROGRAM], capture_output=True, text=True, check=True)
        self.assertEqual(said.stderr, "")
        self.assertIn("-F _thinwire thinwire\nresnet110 resnet18\n0\n", said.stdout)

    @unittest.skipUnless(shutil.which("zsh"), "zsh is not installed")
    def test_zsh_reads_the_script(self):
        script = ('_describe() { print -l -- "${(@P)2}"; }; _files() { print files; }; words=("$1" train im); CURRENT=3;'
                  ' source <("$1" completion zsh)')
        said = subprocess.run(["zsh", "-fc", script, "zsh", PROGRAM], capture_output=True, text=True, check=True)
        self.assertTrue(said.stdout.startswith("image:"), said.stdout)


if __name__ == "__main__":
    run_tests()
