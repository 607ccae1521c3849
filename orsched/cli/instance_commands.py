"""``orsched generate``, ``convert``, ``export`` and ``data``: instances as files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from orsched.cli.artefacts import check_paths
from orsched.cli.declaring import AT_LEAST_1, Options, argument, command, option
from orsched.cli.machines import say_machine
from orsched.cli.options import CONCURRENCY, INSTANCE, SETTINGS, Printed
from orsched.cli.output import ProgressPrinter, print_rows, remark
from orsched.cli.request_options import (
    CLASS,
    RequestsAndCopies,
    load_admitted,
    load_instance,
    say_empty,
)
from orsched.common.errors import InputError
from orsched.common.parameters import read_pairs
from orsched.solving.progress import clear_line

if TYPE_CHECKING:
    from collections.abc import Iterable

    from orsched.data.instance import Instance


@command("generate")
class GenerateCommand(Options):
    """Make an instance with GENERATOR: chats, gsm8k, pang-case, peers, rollouts, sources,
    tool-rollouts or uniform.

    Example: orsched generate gsm8k --seed 3 --set clients=100 -o case3.json
    """

    generator: str = argument("GENERATOR")
    seed: int = option("Seed of the generator.", default=0)
    settings: tuple[str, ...] = SETTINGS
    cost: str | None = option(
        "A machine (orsched info machines) or a cost-model file for the workers.",
        metavar="NAME|FILE",
    )
    classes: tuple[str, ...] = CLASS
    output: Path | None = option("Instance file (.json or .parquet); default: stdout (JSON).", "-o")

    def _run(self) -> None:
        from orsched.instances.catalog import generate

        check_paths({"output": self.output}, [] if self.cost is None else [self.cost])
        with ProgressPrinter(self.generator):
            arguments = generator_arguments(self.settings, "--seed")
            instance = generate(self.generator, seed=self.seed, **arguments)
            if self.cost is not None:
                instance = _on_machine(instance, self.cost)
            if self.classes:
                instance = instance.with_classes(*self.classes)
                say_empty(instance, self.classes)
            _write(instance, self.output)
        if self.output is not None:
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


def generator_arguments(settings: Iterable[str], seed_option: str) -> dict[str, Any]:
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


class _Conversion(RequestsAndCopies):
    source: str = argument("SOURCE")
    target: Path = argument("TARGET")


@command(
    "convert",
    usual="clients cost memory_blocks block_tokens prefix_cache class_limits format model",
)
class ConvertCommand(_Conversion):
    """Convert SOURCE to the instance file TARGET (.json, .parquet, or .csv for requests only).

    SOURCE is an instance (a name, or a native file), requests as CSV or JSON lines, or a trace:
    Azure, BurstGPT, Mooncake, Vidur, vLLM's benchmark JSON and others (see orsched data list).
    What is not a native instance needs --clients.
    """

    model: Path | None = option(
        "Add the lengths that a predictor gives for the prompts (see orsched predict).",
        "--predict",
        metavar="MODEL",
    )
    prompts: Path | None = option(
        "Prompts for --predict, one a request in the same order (default: those in SOURCE)."
    )
    concurrency: int | None = CONCURRENCY

    def _run(self) -> None:
        with ProgressPrinter("converting"):
            _convert(self.source, self.target, self.model, self.prompts, self.concurrency)


def _convert(
    source: str,
    target: Path,
    model: Path | None = None,
    prompts: Path | None = None,
    concurrency: int | None = None,
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
    if concurrency is not None and target.suffix == ".csv":
        raise InputError(
            "a CSV file holds requests only",
            field="--concurrency",
            remedy="write .json or .parquet",
        )
    read = [str(path) for path in (model, prompts) if path is not None]
    check_paths({"TARGET": target}, [source, *read])
    instance = load_instance(source)
    if concurrency is not None:
        instance = instance.replace(concurrency=concurrency)
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


FORMATS = ("mps", "lp")


@command(
    "export",
    usual="program objective style stages output clients",
)
class ExportCommand(RequestsAndCopies):
    """Write a program of INSTANCE for other solvers; comments say what its names mean.

    Example: orsched export gate --model window-mip --format lp -o gate.lp
    """

    instance: str = INSTANCE
    program: str = option(
        "Pang's full MIP, the window MIP with the same optimum, the MIP of means, or packing.",
        "--model",
        choices=["full-mip", "window-mip", "latency-mip", "packing"],
        default="full-mip",
    )
    objective: str | None = option(
        "Objective of latency-mip: jct_mean (default), ttft_mean, 0.3*makespan+0.7*jct_mean, ...",
        metavar="NAME",
    )
    style: str | None = option(
        "Free MPS, or CPLEX's LP format (default: as OUT is named, else mps).",
        "--format",
        choices=FORMATS,
    )
    stages: int | None = option(
        "Most prefill stages of the two MIPs (default: one for each request, which suffices).",
        type=AT_LEAST_1,
        metavar="K",
    )
    formulation: str = option(
        "Rows of the full MIP; printed has eq. (10) and (11) as Pang's, repaired like the rest.",
        choices=["compact", "printed"],
        default="compact",
    )
    symmetry_breaking: bool = option(
        "Rows that number clients and stages.",
        "--symmetry-breaking/--no-symmetry-breaking",
        default=True,
    )
    max_nonzeros: int = option(
        "A larger model is refused before it is built; one of ten million is a file of 300 MB.",
        type=AT_LEAST_1,
        default=10_000_000,
        metavar="N",
    )
    output: Path | None = option("The file (.mps or .lp); default: stdout.", "-o", metavar="OUT")

    def _run(self) -> None:
        output = self.output
        chosen = _format(self.style, output)
        check_paths({"OUT": output}, [self.instance])
        with ProgressPrinter("exporting"):
            from orsched.models.full_mip.model_files import file_lines, in_words
            from orsched.models.full_mip.programs import read_program

            found = read_program(
                load_admitted(self.instance),
                self.program,
                objective=self.objective,
                stages=self.stages,
                formulation=self.formulation,
                symmetry_breaking=self.symmetry_breaking,
                max_nonzeros=self.max_nonzeros,
            )
            lines = file_lines(found, chosen)
            if output is None:
                clear_line(end=True)
                for line in lines:
                    click.echo(line, nl=False)
                return
            from orsched.files.document import write_text

            write_text(output, lines)
        model, words = found.model, in_words(found)
        remark(
            f"{output}: {len(model.names):,} columns, {len(model.rows):,} rows, "
            f"{model.nonzeros:,} nonzeros; {words}"
        )


def _format(style: str | None, output: Path | None) -> str:
    """Return the format of the option or of the file's name; they may not disagree."""
    named = None if output is None else output.suffix.lower().removeprefix(".")
    if style is not None and named in FORMATS and named != style:
        raise InputError(
            f"the file is named {named}, the format is {style}",
            file=str(output),
            field="--format",
            remedy="leave --format out, or name the file so",
        )
    return style or (named if named in FORMATS else "mps")


