"""What a change of structure must not move, written to a file and held against another version.

    python -m benchmarks.frozen write FILE [--seeds N] [--only SECTION ...]
    python -m benchmarks.frozen compare FILE [--only SECTION ...]

``write`` records the sections below of the checkout it runs in; ``compare`` makes them again and
lists what differs. Exit code 1 if anything does.

* ``bounds``: every row of ``benchmarks.same_bounds``.
* ``schedules``: SHA-256 of the schedule of each method on each generated instance, searches ended
  by iterations and on one thread; where a method refuses an instance, its words.
* ``texts``: what each command prints, ``--help`` of all of them included.
* ``names``: public names of ``orsched`` and ``orsched.extending``, and methods with parameters.
* ``files``: SHA-256 of the files written in each format, and of each published schema.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from orsched.data.instance import Instance

SEEDS = 24
ITERATIONS = 3
SMALL = 6
"""Most requests for methods that prove optima: theirs take exponentially long."""
PROVING = ("exact", "auto")
PROGRESS = re.compile(r"orsched: \d+ s: ")
DECISION = re.compile(r'("decision_\w+": )[\d.e-]+')

COMMANDS = (
    "solve two-by-two --method fcfs",
    "solve two-by-two --method exact",
    "solve gsm8k-llama65b --method online --seed 3",
    "solve two-by-two --method vllm --format json",
    "bound gsm8k-llama65b",
    "bound pang-100x20 --objective mean_jct",
    "compare pang-100x20 --methods fcfs,offline,online,vllm,gittins",
    "compare two-by-two --methods fcfs,nonsense",
    "compare pang-100x20 --methods fcfs,vllm --arrivals poisson:rate=2 --slo-ttft 1 --slo-tpot 0.1",
    "compare pang-100x20 --methods fcfs,scls --format csv --columns method,makespan_s,jct_mean_s",
    "simulate pang-100x20 --policy vllm --columns jct_p99_s,ttft_mean_s",
    "simulate pang-100x20 --policy vllm --columns nonsense",
    "info",
    "info fcfs",
    "info vllm",
    "info gsm8k-llama65b",
    "cost --gpu a100 --model llama3-8b",
    "generate gsm8k --seed 1 --set requests=5 --set clients=2",
    "capacity pang-100x20 --arrivals poisson:rate=2 --slo-ttft 1 --slo-tpot 0.1",
    "solve nothing-of-this-name --method fcfs",
    "solve two-by-two --method fcfs --information none --objective nonsense",
)


def bounds(seeds: int) -> Iterator[tuple[str, Any]]:
    """Yield each row of ``same_bounds``."""
    from benchmarks.same_bounds import lines

    for name, objective, allows, *found in lines(seeds):
        yield f"{name} {objective} {allows}", found


def schedules(seeds: int) -> Iterator[tuple[str, Any]]:
    """Yield the hash of each method's schedule on each instance, or its refusal."""
    from benchmarks.same_bounds import generated
    from orsched.common.registry import names

    for seed in range(seeds):
        instance = generated(seed)
        for method in names("methods"):
            if method in PROVING and len(instance) > SMALL:
                continue
            yield f"{method} seed {seed}", _schedule(instance, method)


def _schedule(instance: Instance, method: str) -> str:
    import orsched

    try:
        result = orsched.solve(instance, method, stop=orsched.MaxIterations(ITERATIONS))
    except orsched.OrschedError as error:
        return f"{type(error).__name__}: {error}"
    return _hash_of_file(lambda path: orsched.save_schedule(result.schedule, path))


def texts(_seeds: int) -> Iterator[tuple[str, Any]]:
    """Yield exit code and output of each command."""
    for command in (*(f"{name} --help".strip() for name in _command_names()), *COMMANDS):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(
                [sys.executable, "-m", "orsched", *command.split()],
                capture_output=True, text=True, check=False, cwd=folder, timeout=600,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(_paths()), "COLUMNS": "120"},
            )  # fmt: skip
            errors = _without_times(done.stderr.replace(folder, "FOLDER"))
            yield command, [done.returncode, _without_times(done.stdout), errors]


