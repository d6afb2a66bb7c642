"""Programs that train together, and tell in lines of JSON what happens to them: those of bench/changing.py, and
those of python/tests/test_members.py."""
import json
import queue
import subprocess
import sys
import threading
import time


class Programs:
    """Each line of a program has its number, as "member"; the last one, as "theta", what it ends with."""

    def __init__(self, seconds):
        """`seconds` that anything may take."""
        self.seconds, self.news, self.readers = seconds, queue.Queue(), {}
        self.programs, self.latest, self.ends, self.errors, self.may_end = {}, {}, {}, {}, set()

    def start(self, member, words):
        program = self.programs[member] = subprocess.Popen(list(map(str, words)), text=True, stdin=subprocess.PIPE,
                                                           stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.readers[program] = [threading.Thread(target=target, args=(member, program), daemon=True)
                                 for target in (self._note_errors, self._listen)]
        for reader in self.readers[program]:
            reader.start()

    def _note_errors(self, member, program):
        for line in program.stderr:
            self.errors[member] = self.errors.get(member, "") + line
            print(line, end="", file=sys.stderr, flush=True)

    def _listen(self, member, program):
        for line in program.stdout:
            self.news.put(json.loads(line))
        self.news.put({"member": member, "is_over": program})

    def wait(self, is_so, what):
        end = time.monotonic() + self.seconds
        while not is_so():
            try:
                one = self.news.get(timeout=max(0.1, end - time.monotonic()))
            except queue.Empty:
                errors = {member: text[-300:] for member, text in self.errors.items()}
                raise AssertionError(f"{what} did not come: {self.latest} {self.ends} {errors}") from None
            member, program = one["member"], one.get("is_over")
            if program is None:
                self.hear(member, one)
            elif member not in self.ends and program not in self.may_end:
                self.readers[program][0].join(self.seconds)
                raise AssertionError(f"program {member} has ended, and {what} did not come: {self.errors.get(member)}")

    def hear(self, member, one):
        (self.ends if "theta" in one else self.latest)[member] = one

    def say(self, member, text):
        self.programs[member].stdin.write(text)
        self.programs[member].stdin.flush()

    def tell_to_end(self, members, order):
        for member in members:
            if member not in self.ends:
                self.say(member, order + "\n")
        self.wait(lambda: set(members) <= set(self.ends), f"the end of {list(members)}")

    def close(self):
        for program in self.readers:
            program.kill()
            program.wait()
            for reader in self.readers[program]:
                reader.join(self.seconds)
            for pipe in (program.stdin, program.stdout, program.stderr):
                pipe.close()
