"""Policies of a user that misbehave, and a small grid that runs them."""

import csv
import io
import os
import subprocess
import sys

POLICIES = '''
import os, signal, time
from orsched.heuristics.pang import FirstComeFirstServed

class Slow(FirstComeFirstServed):
    """Takes its time, and writes down when it begins."""
    def __init__(self, log, tag, seconds=0.1):
        super().__init__()
        self.log, self.tag, self.seconds = log, tag, seconds
    def start(self, view):
        with open(self.log, "a") as stream:
            stream.write(f"{self.tag} {os.getpid()}\\n")
        time.sleep(self.seconds)

class Dies(FirstComeFirstServed):
    """With tag 1, kills its process the first few times."""
    def __init__(self, marks, times, tag):
        super().__init__()
        before = len(os.listdir(marks))
        if tag == 1 and before < times:
            open(f"{marks}/{before}", "w").close()
            os.kill(os.getpid(), signal.SIGKILL)

class Fails(FirstComeFirstServed):
    def __init__(self, tag):
        super().__init__()
        if tag == 1:
            raise ZeroDivisionError("a policy's own mistake")

class Hangs(FirstComeFirstServed):
    def __init__(self, tag):
        super().__init__()
        while tag == 1:
            time.sleep(0.05)
'''


def command(cwd, *arguments):
    """Return the command line and the place of a process; what a study names may be run."""
    consent = ["--allow-code"] if arguments[0] == "study" else []
    line = [sys.executable, "-m", "orsched", *map(str, arguments), *consent]
    paths = os.pathsep.join([str(cwd), *sys.path])
    return {"args": line, "cwd": cwd, "text": True, "env": {**os.environ, "PYTHONPATH": paths}}


def orsched(*arguments, cwd):
    """Run the command line in a process of its own."""
    return subprocess.run(**command(cwd, *arguments), capture_output=True, timeout=300)


def table(folder):
    """Return the rows of a study's table, without the columns of the run."""
    with (folder / "table.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    return [{k: v for k, v in row.items() if not k.startswith("run_")} for row in rows]


def frozen(folder):
    """Return the text of a study's table, without the columns of the run."""
    rows = table(folder)
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def finished(folder):
    """Return name -> (time, bytes) of all finished cells."""
    paths = (folder / "cells").glob("*.json") if folder.exists() else ()
    return {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in paths}