def _paths() -> list[str]:
    return [str(Path(__file__).resolve().parents[1]), *os.environ.get("PYTHONPATH", "").split(":")]


def _command_names() -> list[str]:
    import click

    from orsched.cli import cli

    found = [""]
    context = click.Context(cli)
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        found += [name, *(f"{name} {each}" for each in sorted(getattr(command, "commands", ())))]
    return found


def _without_times(text: str) -> str:
    """Return what is printed without what a clock said: progress and times of decisions."""
    kept = "".join(line for line in text.splitlines(True) if not PROGRESS.match(line))
    return DECISION.sub(r"\1TIME", kept)


def names(_seeds: int) -> Iterator[tuple[str, Any]]:
    """Yield the public names, and each method with its parameters and their defaults."""
    import orsched
    import orsched.extending

    yield "orsched", sorted(orsched.__all__)
    yield "orsched.extending", sorted(orsched.extending.__all__)
    for info in orsched.methods():
        yield f"method {info.name}", repr(info)


def files(_seeds: int) -> Iterator[tuple[str, Any]]:
    """Yield the hash of what a file in each format says, and of each schema."""
    import orsched

    instance = orsched.load("two-by-two")
    schedule = orsched.solve(instance, "fcfs").schedule
    with tempfile.TemporaryDirectory() as folder:
        for suffix in (".json", ".parquet"):
            orsched.save_instance(instance, path := Path(folder) / f"instance{suffix}")
            again = orsched.load(path)
            yield path.name, _hash_of_file(lambda to, it=again: orsched.save_instance(it, to))
            orsched.save_schedule(schedule, path := Path(folder) / f"schedule{suffix}")
            plan = orsched.load_schedule(path)
            yield path.name, _hash_of_file(lambda to, it=plan: orsched.save_schedule(it, to))
    for path in sorted(Path(orsched.__file__ or "").parent.rglob("*.schema.json")):
        yield path.name, hashlib.sha256(path.read_bytes()).hexdigest()


def _hash_of_file(write: Callable[[Path], Any]) -> str:
    with tempfile.TemporaryDirectory() as folder:
        write(path := Path(folder) / "file.json")
        document = json.loads(path.read_text())
    document.pop("run", None)  # holds times of this machine
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


SECTIONS: dict[str, Callable[[int], Iterator[tuple[str, Any]]]] = {
    "bounds": bounds,
    "schedules": schedules,
    "texts": texts,
    "names": names,
    "files": files,
}


def made(seeds: int, sections: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return what each section holds now."""
    return {name: dict(SECTIONS[name](seeds)) for name in sections}


def compare(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Return a line for each key of a section that differs."""
    found = []
    for section in after:
        old, new = before[section], json.loads(json.dumps(after[section]))
        for key in sorted({*old, *new}):
            if old.get(key) != new.get(key):
                found.append(f"{section}: {key}: {_short(old.get(key))} -> {_short(new.get(key))}")
    return found


def _short(value: Any) -> str:
    text = "absent" if value is None else json.dumps(value)
    return text if len(text) <= 300 else f"{text[:300]} ..."


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line; write a file, or compare with one."""
    parser = argparse.ArgumentParser(prog="frozen", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("action", choices=("write", "compare"))
    parser.add_argument("file", type=Path)
    parser.add_argument("--seeds", type=int, help=f"instances of each kind (default: {SEEDS})")
    parser.add_argument("--only", action="append", choices=tuple(SECTIONS), help="a section")
    given = parser.parse_args(arguments)
    if given.action == "write":
        seeds = given.seeds or SEEDS
        sections = made(seeds, given.only or tuple(SECTIONS))
        given.file.write_text(json.dumps({"seeds": seeds, **sections}, indent=0))
        print({name: len(rows) for name, rows in sections.items()})
        return 0
    before = json.loads(given.file.read_text())
    kept = given.only or [name for name in SECTIONS if name in before]
    differing = compare(before, made(before["seeds"], kept))
    print("\n".join(differing))
    print(f"{len(differing)} of {sum(len(before[name]) for name in kept)} differ")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
