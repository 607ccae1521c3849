"""``orsched generate`` and ``orsched convert``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from orsched.cli.artefacts import check_paths
from orsched.cli.machine_output import say_machine
from orsched.cli.options import load_instance, with_options
from orsched.cli.output import remark
from orsched.cli.progress import ProgressPrinter
from orsched.cli.request_options import COPIES, REQUEST_OPTIONS, say_empty
from orsched.common.errors import InputError
from orsched.common.pairs import read_pairs
from orsched.solving.progress import clear_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from orsched.data.instance import Instance

_FILE = click.Path(dir_okay=False, path_type=Path)

CLASSES = click.option(
    "--class",
    "classes",
    multiple=True,
    metavar="NAME:LIMITS",
    help="A service class, e.g. interactive:ttft=1,tpot=0.05; may be given several times.",
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
@click.option(
    "--cost",
    metavar="NAME|FILE",
    help="A machine (orsched info machines) or a cost-model file for the workers.",
)
@CLASSES
@click.option(
    "-o", "--output", type=_FILE, help="Instance file (.json or .parquet); default: stdout (JSON)."
)
def generate_command(
    generator: str,
    seed: int,
    settings: tuple[str, ...],
    cost: str | None,
    classes: tuple[str, ...],
    output: Path | None,
) -> None:
    """Make an instance with GENERATOR: gsm8k, pang-case, peers, sources or uniform.

    Example: orsched generate gsm8k --seed 3 --set clients=100 -o case3.json
    """
    from orsched.instances.catalog import generate

    check_paths({"output": output}, [] if cost is None else [cost])
    with ProgressPrinter(generator):
        instance = generate(generator, seed=seed, **read_settings(settings, "--seed"))
        if cost is not None:
            instance = _on_machine(instance, cost)
        _write(_classed(instance, classes), output)
    if output is not None:
        say_machine(instance)


def _on_machine(instance: Instance, cost: str) -> Instance:
    """Return the instance on a machine, as ``with_cost``, under its own name."""
    from orsched.files.locate import with_cost

    try:
        return with_cost(instance, cost).replace(name=instance.name)
    except InputError as error:
        if error.file is not None:
            raise
        raise InputError(error.problem, field="--cost", remedy=error.remedy) from None


def _classed(instance: Instance, specs: Sequence[str]) -> Instance:
    """Return the instance with the classes that the options name; say which are empty."""
    if not specs:
        return instance
    classed = instance.with_classes(*specs)
    say_empty(classed, specs)
    return classed


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
        clear_line(end=True)
        for part in dump_json(instance_document(instance)):
            click.echo(part, nl=False)
        return
    save_instance(instance, output)
    remark(f"{len(instance)} requests written to {output}")


@click.command("convert", short_help="Convert requests or a trace to an instance file.")
@click.argument("source", metavar="SOURCE")
@click.argument("target", type=_FILE, metavar="TARGET")
@with_options(*REQUEST_OPTIONS, COPIES)
@click.option(
    "--predict",
    "model",
    type=_FILE,
    metavar="MODEL",
    help="Add the lengths that a predictor gives for the prompts (see orsched predict).",
)
@click.option(
    "--prompts",
    type=_FILE,
    help="Prompts for --predict, one a request in the same order (default: those in SOURCE).",
)
def convert_command(source: str, target: Path, model: Path | None, prompts: Path | None) -> None:
    """Convert SOURCE to the instance file TARGET (.json, .parquet, or .csv for requests only).

    SOURCE is an instance (a name, or a native file), requests as CSV or JSON lines, or a trace:
    Azure, BurstGPT, Mooncake, Vidur, vLLM's benchmark JSON and others (see orsched data list).
    What is not a native instance needs --clients.
    """
    with ProgressPrinter("converting"):
        convert_source(source, target, model, prompts)


def convert_source(
    source: str, target: Path, model: Path | None = None, prompts: Path | None = None
) -> None:
    """Convert as ``convert_command`` says, and report what was kept and dropped on stderr."""
    if prompts is not None and model is None:
        raise InputError(
            "no predictor reads them", field="--prompts", remedy="give --predict MODEL"
        )
    if model is not None and prompts is None and not Path(source).is_file():
        raise InputError(
            f"{source} has no prompts", field="--predict", remedy="give --prompts FILE"
        )
    read = [str(path) for path in (model, prompts) if path is not None]
    check_paths({"TARGET": target}, [source, *read])
    instance = load_instance(source)
    if model is not None:
        from orsched.cli.predict_commands import with_lengths

        instance = with_lengths(instance, model, prompts or Path(source))
        remark(f"lengths predicted by {model} from the prompts of {prompts or source}")
    if target.suffix == ".csv":
        from orsched.files import write_requests_csv

        write_requests_csv(instance.requests, target, [kind.name for kind in instance.classes])
        remark(f"{len(instance)} requests written to {target}")
    else:
        _write(instance, target)
