"""``orsched cost``: a cost model from a data sheet, or from a profile of kernels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from orsched.cli.data_sheet_output import cost_of_data_sheet
from orsched.cli.options import FORMAT
from orsched.cli.profile_options import PROFILE, refuse_profile
from orsched.cli.profile_output import cost_of_profile
from orsched.common.errors import InputError

_FILE = click.Path(dir_okay=False, path_type=Path)


@click.command("cost", short_help="Derive a cost model from a data sheet, or from kernel times.")
@click.option("--gpu", metavar="NAME", help="A GPU of orsched info machines.")
@click.option("--model", metavar="NAME", help="A model of orsched info machines; 8b: llama3-8b.")
@click.option(
    "--config",
    type=click.Path(exists=True, path_type=Path),
    help="A model's config.json, or the folder with it, in place of --model.",
)
@PROFILE
@click.option(
    "--efficiency",
    type=float,
    metavar="SHARE",
    show_default="0.6",
    help="Share of the peaks that is reached.",
)
@click.option(
    "--memory-efficiency",
    type=float,
    metavar="SHARE",
    show_default="--efficiency",
    help="Of the bandwidth, if another.",
)
@click.option(
    "--tensor-parallel",
    type=int,
    metavar="N",
    show_default="as few as hold the model",
    help="GPUs that share each layer.",
)
@click.option(
    "--length",
    type=int,
    metavar="TOKENS",
    show_default="2048",
    help="Of a slot: how many fit is printed.",
)
@click.option(
    "--slots",
    type=int,
    metavar="J",
    show_default="as many as fit",
    help="With --worker-file: clients of the worker.",
)
@click.option("-o", "--output", type=_FILE, help="Write the cost model (.json).")
@click.option(
    "--worker-file",
    type=_FILE,
    help="Write a worker (.json): slots, cost, the blocks that fit, stages of up to 2,048 tokens.",
)
@FORMAT
def cost_command(
    gpu: str | None,
    model: str | None,
    config: Path | None,
    efficiency: float | None,
    memory_efficiency: float | None,
    tensor_parallel: int | None,
    length: int | None,
    slots: int | None,
    output: Path | None,
    worker_file: Path | None,
    style: str,
    from_profile: Path | None,
    **profile: Any,
) -> None:
    """Derive a cost model: a roofline from a data sheet, or tables from a profile of kernels.

    With --gpu, from peak FLOPs, bandwidth and the model's shape: nothing is measured. With
    --from-profile, from kernel times in the layout of LLMServingSim's profiler. With --fit, to the
    times of a measured run: one factor of a profile, or two constants of a model's shape.

    Example: orsched cost --gpu h100 --model 8b -o cost.json

    Example: orsched cost --from-profile perf/RTX4090/llama/bf16 --layers 32 -o cost.json

    Example: orsched cost --fit run.csv --model 8b --clients 256 --memory-blocks 2587 -o cost.json
    """
    sheet: dict[str, Any] = {
        "efficiency": efficiency,
        "memory_efficiency": memory_efficiency,
        "tensor_parallel": tensor_parallel,
        "length": length,
        "slots": slots,
        "worker_file": worker_file,
    }
    if from_profile is None and profile["run"] is None:
        refuse_profile(profile)
        cost_of_data_sheet(gpu, model, config, output, style, **sheet)
        return
    for name, value in ({"gpu": gpu} | sheet).items():
        if value is not None:
            raise InputError(
                "is of a data sheet",
                field="--" + name.replace("_", "-"),
                remedy="not with --from-profile or --fit",
            )
    cost_of_profile(from_profile, model, config, output, style, **profile)
