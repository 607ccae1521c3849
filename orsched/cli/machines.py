"""Machines: whose times an instance has, the catalogue and options of it, what each worker did."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import click

from orsched.cli.output import print_below, print_facts, print_json, print_rows, say, table, wrapped
from orsched.common.errors import InputError, nearest
from orsched.common.parameters import read_pairs
from orsched.common.scalars import is_number
from orsched.common.units import NS_PER_MS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from orsched.calibration.gpus import Gpu
    from orsched.calibration.shapes import ModelShape
    from orsched.costs import CostModel
    from orsched.data.instance import Instance
    from orsched.solving.result import Result

T = TypeVar("T")

HOW = (
    "Every GPU and model have a machine by data sheet: GPU-MODEL-sheet, such as "
    "h100-llama3-8b-sheet, or GPUxN-MODEL-sheet on N of them, with -fp8, -fp4 or -int4 before "
    "-sheet for such weights. Its times are derived from the peaks below, not measured. orsched "
    "cost writes one with other assumptions, orsched calibrate one from measurements."
)


def say_machine(instance: Instance) -> str:
    """Say on stderr whose times an instance has: no table without it. Returns the words."""
    from orsched.calibration.catalogue import machine_words

    words = machine_words(instance)
    say(words, "machine")
    return words


def names_machines(name: str) -> bool:
    """Whether ``show_machines`` knows a name: ``machines``, or that of one."""
    from orsched.calibration.catalogue import SUFFIX, measured

    return name == "machines" or name.endswith(SUFFIX) or name in {m.name for m in measured()}


def show_machines(name: str, style: str) -> None:
    """Print the catalogue for ``machines``, or the machine of a name."""
    from orsched.calibration.catalogue import machine

    if name == "machines":
        print_machines(style)
        return
    facts = machine(name).to_dict()
    cost = facts.pop("cost")
    if style == "csv":
        facts |= {key: value for key, value in cost.items() if isinstance(value, int)}
    elif style == "json":
        facts["cost"] = cost
    else:
        facts |= cost_facts(machine(name).cost)
    print_facts(facts, style, wrap=True)


def cost_facts(cost: CostModel) -> dict[str, Any]:
    """Return some times of a cost model, in milliseconds: what its parameters come to."""
    limit = cost.prefill_limit
    sizes = [size for size in (128, 2048) if limit is None or size <= limit]
    found = {f"{size:,} prompt tokens, ms": cost.prefill_ns([size]) / NS_PER_MS for size in sizes}
    for active in (1, 64, 256):
        what = f"a round of {active} at 500 tokens, ms"
        found[what] = cost.round_ns(active, 500 * active, 500) / NS_PER_MS
    return found


def print_machines(style: str) -> None:
    """Print the catalogue: machines with measured times, GPUs and models; all of it as JSON."""
    from orsched.calibration.catalogue import machines, measured
    from orsched.calibration.gpus import GPUS
    from orsched.calibration.shapes import MODELS

    if style != "table":
        rows = [machine.to_dict() for machine in machines()]
        if style == "csv":
            keys = ("name", "kind", "title", "model", "source")
            print_rows([{key: row[key] for key in keys} for row in rows], style)
        else:
            print_json(rows)
        return
    listed = [
        {"machine": m.name, "kind": m.kind, "cost": m.cost.model, "what it is": m.title}
        for m in measured()
    ]
    click.echo(table(listed))
    click.echo(f"\n{wrapped(HOW)}\n")
    click.echo(table([_gpu_row(gpu) for gpu in GPUS.values()]) + "\n")
    click.echo(table([_model_row(shape) for shape in MODELS.values()]))


def _gpu_row(gpu: Any) -> dict[str, Any]:
    return {
        "gpu": gpu.name,
        "what it is": gpu.title,
        "TFLOP/s": round(gpu.flops / 1e12),
        "GB": gpu.memory_bytes // 10**9,
        "GB/s": gpu.bandwidth // 10**9,
        "link GB/s": gpu.link_bandwidth // 10**9,
    }


def _model_row(shape: Any) -> dict[str, Any]:
    return {
        "model": shape.name,
        "what it is": shape.title,
        "weights GB": round(shape.weight_bytes / 1e9, 1),
        "KiB a token": shape.kv_numbers * shape.formats.cache_bits // 8 // 1024,
    }


def gpu_named(name: str) -> Gpu:
    """Return the GPU that --gpu names, or that its numbers describe; raises ``InputError``."""
    from orsched.calibration.gpus import GPUS

    return own_gpu(name) if "=" in name else _named(name, GPUS, "--gpu")


def own_gpu(text: str) -> Gpu:
    """Return a GPU of one's own, such as ``tflops=400,gb=48,gb_s=1200,link_gb_s=64,like=l40s``.

    Those are the peak in BF16, the memory, its bandwidth, that of the link, and the GPU of the
    catalogue whose family, link and ratios of narrower types it has. Raises ``InputError``.
    """
    from dataclasses import replace

    from orsched.calibration.gpus import GPUS, UNITS

    given = read_pairs(text.split(","), "--gpu")
    like = GPUS.get(str(given.get("like")))
    sizes: dict[str, Any] = {}
    for name, (own, unit) in UNITS.items():
        value = given.get(name)
        if is_number(value) and 0 < value < 10**9:
            sizes[own] = round(value * unit)
    if like is None or len(sizes) < len(UNITS) or set(given) != {*UNITS, "like"}:
        raise InputError(
            f"{text!r} does not have the five numbers of a GPU",
            field="--gpu",
            remedy="tflops=400,gb=48,gb_s=1200,link_gb_s=64,like=l40s, with a GPU of the catalogue",
        )
    ratio = sizes["flops"] / like.flops
    sizes["narrow"] = tuple((kind, round(ratio * peak)) for kind, peak in like.narrow)
    title = f"a GPU of {given['tflops']} TFLOP/s, {given['gb']} GB and {given['gb_s']} GB/s"
    return replace(like, name="own", title=title, source="given by the user", **sizes)


def model_named(name: str) -> ModelShape:
    """Return the shape of --model, by long or short name; ``InputError`` for an unknown one."""
    from orsched.calibration.shapes import MODELS, SHORT

    return _named(SHORT.get(name, name), MODELS, "--model")


def model_shape(model: str | None, config: Path | None) -> ModelShape:
    """Return the shape that --model or --config names; raises ``InputError`` for none or both."""
    from orsched.calibration.shapes import read_config

    if (model is None) == (config is None):
        raise InputError(
            "a model or its configuration",
            field="--model",
            remedy="one of --model NAME (orsched info machines) and --config config.json",
        )
    if config is not None:
        return read_config(config)
    assert model is not None
    return model_named(model)


def _named(name: str, known: Mapping[str, T], option: str) -> T:
    if name in known:
        return known[name]
    near = nearest(name, known, most=2)
    hint = f"did you mean {' or '.join(near)}? " if near else ""
    raise InputError(
        f"{name!r} is not in the catalogue", field=option, remedy=f"{hint}{', '.join(known)}"
    )


_OF_FLEETS = ("worker_s", "starts", "lost_steps", "lost_s", "restarts")


def print_fleet(results: Sequence[Result]) -> None:
    """Print worker-seconds, costs of failures and restarts by method, where workers come and go."""
    rows = []
    for result in results:
        fleet, row = result.schedule.results.get("fleet"), result.to_row()
        if fleet is not None:
            figures = {name: row[name] for name in _OF_FLEETS}
            rows.append({"method": row["method"], "busy": fleet["utilization"] or 0.0, **figures})
    print_below(rows)


def workers_of(result: Result) -> list[dict[str, Any]]:
    """Return what each worker did, nothing of a single one."""
    from orsched.metrics.class_metrics import worker_figures

    instance = result.instance
    several = instance is not None and len(instance.workers) > 1
    return worker_figures(instance, result.schedule) if several and instance is not None else []


def print_workers(results: Sequence[Result]) -> None:
    """Print what each worker did, of several results a line each: how even, and what waited."""
    from orsched.metrics.class_metrics import extremes, imbalance

    found = {result.label or result.schedule.method: workers_of(result) for result in results}
    if len(results) == 1:
        (rows,) = found.values()
        shown = extremes(rows)
        if len(shown) < len(rows):
            click.echo(f"\nthe busiest and the least busy of {len(rows)} workers:")
        print_below(shown)
        return
    print_below([
        {
            "method": name,
            "imbalance": imbalance(rows),
            "busiest": max(row["busy"] or 0.0 for row in rows),
            "least_busy": min(row["busy"] or 0.0 for row in rows),
            "queue_max": max(row["queue_max"] for row in rows),
        }
        for name, rows in found.items() if rows
    ])  # fmt: skip
