"""``orsched generate`` and ``orsched convert``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from orsched.cli.artefacts import check_paths
from orsched.cli.options import with_options
from orsched.cli.output import say
from orsched.cli.progress import ProgressPrinter
from orsched.errors import InputError
from orsched.pairs import read_pairs

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from orsched.instance import Instance
    from orsched.memory import BlockMemory
    from orsched.workers import Worker

_FILE = click.Path(dir_okay=False, path_type=Path)

WORKER_OPTIONS = (
    click.option("--clients", type=int, help="J, the clients of the worker."),
    click.option("--prefill-cap", type=int, metavar="TOKENS", help="Most tokens a prefill stage."),
    click.option(
        "--cost", type=_FILE, help="A cost-model file (default: Pang's affine LLaMA-65B)."
    ),
    click.option("--memory-blocks", type=int, help="KV-cache blocks of the worker."),
    click.option("--block-tokens", type=int, default=128, show_default=True),
    click.option(
        "--prefix-cache",
        metavar="RULE",
        help="Keep freed blocks for shared prefixes (paged memory): lru, task_aware or "
        "least_future_use says which are taken first.",
    ),
    click.option(
        "--first-token",
        type=click.Choice(["decode", "prefill"]),
        default="prefill",
        show_default=True,
        help="Which stage yields the first token.",
    ),
    click.option("--output-limit", type=int, help="The server's limit on output tokens."),
)
CLASSES = click.option(
    "--class",
    "classes",
    multiple=True,
    metavar="NAME:LIMITS",
    help="A service class, e.g. interactive:ttft=1,tpot=0.05; may be given several times.",
)
READ_OPTIONS = (
    CLASSES,
    click.option("--from", "source_format", help="Format of a foreign trace (default: detected)."),
    click.option("--drop-empty", is_flag=True, help="Leave requests without tokens out."),
    click.option("--spread", is_flag=True, help="Spread arrivals that share one clock tick."),
    *WORKER_OPTIONS,
)


@click.command("generate", short_help="Make an instance with a generator.")
@click.argument("generator", metavar="GENERATOR")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the generator.")
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="An argument of the generator; may be given several times.",
)
@CLASSES
@click.option(
    "-o", "--output", type=_FILE, help="Instance file (.json or .parquet); default: stdout (JSON)."
)
def generate_command(
    generator: str,
    seed: int,
    settings: tuple[str, ...],
    classes: tuple[str, ...],
    output: Path | None,
) -> None:
    """Make an instance with GENERATOR: gsm8k, pang-case, peers, sources or uniform.

    Example: orsched generate gsm8k --seed 3 --set clients=100 -o case3.json
    """
    from orsched.instances.catalog import generate

    check_paths({"output": output})
    with ProgressPrinter(generator):
        instance = generate(generator, seed=seed, **read_settings(settings, "--seed"))
        _write(_classed(instance, classes), output)


def _classed(instance: Instance, specs: Sequence[str]) -> Instance:
    """Return the instance with the classes that the options name."""
    return instance.with_classes(*specs) if specs else instance


def read_settings(settings: Iterable[str], seed_option: str) -> dict[str, Any]:
    """Return a generator's arguments; raises ``InputError`` for the seed, which is an option."""
    found = read_pairs(settings, "--set")
    if "seed" in found:
        raise InputError("the seed is not set here", field="--set", remedy=seed_option)
    return found


def _write(instance: Instance, output: Path | None) -> None:
    from orsched.files import save_instance
    from orsched.files.instance_document import instance_document
    from orsched.files.text import dump_json

    if output is None:
        for part in dump_json(instance_document(instance)):
            click.echo(part, nl=False)
        return
    save_instance(instance, output)
    say(f"{len(instance)} requests written to {output}")


@click.command("convert", short_help="Convert requests or a trace to an instance file.")
@click.argument("source", metavar="SOURCE")
@click.argument("target", type=_FILE, metavar="TARGET")
@with_options(*READ_OPTIONS)
def convert_command(source: str, target: Path, **options: Any) -> None:
    """Convert SOURCE to the instance file TARGET (.json, .parquet, or .csv for requests only).

    SOURCE is an instance (a name, or a native file), requests as CSV or JSON lines, or a trace:
    Azure, BurstGPT, Mooncake, Vidur, vLLM's benchmark JSON and others (see orsched data list).
    What is not a native instance needs --clients.
    """
    with ProgressPrinter("converting"):
        convert_source(source, target, options)