@click.group("data")
def data_group() -> None:
    """List, verify and convert public data sets; the files themselves are not shipped."""


class DataOptions(Printed):
    """Options of ``orsched data list`` and ``verify``."""

    directory: Path | None = option(
        "Where the files lie (default: the environment variable ORSCHED_DATA).",
        type=click.Path(path_type=Path),
    )


@command("list", "List the known data sets, and which are here.", group=data_group)
class ListCommand(DataOptions):
    """List the known data sets: origin, licence, rows, checksum and whether they are here."""

    def _run(self) -> None:
        import os

        from orsched.instances.datasets import DATA_SETS, VARIABLE, found

        directory = self.directory
        here = found(directory) if directory is not None or os.environ.get(VARIABLE) else {}
        rows = [
            {
                "name": name,
                "file": entry.file,
                "rows": entry.rows,
                "licence": entry.licence,
                "origin": entry.origin,
                "here": name in here,
                **(
                    {}
                    if self.style == "table"
                    else {"sha256": entry.sha256, "cite": entry.citation}
                ),
            }
            for name, entry in DATA_SETS.items()
        ]
        print_rows(rows, self.style)


@command("verify", "Compare the files with their checksums.", group=data_group)
class VerifyCommand(DataOptions):
    """Compare the files with their checksums; exits with 1 if one is changed."""

    def _run(self) -> int:
        from orsched.instances.datasets import verify

        with ProgressPrinter("verifying"):
            outcomes = verify(self.directory)
        print_rows([outcome._asdict() for outcome in outcomes], self.style)
        return 1 if any(outcome.status == "changed" for outcome in outcomes) else 0


@command(
    "convert",
    "Convert a data set to an instance file.",
    usual="clients cost memory_blocks class_limits format",
    group=data_group,
)
class ConvertDataCommand(_Conversion):
    """Convert a data set (its name, or a path) to the instance file TARGET."""

    def _run(self) -> None:
        with ProgressPrinter("converting"):
            _convert(self.source, self.target)
