"""The output and the picture of README.md and of the documentation's start page.

python -m benchmarks.readme runs the commands in their console blocks below which output stands,
writes what they print in its place, and draws the picture. A test compares with ``current``.
"""

from __future__ import annotations

import argparse
import re
import shlex
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import orsched

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).resolve().parents[1]
PAGES = ("README.md", "docs/index.md")
PICTURE = ROOT / "docs" / "_static" / "schedule.png"
BLOCK = re.compile(
    r"(?<=```console\n)(\$ orsched (?:[^\n]*\\\n)*[^\n]*\n)((?:[^$`\n][^\n]*\n)+)(?=```)"
)
"""A console block of one command with what it printed."""


@cache
def printed(command: str) -> str:
    """Return what a command on a page prints on standard output, run in the repository's root."""
    words = shlex.split(command.removeprefix("$ ").replace("\\\n", " "))
    program = [sys.executable, "-m", *words, "--quiet"]
    done = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, check=True)
    return "".join(f"{line.rstrip()}\n" for line in done.stdout.splitlines())


def current(text: str) -> str:
    """Return a page with the output that its commands print now."""
    return BLOCK.sub(lambda found: found[1] + printed(found[1]), text)


def draw() -> None:
    """Draw the schedule of 100 requests on 20 clients."""
    import matplotlib.pyplot as plt
    from PIL import Image

    instance = orsched.load("pang-100x20")
    result = orsched.solve(instance, "hybrid")
    figure, ax = plt.subplots(figsize=(9, 3.4))
    orsched.gantt(instance, result.schedule, ax)
    figure.savefig(PICTURE, dpi=110, bbox_inches="tight", metadata={"Software": None})
    plt.close(figure)
    with Image.open(PICTURE) as picture:
        small = picture.convert("RGB").quantize(64, dither=Image.Dither.NONE)
    small.save(PICTURE, optimize=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Write the pages and the picture."""
    argparse.ArgumentParser(prog="python -m benchmarks.readme", description=__doc__).parse_args(
        argv
    )
    for name in PAGES:
        page = ROOT / name
        page.write_text(current(page.read_text()))
        print(name)
    draw()
    print(PICTURE.relative_to(ROOT))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