def convert_source(source: str, target: Path, options: dict[str, Any]) -> None:
    """Convert as ``convert_command`` says, and report what was kept and dropped on stderr."""
    from orsched.locate import is_native, load

    cost = options["cost"]
    check_paths({"TARGET": target}, [source] if cost is None else [source, cost])
    if options["source_format"] is None and is_native(source):
        _refuse_given(("drop_empty", "spread", *_WORKER_NAMES), "a native instance has its own")
        instance = _classed(load(source), options["classes"])
    elif is_requests_table(source):
        from orsched.files import read_requests_csv, read_requests_jsonl
        from orsched.instance import Instance
        from orsched.service_classes import DEFAULT_CLASSES, with_specs

        _refuse_given(("drop_empty", "spread"), "requests are taken as they are")
        classes = with_specs(DEFAULT_CLASSES, options["classes"])
        names, path = [kind.name for kind in classes], Path(source)
        read = read_requests_jsonl if path.suffix == ".jsonl" else read_requests_csv
        requests = read(source, names)
        fields = {"name": path.stem, "source": f"file {path.name}", **_fields(options)}
        instance = Instance(requests, (read_worker(options),), classes=classes, **fields)
    else:
        _convert_trace(source, target, options)
        return
    if target.suffix == ".csv":
        from orsched.files import write_requests_csv

        write_requests_csv(instance.requests, target, [kind.name for kind in instance.classes])
        say(f"{len(instance)} requests written to {target}")
    else:
        _write(instance, target)


_WORKER_NAMES = (
    "clients", "prefill_cap", "cost", "memory_blocks", "block_tokens", "prefix_cache",
    "first_token", "output_limit",
)  # fmt: skip


def _refuse_given(names: Iterable[str], reason: str) -> None:
    """Raise ``InputError`` for the first given option that has no effect."""
    context = click.get_current_context()
    for name in names:
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            field = "--" + name.replace("_", "-")
            raise InputError(f"does not apply: {reason}", field=field, remedy="leave it out")


def _convert_trace(source: str, target: Path, options: dict[str, Any]) -> None:
    from orsched.instances.datasets import convert

    done = convert(
        source,
        target,
        read_worker(options),
        format=options["source_format"],
        drop_empty=options["drop_empty"],
        spread=options["spread"],
        **_fields(options),
        **_class_field(options["classes"]),
    )
    say(str(done.report))
    say(f"{len(done.instance)} requests written to {target}")


def is_requests_table(source: str) -> bool:
    """Whether a file holds requests in orsched's own columns, as CSV or JSON lines, by its head."""
    path = Path(source)
    if path.suffix not in (".csv", ".jsonl") or not path.is_file():
        return False
    with path.open("rb") as stream:
        head = stream.readline(4096).decode("utf-8", "replace")
    if path.suffix == ".jsonl":
        return '"prompt_tokens"' in head and '"output_tokens"' in head
    names = {name.strip() for name in head.split(",")}
    return {"prompt_tokens", "output_tokens"} <= names and not names & {"queued_s", "scheduled_s"}


def read_worker(options: dict[str, Any]) -> Worker:
    """Return the worker that the options describe."""
    from orsched.costs import AffineCost, CostModel
    from orsched.workers import Worker

    if options["clients"] is None:
        raise InputError("a trace has no worker", field="--clients", remedy="give --clients N")
    cost: CostModel = AffineCost()
    if options["cost"] is not None:
        from orsched.files import load_cost

        cost = load_cost(options["cost"])
    return Worker(options["clients"], cost, options["prefill_cap"], _memory(options))


def _memory(options: dict[str, Any]) -> BlockMemory | None:
    from orsched.memory import BlockMemory, PrefixCache

    blocks, rule = options["memory_blocks"], options["prefix_cache"]
    if rule is None:
        return None if blocks is None else BlockMemory(blocks, options["block_tokens"])
    if blocks is None:
        raise InputError(
            "a prefix cache needs blocks", field="--prefix-cache", remedy="give --memory-blocks N"
        )
    try:
        kept = PrefixCache(rule)
    except InputError as error:
        raise InputError(error.problem, field="--prefix-cache", remedy=error.remedy) from None
    return BlockMemory(blocks, options["block_tokens"], "paged", kept)


def _class_field(specs: Sequence[str]) -> dict[str, Any]:
    from orsched.service_classes import DEFAULT_CLASSES, with_specs

    return {"classes": with_specs(DEFAULT_CLASSES, specs)} if specs else {}


def _fields(options: dict[str, Any]) -> dict[str, Any]:
    fields = {"first_token": options["first_token"]}
    if options["output_limit"] is not None:
        fields["output_limit_tokens"] = options["output_limit"]
    return fields
