"""Options for requests alone, where a command takes an INSTANCE, and the loading of both."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click

from orsched.cli.declaring import Options, option
from orsched.cli.ending import kept_interrupts
from orsched.cli.output import remark, say
from orsched.common.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orsched.data.instance import Instance
    from orsched.data.workers import Worker
    from orsched.files.locate import Loaded

CLASS = option(
    "A service class, e.g. interactive:ttft=1,tpot=0.05; may be given several times.",
    "--class",  # of these the field is not "classes", which is a picture
    metavar="NAME:LIMITS",
)


class _Blocks(click.types.IntParamType):
    """A number of KV-cache blocks, or ``unlimited``."""

    def convert(
        self, value: Any, parameter: click.Parameter | None, context: click.Context | None
    ) -> Any:
        return value if value == "unlimited" else super().convert(value, parameter, context)


class Requests(Options):
    """What a file of requests needs to be an instance; ``load_instance`` reads it."""

    clients: int | None = option(
        "Requests that the worker of a requests file serves at once.",
        metavar="J",
    )
    cost: str | None = option(
        "A machine (orsched info machines) or a cost-model file (default: Pang's LLaMA-65B).",
        metavar="NAME|FILE",
    )
    prefill_cap_tokens: int | None = option(
        "Most tokens a prefill stage.", "--prefill-cap", metavar="TOKENS"
    )
    memory_blocks: int | str | None = option(
        "KV-cache blocks of the worker.",
        type=_Blocks(),
        metavar="N|unlimited",
        show_default="the machine's, else unlimited",
    )
    block_tokens: int | None = option(
        "Tokens per block.", metavar="N", show_default="the machine's, else 128"
    )
    engine: str | None = option(
        "What is not said is as in vllm-0.33 (its server), vllm-0.33-offline (its LLM class) or "
        "pang; policies take on its settings.",
        metavar="NAME",
    )
    gpu_memory_utilization: float | None = option(
        "Share of a machine's memory for weights and caches.",
        metavar="SHARE",
        show_default="the engine's, else 0.9",
    )
    max_model_len: int | None = option(
        "With --engine: most tokens of prompt and answer; longer requests are refused.",
        metavar="TOKENS",
    )
    allocation: str | None = option(
        "Take blocks as caches grow, or all at admission.",
        choices=["paged", "whole"],
        show_default="paged",
    )
    prefix_cache: str | None = option(
        "Keep freed blocks for shared prefixes (paged memory): lru, task_aware or "
        "least_future_use says which are taken first; off: not, whatever the engine has.",
        metavar="RULE",
    )
    first_token: str | None = option(
        "Which stage yields the first token.",
        choices=["decode", "prefill"],
        show_default="prefill",
    )
    output_limit_tokens: int | None = option(
        "The server's limit on output tokens.", "--output-limit", metavar="TOKENS"
    )
    class_limits: tuple[str, ...] = CLASS
    format: str | None = option(
        "Format of a foreign trace (default: detected).", "--from", metavar="FORMAT"
    )
    drop_empty: bool = option("Leave requests without tokens out.")
    spread: bool = option("Spread arrivals that share one clock tick.")


class RequestsAndCopies(Requests):
    """The same for commands without an option ``--workers`` of their own."""

    workers: str | None = option(
        "Copies of the worker, by role (2P2D:ns_per_token=5243), or worker files.",
        metavar="N|SPLIT|FILES",
    )


_FLAGS = {name: each.flag(name) for name, (each, _) in RequestsAndCopies.declared().items()}
"""Arguments of ``orsched.load`` and the options that stand for them."""


def given() -> dict[str, Any]:
    """Return the options of these classes that the running command was given, by their names."""
    context = click.get_current_context(silent=True)
    options = getattr(context and context.command, "options", Options)
    found: dict[str, Any] = {}
    for group in (Requests, RequestsAndCopies):
        if context is not None and issubclass(options, group):
            for name in group.declared():
                value = context.params.get(name)
                if not (value is None or value is False or value == ()):  # 0 is refused later
                    found[name] = value
    return found


def engine_policy(otherwise: str) -> str:
    """Return the method of the engine that --engine names; without the option another."""
    from orsched.solving.engines import profile_named

    engine = given().get("engine")
    return otherwise if engine is None else str(profile_named(engine, "--engine")["policy"])


def named_files() -> tuple[str, ...]:
    """Return the files that these options name: the command reads them."""
    cost = given().get("cost")
    return () if cost is None else (cost,)


def load_instance(source: str) -> Instance:
    """Return the instance with this name or path, or of the requests in a file.

    Of requests, what was read and what was assumed of the worker goes to stderr.
    """
    with kept_interrupts():
        try:
            if source == STDIN:
                return _from_stdin(given())
            return _loaded(source, given())
        except InputError as error:
            raise _with_flag(error, source) from None


def load_admitted(source: str) -> Instance:
    """Return the same without the requests that fit onto no worker; how many goes to stderr."""
    from orsched.data.instance import refusal_note

    found = load_instance(source).admitted()
    for note in refusal_note(found):
        say(note, "note")
    return found


STDIN = "-"
"""The source that stands for standard input."""


def _from_stdin(options: dict[str, Any]) -> Instance:
    """Return the instance of what comes on standard input, which is text."""
    with TemporaryDirectory() as folder:
        raw = sys.stdin.buffer.read()
        json = raw.lstrip(b"\xef\xbb\xbf \r\n\t")[:1] == b"{"
        path = Path(folder, "stdin.json" if json else "stdin.csv")
        path.write_bytes(raw)
        try:
            return _loaded(str(path), options)
        except InputError as error:
            file = "standard input" if error.file == str(path) else error.file
            raise InputError(
                error.problem, file=file, row=error.row, field=error.field, remedy=error.remedy
            ) from None


def _loaded(source: str, options: dict[str, Any]) -> Instance:
    from orsched.files.locate import has_its_own, holds_requests, load, with_cost
    from orsched.files.worker_choice import OF_ENGINES
    from orsched.solving.engines import with_engine
    from orsched.solving.scenario import read_workers, with_workers

    spec = options.pop("workers", None)
    if "format" in options or holds_requests(source):
        found = read_requests(source, options).instance
    else:
        found = load(source)
        for name in _FLAGS:
            of_engine = name in OF_ENGINES and "engine" in options
            if name in options and name not in ("cost", "class_limits") and not of_engine:
                raise has_its_own(name)
        if "cost" in options:
            before, found = found, with_cost(found, options["cost"])
            same = [w.memory for w in before.workers] == [w.memory for w in found.workers]
            kept = "memory and caps stay" if same else "caps stay, its memory is the machine's"
            say(f"--cost replaces the cost model of the instance; its {kept}", "note")
        if "engine" in options:
            said = (options["engine"], options.get("cost"), options.get("max_model_len"))
            found = with_engine(found, *said)
            words = "clients, caps and first token stay, its memory has the engine's blocks"
            say(f"--engine is put onto the instance; its {words}", "note")
        if "class_limits" in options:
            found = found.with_classes(*options["class_limits"])
    if click.get_current_context().params.get("arrivals") is None:
        say_empty(found, options.get("class_limits", ()))
    return found if spec is None else with_workers(found, read_workers(spec))


def say_empty(instance: Instance, specs: Sequence[str]) -> None:
    """Say which of the classes that options name hold no request, and what to do about it."""
    codes = instance.requests.service_class
    there = [kind.name for code, kind in enumerate(instance.classes) if (codes == code).any()]
    for spec in specs:
        name, _, limits = spec.partition(":")
        if name in there or not there:
            continue
        remedy = f"--class {there[0]}:{limits or 'ttft=1'} limits those"
        if name == "interactive" and there == ["batch"]:
            remedy += ", and requests that arrive over time (simulate --arrivals) are interactive"
        say(
            f"no request is in the class {name}: all {len(instance):,} are in "
            f"{' and '.join(there)} ({remedy}; a column class in a file of requests names theirs)",
            "note",
        )


def read_requests(source: str, options: dict[str, Any]) -> Loaded:
    """Return the instance of requests with the options' worker; say on stderr what was read.

    Worker files of an option ``--workers`` stand in for a worker that is not described.
    """
    from orsched.files.locate import load_requests
    from orsched.files.worker_choice import WorkerChoice

    said = {name: options[name] for name in WorkerChoice.__dataclass_fields__ if name in options}
    choice = WorkerChoice(**said, workers=_worker_files())
    loaded = load_requests(
        source,
        choice,
        classes=options.get("class_limits", ()),
        **{name: options[name] for name in ("format", "drop_empty", "spread") if name in options},
    )
    shown = replace(loaded.report, file=Path(source).name)
    remark(str(shown))
    if loaded.assumed is not None:
        say(loaded.assumed, "note")
    return loaded


def _worker_files() -> tuple[Worker, ...] | None:
    """Return the workers of the files that ``--workers`` names, None if it gives a number."""
    from orsched.solving.scenario import read_workers

    context = click.get_current_context()
    spec = given().get("workers") or context.params.get("workers")
    workers = read_workers(spec) if isinstance(spec, str) else None
    return workers if isinstance(workers, tuple) else None


def _with_flag(error: InputError, source: str) -> InputError:
    """Return an error that names the option, where it names an argument of ``load``."""
    if error.file is not None or error.field not in _FLAGS:
        return error
    flag = _FLAGS[error.field]
    context = click.get_current_context()
    if not any(flag in parameter.opts for parameter in context.command.params):
        remedy = "give an instance file, which orsched convert FILE case.json --clients 64 writes"
        return InputError(error.problem, file=source, row=error.row, remedy=remedy)
    return InputError(error.problem, row=error.row, field=flag, remedy=error.remedy)
