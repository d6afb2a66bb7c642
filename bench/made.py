"""By what a file of figures was made, and from what: the entry `made` that tools/figures finds in it; and its text."""
import datetime
import json
import os
import pathlib
import platform
import shlex
import subprocess
import sys


def machine():
    cpu = next((line.split(":")[1].strip() for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines()
                if line.startswith("model name")), platform.machine())
    return {"cpu": cpu, "cores": os.cpu_count(), "system": platform.platform()}


def commit(folder):
    """What is checked out there, with a + where files differ from it; None outside of a repository."""
    def git(*words):
        return subprocess.run(["git", "-C", folder, *words], capture_output=True, text=True, check=False).stdout.strip()

    head = git("rev-parse", "--short=12", "HEAD")
    return head + ("+" if git("status", "--porcelain", "--untracked-files=no") else "") if head else None


def made(program=None):
    """`commit` is what is checked out where the bench lies, and `program` what is where that lies, whatever it was built from."""
    return {"commit": commit(pathlib.Path(__file__).parent),
            **({"program": commit(pathlib.Path(program).resolve().parent)} if program else {}),
            "date": datetime.date.today().isoformat(), "machine": machine(),
            "command": shlex.join(["bench/" + pathlib.Path(sys.argv[0]).name, *sys.argv[1:]])}


def rounded(value):
    """Of a number seven digits: what is behind them is noise, and makes rows longer than anybody reads."""
    if isinstance(value, dict):
        return {key: rounded(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [rounded(one) for one in value]
    return float(f"{value:.7g}") if isinstance(value, float) else value


def are_numbers(value):
    if isinstance(value, (dict, list)):
        return all(are_numbers(one) for one in (value.values() if isinstance(value, dict) else value))
    return isinstance(value, (int, float))


def as_json(value, indent=0, **how):
    """As JSON, of which what is short enough stands on one line: so a row of figures is a line of a comparison. Numbers alone,
    as of a curve, are one however many. `how`: as json.dumps takes it."""
    value = rounded(value)
    line = json.dumps(value, **how)
    if len(line) + indent <= 320 or are_numbers(value) or not isinstance(value, (dict, list)):
        return line
    if isinstance(value, dict):
        parts = [f"{json.dumps(key)}: {as_json(one, indent + 1, **how)}" for key, one in value.items()]
    else:
        parts = [as_json(one, indent + 1, **how) for one in value]
    pad = "\n" + " " * (indent + 1)
    return line[0] + pad + f",{pad}".join(parts) + "\n" + " " * indent + line[-1]
