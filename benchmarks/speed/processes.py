"""Whole processes, timed from start to end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

LAUNCH = Path(__file__).with_name("launch.py")

# Numerical libraries would start threads that nothing here uses.
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


class CommandError(Exception):
    """A measured command failed."""


@dataclass
class Program:
    """A command to measure, and what its runs used.

    Attributes:
        name: how the table calls it.
        command: program and arguments, the program as an absolute path.
        env: additions to the environment.
        samples: one dictionary of ``launch.py`` a run, without warm-up runs.
        stdout: what the last run printed.
        error: why it failed; it is not run again then.
    """

    name: str
    command: list[str]
    env: dict[str, str] = field(default_factory=dict)
    samples: list[dict[str, Any]] = field(default_factory=list)
    stdout: str = ""
    error: str | None = None

    def figures(self) -> dict[str, Any]:
        """Return one row of a table: the spread of wall time, median CPU time, highest peak."""
        if self.error is not None or not self.samples:
            return {"program": self.name, "remark": self.error or "not run"}
        walls = [s["wall_s"] for s in self.samples]
        return {
            "program": self.name,
            "runs": len(walls),
            "wall_min_s": min(walls),
            "wall_median_s": median(walls),
            "wall_max_s": max(walls),
            "cpu_s": median(s["cpu_s"] for s in self.samples),
            "peak_mib": max(s["peak_mib"] for s in self.samples),
        }


def orsched_command(*arguments: str) -> list[str]:
    """Return the command line of orsched under the running interpreter."""
    return [sys.executable, "-m", "orsched", *arguments]


def run_once(program: Program, folder: Path) -> dict[str, Any]:
    """Run a program once; raise ``CommandError`` if it fails."""
    out, err = folder / "stdout", folder / "stderr"
    measured = subprocess.run(
        [sys.executable, "-I", "-S", str(LAUNCH), str(out), str(err), *program.command],
        env=ENVIRONMENT | program.env,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    if measured.returncode:
        raise CommandError(measured.stderr.strip().splitlines()[-1])
    figures: dict[str, Any] = json.loads(measured.stdout)
    if figures.pop("exit_code"):
        lines = err.read_text().strip().splitlines() or ["no message"]
        raise CommandError(f"failed: {lines[-1][:100]}")
    program.stdout = out.read_text()
    return figures


def measure(programs: list[Program], repeats: int, folder: Path, warm_up: int = 1) -> None:
    """Run all programs in turn, ``warm_up`` times unmeasured, then ``repeats`` times measured.

    In turn, so that a disturbance of the machine meets all of them alike.
    """
    for turn in range(-warm_up, repeats):
        for program in programs:
            if program.error is not None:
                continue
            try:
                sample = run_once(program, folder)
            except CommandError as error:
                program.error = str(error)
                continue
            if turn >= 0:
                program.samples.append(sample)
