"""``python -m tests.fuzz``: mutated inputs of every format, judged within limits.

    python -m tests.fuzz --seed 1 --inputs 1000                  # of each format
    python -m tests.fuzz --seed 1 --only 17 --format study.toml  # one of them again

An input is made from seed, format and index alone. Exits with 1 if there is a finding: a crash, a
wrong verdict, an input over its time or memory. Its files are saved in ``fuzz-out/findings``.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from time import perf_counter

from tests.fuzz.drive import fuzz, prepare
from tests.fuzz.judge import JUDGES


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seed", default="1")
    parser.add_argument("--inputs", type=int, default=1_000, help="of each format")
    parser.add_argument("--format", action="append", choices=list(JUDGES), help="default: all")
    parser.add_argument("--only", type=int, help="the index of a single input")
    parser.add_argument("--seconds", type=float, default=10.0, help="CPU time of an input")
    parser.add_argument("--megabytes", type=int, default=1_000, help="memory of an input")
    parser.add_argument("--out", type=Path, default=Path("fuzz-out"))
    given = parser.parse_args()
    forms = given.format or list(JUDGES)
    begin = perf_counter()
    prepare(given.out, forms)
    indices = range(given.inputs) if given.only is None else range(given.only, given.only + 1)
    limits = {"seconds": given.seconds, "megabytes": given.megabytes}
    found = 0
    print("| format | inputs | accepted | refused | findings | worst s | worst MB |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for form in forms:
        tally = fuzz(form, given.seed, indices, given.out, **limits)
        print("| " + " | ".join(map(str, (form, *tally.row().values()))) + " |", flush=True)
        for finding in tally.findings[:20]:
            print(json.dumps({"seed": given.seed, "format": form, **finding}), file=sys.stderr)
        found += len(tally.findings)
    print(f"{found} findings, {perf_counter() - begin:.0f} s", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
