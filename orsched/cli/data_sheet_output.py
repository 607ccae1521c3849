"""A cost model from a data sheet: what ``orsched cost --gpu`` does."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from orsched.cli.artefacts import check_paths
from orsched.cli.catalogue_options import gpu_named, model_shape
from orsched.cli.machine_output import cost_facts
from orsched.cli.output import print_facts, remark
from orsched.common.errors import InputError
from orsched.common.scalars import require_suffix

if TYPE_CHECKING:
    from pathlib import Path

    from orsched.costs import CostModel

LENGTH = 2048
"""Tokens of a slot, unless said otherwise."""

PREFILL_CAP = 2048
"""Tokens of a stage of a worker that is written: as engines take by default."""


def cost_of_data_sheet(
    gpu: str | None,
    model: str | None,
    config: Path | None,
    output: Path | None,
    style: str,
    *,
    efficiency: float | None,
    memory_efficiency: float | None,
    tensor_parallel: int | None,
    length: int | None,
    slots: int | None,
    worker_file: Path | None,
) -> None:
    """Write and print the cost model, and the worker, of a GPU and a model.

    Raises:
        InputError: an option is missing or wrong.
    """
    if gpu is None:
        raise InputError(
            "a GPU, a profile or a run",
            field="--gpu",
            remedy="one of --gpu NAME, --from-profile DIR and --fit RUN",
        )
    from orsched.calibration.data_sheet import (
        BLOCK_TOKENS,
        EFFICIENCY,
        data_sheet_cost,
        fitting,
        least_gpus,
    )
    from orsched.files import save_cost

    length = LENGTH if length is None else length
    _check_worker(length, slots, worker_file)
    written = {"output": output, "worker-file": worker_file}
    check_paths(written, [] if config is None else [str(config)])
    if output is not None:
        require_suffix(output, (".json",), "--output")
    chip, shape = gpu_named(gpu), model_shape(model, config)
    count = least_gpus(chip, shape) if tensor_parallel is None else tensor_parallel
    share = EFFICIENCY if efficiency is None else efficiency
    try:
        cost = data_sheet_cost(chip, shape, share, memory_efficiency, count)
        room = fitting(chip, shape, count)
    except InputError as error:
        raise _of_an_option(error) from None
    about: dict[str, Any] = {
        "kind": "data sheet",
        "gpu": chip.title,
        "gpus": count,
        "model": shape.title,
        "efficiency": share,
        "memory_efficiency": share if memory_efficiency is None else memory_efficiency,
        "source": f"{chip.source}; {shape.source}",
        "kv_tokens": room.kv_tokens,
    }
    if output is not None:
        save_cost(cost, output, {"machine": about})
        remark(f"cost model written to {output}")
    if worker_file is not None:
        count_of = room.slots(length) if slots is None else slots
        name = f"{gpu}-{shape.name}"
        _write_worker(worker_file, max(1, count_of), cost, room.blocks, name)
    facts = about | {
        f"blocks_of_{BLOCK_TOKENS}": room.blocks,
        f"slots_of_{length}": room.slots(length),
    }
    if style == "json":
        facts["cost"] = {"model": cost.model, **cost.to_dict()}
    print_facts(facts if style != "table" else facts | cost_facts(cost), style)


def _check_worker(length: int, slots: int | None, worker_file: Path | None) -> None:
    from orsched.common.columns import whole_number

    whole_number(length, "--length", minimum=1)
    if slots is not None:
        whole_number(slots, "--slots", minimum=1)
        if worker_file is None:
            raise InputError("is of a worker", field="--slots", remedy="--worker-file FILE")


def _of_an_option(error: InputError) -> InputError:
    """Return the error named after an option: a coefficient is out of range by its efficiency."""
    flag = "--" + str(error.field).replace("_", "-")
    if flag in {"--efficiency", "--memory-efficiency", "--tensor-parallel"}:
        return InputError(error.problem, field=flag, remedy=error.remedy)
    problem = f"the cost model that follows cannot be stated: {error.field}: {error.problem}"
    return InputError(problem, field="--efficiency", remedy="a larger share of the peaks")


def _write_worker(path: Path, slots: int, cost: CostModel, blocks: int, name: str) -> None:
    from orsched.calibration.data_sheet import BLOCK_TOKENS
    from orsched.data.memory import BlockMemory
    from orsched.data.workers import Worker
    from orsched.files.atomic import write_text

    worker = Worker(slots, cost, PREFILL_CAP, BlockMemory(blocks, BLOCK_TOKENS, "paged"), name)
    write_text(path, json.dumps(worker.to_dict(), indent=1) + "\n")
    remark(f"worker written to {path}")
