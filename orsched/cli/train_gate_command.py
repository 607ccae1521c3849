"""``orsched train-gate``: a table of thresholds for the gate ``learned``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from orsched.cli.artefacts import check_paths
from orsched.cli.compare_seeds import read_seeds
from orsched.cli.instance_commands import read_settings
from orsched.cli.options import load_instance, with_options
from orsched.cli.output import remark
from orsched.cli.progress import ProgressPrinter
from orsched.cli.request_options import REQUEST_OPTIONS
from orsched.errors import InputError

if TYPE_CHECKING:
    from orsched.heuristics.gate_training import Progress
    from orsched.instance import Instance

_MOST_INSTANCES = 1000


@click.command("train-gate", short_help="Learn when to interrupt decoding for a prefill.")
@click.argument("instance")
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    required=True,
    metavar="GATE",
    help="The gate's file (.json), for the parameter gate_file.",
)
@click.option("--seeds", metavar="A:B", help="INSTANCE is a generator: train on seeds A to B-1.")
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="With --seeds: an argument of the generator; may be given several times.",
)
@click.option(
    "--arrivals",
    multiple=True,
    metavar="SPEC",
    help="Arrivals to train with, as in compare; may be given several times (default: its own).",
)
@click.option(
    "--objective",
    type=click.Choice(("auto", "makespan", "jct_mean")),
    default="auto",
    show_default=True,
    help="What is to be short; auto: mean JCT with arrivals, else makespan.",
)
@click.option(
    "--generations",
    type=click.IntRange(1, 10_000),
    default=12,
    show_default=True,
    help="Generations of tables.",
)
@click.option(
    "--population",
    type=click.IntRange(4, 10_000),
    default=16,
    show_default=True,
    help="Tables in a generation, each tried on every instance.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the draws.")
@with_options(*REQUEST_OPTIONS)
def train_gate_command(
    instance: str,
    output: Path,
    seeds: str | None,
    settings: tuple[str, ...],
    arrivals: tuple[str, ...],
    objective: str,
    generations: int,
    population: int,
    seed: int,
) -> None:
    """Search for the thresholds under which runs on INSTANCE take the least time; write them.

    Example: orsched train-gate gsm8k --seeds 100:102 --set requests=200 --set clients=20
    --arrivals at_once --arrivals poisson:rate=1.5 -o gate.json; then
    orsched compare pang-100x20 --methods online+gate=learned+gate_file=gate.json,online
    """
    from orsched.heuristics.gate_table import save_gate
    from orsched.heuristics.gate_training import train_gate

    check_paths({"GATE": output}, [instance])
    with ProgressPrinter("training") as shown:
        problems = _problems(instance, seeds, settings, arrivals, seed)

        def tell(progress: Progress) -> None:
            shown.say(f"generation {progress.generation}: {progress.score:.4f} of shadow_price")

        found = train_gate(
            problems,
            objective,
            generations=generations,
            population=population,
            seed=seed,
            callback=tell,
        )
        trained = {
            "on": instance, "seeds": seeds, "settings": list(settings), "arrivals": list(arrivals),
            "objective": objective, "generations": generations, "population": population,
            "seed": seed, "runs": found.runs, "score": round(found.score, 6),
        }  # fmt: skip
        save_gate(found.table, output, trained)
    remark(
        f"{len(problems)} instances, {found.runs:,} runs: time over that of shadow_price "
        f"{found.first:.4f} at first, {found.score:.4f} now; written to {output}"
    )


def _problems(
    source: str,
    seeds: str | None,
    settings: tuple[str, ...],
    arrivals: tuple[str, ...],
    seed: int,
) -> list[Instance]:
    """Return what is trained on: each seed with each kind of arrivals."""
    from orsched.instances import with_arrivals
    from orsched.instances.arrivals import read_arrivals
    from orsched.instances.catalog import generate

    laws = [read_arrivals(spec) for spec in arrivals]
    if seeds is None:
        if settings:
            raise InputError("--set goes with --seeds", field="--seeds")
        made = [(seed, load_instance(source))]
    else:
        arguments, numbers = read_settings(settings, "--seeds"), read_seeds(seeds)
        if len(numbers) * max(1, len(laws)) > _MOST_INSTANCES:
            remedy = f"at most {_MOST_INSTANCES} instances"
            raise InputError("too many to train on", field="--seeds", remedy=remedy)
        made = [(each, generate(source, seed=each, **arguments)) for each in numbers]
    if not laws:
        return [each for _, each in made]
    return [with_arrivals(each, law, number) for number, each in made for law in laws]
