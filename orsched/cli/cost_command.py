"""``orsched cost``: a cost model from a data sheet, or from a profile of kernels."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from orsched.cli.artefacts import check_paths
from orsched.cli.machine_output import cost_facts
from orsched.cli.options import FORMAT
from orsched.cli.output import print_facts, remark
from orsched.cli.profile_options import PROFILE, cost_of_profile
from orsched.errors import InputError
from orsched.near_names import nearest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orsched.costs import CostModel
    from orsched.hardware import ModelShape

T = TypeVar("T")
PREFILL_CAP = 2048
"""Tokens of a stage of a worker that is written: as engines take by default."""

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
    default=2048,
    show_default=True,
    metavar="TOKENS",
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
    length: int,
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
    if from_profile is not None or profile["run"] is not None:
        sheet: dict[str, object] = {
            "--gpu": gpu,
            "--efficiency": efficiency,
            "--memory-efficiency": memory_efficiency,
        }
        sheet |= {"--tensor-parallel": tensor_parallel, "--slots": slots}
        sheet |= {"--worker-file": worker_file}
        for name, value in sheet.items():
            if value is not None:
                raise InputError(
                    "is of a data sheet", field=name, remedy="not with --from-profile or --fit"
                )
        cost_of_profile(from_profile, model, config, output, style, **profile)
        return
    for name, value in profile.items():
        if value not in (None, ()):
            flag = "--" + {"kernels": "kernel"}.get(name, name).replace("_", "-")
            remedy = "with --from-profile DIR, or --fit RUN"
            raise InputError("is of a profile or a run", field=flag, remedy=remedy)
    if gpu is None:
        raise InputError(
            "a GPU, a profile or a run",
            field="--gpu",
            remedy="one of --gpu NAME, --from-profile DIR and --fit RUN",
        )
    from orsched.columns import whole_number
    from orsched.files import save_cost
    from orsched.hardware import GPUS, data_sheet_cost, fitting
    from orsched.hardware.data_sheet import BLOCK_TOKENS, EFFICIENCY, least_gpus

    whole_number(length, "--length", minimum=1)
    if slots is not None:
        whole_number(slots, "--slots", minimum=1)
        if worker_file is None:
            raise InputError("is of a worker", field="--slots", remedy="--worker-file FILE")
    written = {"output": output, "worker-file": worker_file}
    check_paths(written, [] if config is None else [str(config)])
    chip, shape = _named(gpu, GPUS, "--gpu"), model_shape(model, config)
    count = least_gpus(chip, shape) if tensor_parallel is None else tensor_parallel
    share = EFFICIENCY if efficiency is None else efficiency
    try:
        cost = data_sheet_cost(chip, shape, share, memory_efficiency, count)
        room = fitting(chip, shape, count)
    except InputError as error:
        raise _of_an_option(error) from None
    about = {
        "kind": "data sheet",
        "gpu": chip.title,
        "gpus": count,
        "model": shape.title,
        "efficiency": share,
        "memory_efficiency": share if memory_efficiency is None else memory_efficiency,
        "source": f"{chip.source}; {shape.source}",
    }
    if output is not None:
        save_cost(cost, output, {"machine": about})
        remark(f"cost model written to {output}")
    if worker_file is not None:
        count_of = room.slots(length) if slots is None else slots
        name = f"{gpu}-{shape.name}"
        _write_worker(worker_file, max(1, count_of), cost, room.blocks, name)
    facts: dict[str, Any] = dict(about)
    facts |= {
        "kv_tokens": room.kv_tokens,
        f"blocks_of_{BLOCK_TOKENS}": room.blocks,
        f"slots_of_{length}": room.slots(length),
    }
    if style == "json":
        facts["cost"] = {"model": cost.model, **cost.to_dict()}
    print_facts(facts if style != "table" else facts | cost_facts(cost), style)


def _of_an_option(error: InputError) -> InputError:
    """Return the error named after an option: a coefficient is out of range by its efficiency."""
    flag = "--" + str(error.field).replace("_", "-")
    if flag in {"--efficiency", "--memory-efficiency", "--tensor-parallel"}:
        return InputError(error.problem, field=flag, remedy=error.remedy)
    problem = f"the cost model that follows cannot be stated: {error.field}: {error.problem}"
    return InputError(problem, field="--efficiency", remedy="a larger share of the peaks")


def _write_worker(path: Path, slots: int, cost: CostModel, blocks: int, name: str) -> None:
    from orsched.files.atomic import write_text
    from orsched.hardware.data_sheet import BLOCK_TOKENS
    from orsched.memory import BlockMemory
    from orsched.workers import Worker

    worker = Worker(slots, cost, PREFILL_CAP, BlockMemory(blocks, BLOCK_TOKENS, "paged"), name)
    write_text(path, json.dumps(worker.to_dict(), indent=1) + "\n")
    remark(f"worker written to {path}")


def model_shape(model: str | None, config: Path | None) -> ModelShape:
    """Return the shape that --model or --config names."""
    from orsched.hardware import MODELS, read_config
    from orsched.hardware.shapes import SHORT

    if (model is None) == (config is None):
        raise InputError(
            "a model or its configuration",
            field="--model",
            remedy="one of --model NAME (orsched info machines) and --config config.json",
        )
    if config is not None:
        return read_config(config)
    assert model is not None
    return _named(SHORT.get(model, model), MODELS, "--model")


def _named(name: str, known: Mapping[str, T], option: str) -> T:
    if name in known:
        return known[name]
    near = nearest(name, known, most=2)
    hint = f"did you mean {' or '.join(near)}? " if near else ""
    raise InputError(
        f"{name!r} is not in the catalogue", field=option, remedy=f"{hint}{', '.join(known)}"
    )
