"""Measured rows against the machines of the catalogue, each simulated in closed loop."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from orsched.calibration.catalogue import memory_of
from orsched.calibration.data_sheet import Layout, data_sheet_cost, fitting
from orsched.calibration.gpus import GPUS, constants_of
from orsched.calibration.runs import served
from orsched.calibration.shapes import MODELS
from orsched.common.errors import InputError, known_names
from orsched.common.units import NS_PER_S
from orsched.data.requests import Requests
from orsched.data.workers import Worker
from orsched.planning.validation.runs import kind_of, rows_of_run
from orsched.planning.validation.served import Served, read_served
from orsched.views.planning_charts import Validation

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from orsched.calibration.gpus import Constants, Gpu
    from orsched.calibration.shapes import ModelShape
    from orsched.costs import CostModel
    from orsched.data.memory import BlockMemory
    from orsched.views.planning_charts import Row

MOST_GPUS, TOKEN_BUDGET, SPREAD = 8, 8192, 0.1  # the last: of answers around their mean
WAVES = 10  # requests a client, as InferenceX sends, where a table does not say how many
_left_out = partial(InputError, remedy="leave the row out, or use words of orsched info machines")
_ENDING = re.compile(r"(-(instruct|chat|(nv|mx)?fp[48]|int4|awq|gptq|bf16|a[0-9]+b|[0-9]{4}))+$")


class Machine(NamedTuple):
    """What a configuration runs on; the constants have what is outside of all steps."""

    gpu: Gpu
    shape: ModelShape
    cost: CostModel
    memory: BlockMemory | None
    constants: Constants


def validate(
    files: Sequence[Path],
    gpu: str | None = None,
    callback: Callable[[str], object] = str,
    machine: str | None = None,
    clients: int | None = None,
) -> Validation:
    """Return how far predictions are from the measured rows of tables, and from measured runs.

    ``gpu``: of rows whose table does not name theirs. ``machine``, ``clients``: of runs and their
    steps (``rows_of_run``). Raises ``InputError`` for a wrong file.
    """
    if gpu not in (None, *GPUS):
        raise InputError(f"unknown GPU {gpu!r}", field="--gpu", remedy=known_names(gpu, GPUS))
    rows: list[Row] = []
    skipped: list[Row] = []
    kinds = {file: kind_of(file) for file in files}
    for file, kind in kinds.items():
        rows += rows_of_run(file, kind, machine, clients) if kind else []
    found = [each for file, kind in kinds.items() if not kind for each in read_served(file)]
    for place, each in enumerate(found):
        callback(f"simulating {place:,} of {len(found):,}")
        try:
            rows += errors_of(replace(each, gpu=each.gpu or gpu or ""))
        except InputError as error:
            skipped.append({"id": each.id, "reason": error.problem})
    return Validation(tuple(rows), tuple(skipped))


def errors_of(each: Served) -> list[Row]:
    """Return a row for each metric of a configuration; ``InputError``: it is not expressible."""
    if each.refused or not each.measured:
        raise _left_out(each.refused or "nothing is measured")
    machine = machine_of(each)
    found = {m: v for m, v in predicted(each, machine).items() if m in each.measured}
    words = {
        "gpu": machine.gpu.name, "model": machine.shape.name, "precision": precision_of(each),
        "engine": each.engine, "tp": each.tensor, "concurrency": each.concurrency,
        "in_flight": 1 << (each.concurrency - 1).bit_length(),
        "pace": [_pace(each, each.measured), _pace(each, found)],
    }  # fmt: skip
    rows = ((name, each.measured[name], value) for name, value in found.items())
    return [
        {"id": each.id, "metric": metric, "measured": measured, "predicted": value,
         "error": value / measured - 1, **words}
        for metric, measured, value in rows
    ]  # fmt: skip


def _pace(each: Served, figures: Mapping[str, float]) -> float:
    """Return output tokens a second and GPU: of the stay of a request, if not measured itself."""
    stay = figures.get("ttft", 0) + (each.output_tokens - 1) * figures.get("tpot", 0)
    of_stays = each.concurrency * each.output_tokens / max(stay, 1e-9)
    return figures.get("throughput", of_stays) / (each.tensor * each.pipeline * each.data)


def predicted(each: Served, machine: Machine, waves: int = 4) -> dict[str, float]:
    """Return what a machine takes in closed loop; ``waves`` stand for all where none are stated."""
    n, known, sent = each.concurrency, machine.constants, each.requests or each.concurrency * waves
    # Equal answers would keep all clients in step, and each wave would meet as the first one does.
    spread = 1 + SPREAD * (2 * (np.arange(1, sent + 1) * (5**0.5 - 1) / 2 % 1.0) - 1)
    lengths = np.maximum(1, np.rint(each.output_tokens * spread)).astype(np.int64)
    requests = Requests(np.full(sent, each.prompt_tokens), lengths)
    worker = Worker(min(n, sent), machine.cost, None, machine.memory)
    times, weight = served(requests, worker, TOKEN_BUDGET, worker.clients)[2], np.ones(sent)
    if each.requests is None:  # waves between the first and the last stand for the others
        weight[n:-n] = (WAVES - 2) / (waves - 2)
    rest = (times.last - times.first) / np.maximum(1, times.tokens - 1)
    ttft, tpot = (
        float(np.median(x) if each.statistic == "median" else np.average(x, weights=weight))
        / NS_PER_S
        for x in (times.first - times.arrival, rest)
    )
    front_s = (known.front_end_ms + n * known.front_client_ms) / 1000
    slower = 1 + front_s / (ttft + each.output_tokens * tpot)
    makespan = float(times.last.max()) / NS_PER_S * slower
    pace = int(times.tokens.sum()) / makespan
    return {"tpot": tpot, "ttft": ttft + front_s, "throughput": pace, "makespan": makespan}


def machine_of(each: Served) -> Machine:
    """Return the machine of a configuration; ``InputError``: the catalogue has none."""
    layout = Layout(each.tensor, each.pipeline, each.data, each.expert)
    if layout.gpus > MOST_GPUS:
        raise _left_out(f"more than {MOST_GPUS} GPUs")
    if not each.gpu:
        raise _left_out("the table does not name the GPU (--gpu)")
    if not each.engine:
        raise _left_out("the table does not name the engine")
    found = _machine(each.gpu, each.model, precision_of(each), layout, each.engine)
    if not found.shape.linear:
        return found
    room = fitting(found.gpu, found.shape, layout, requests=each.concurrency)
    return found._replace(memory=memory_of({"kv_tokens": room.kv_tokens}))


@lru_cache(maxsize=4096)
def _machine(gpu: str, model: str, precision: str, layout: Layout, engine: str) -> Machine:
    device = GPUS.get(re.sub(r"[_-]sxm$", "", gpu.lower()).replace("_", "-"))
    shape = _known_models().get(plain_model(model))
    if device is None or shape is None:
        unknown = f"model {model!r}" if device else f"GPU {gpu!r}"
        raise _left_out(f"{unknown} is not in the catalogue")
    shape = in_precision(shape, precision)
    memory = memory_of({"kv_tokens": fitting(device, shape, layout).kv_tokens})
    cost = data_sheet_cost(device, shape, layout, engine)
    return Machine(device, shape, cost, memory, constants_of(device, engine))


def in_precision(shape: ModelShape, precision: str) -> ModelShape:
    """Return a shape as it is served in a precision, with caches in FP8 if that is FP8 or FP4.

    Own weights of 4 bits stay, and the attention of models with experts beside weights in FP4.
    """
    own, caches = shape.formats, "fp8" if precision in ("fp8", "fp4") else None
    if own.experts.bits < 5:
        return shape.stored(kv=caches)
    found = shape.stored(precision, caches)
    if precision == "fp4" and shape.experts:
        return replace(found, formats=replace(found.formats, attention=own.attention))
    return found


def precision_of(each: Served) -> str:
    """Return the precision of the weights: that of the row, of the model's name, or bf16."""
    found = re.search(r"-(?:NV|MX)?(FP8|FP4|INT4)\b", each.model, re.IGNORECASE)
    return (each.precision or (found[1] if found else "bf16")).lower()


def plain_model(path: str) -> str:
    """Return the name of a model without its maker, tuning, active numbers and precision."""
    return _ENDING.sub("", path.rstrip("/").rpartition("/")[2].lower())


@lru_cache(maxsize=1)
def _known_models() -> dict[str, ModelShape]:
    """Return the models of the catalogue by their names and repositories."""
    repositories = ((re.search(r"[\w.-]+/[\w.-]+", m.source), m) for m in MODELS.values())
    found = {plain_model(told[0]): shape for told, shape in repositories if told}
    return found | {plain_model(name): shape for name, shape in MODELS.items()}
