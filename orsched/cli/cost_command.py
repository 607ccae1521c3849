"""``orsched cost``: a cost model from a data sheet, a profile of kernels or a measured run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from orsched.cli.artefacts import check_paths, write_cost, write_worker
from orsched.cli.declaring import THERE, command, option
from orsched.cli.machines import cost_facts, gpu_named, model_shape
from orsched.cli.options import Printed
from orsched.cli.output import print_facts, remark
from orsched.common.errors import InputError
from orsched.common.parameters import read_pairs

if TYPE_CHECKING:
    from collections.abc import Iterable

    from orsched.calibration.data_sheet import Layout
    from orsched.calibration.gpus import Constants, Gpu
    from orsched.calibration.profile_cost import ModelFacts, ProfileFiles
    from orsched.calibration.recipe import RunFit
    from orsched.calibration.runs import Server
    from orsched.calibration.shapes import ModelShape
    from orsched.costs import CostModel, ProfiledCost

LENGTH = 2048
"""Tokens of a slot, unless said otherwise."""

PREFILL_CAP = 2048
"""Tokens of a stage of a worker that is written: as engines take by default."""


@command(
    "cost",
    usual="gpu model config from_profile run clients memory_blocks output worker_file style",
)
class CostCommand(Printed):
    """Derive a cost model: a roofline from a data sheet, or tables from a profile of kernels.

    With --gpu, from peaks, the shares of them that kernels reach, and the model's shape. With
    --from-profile, from kernel times in the layout of LLMServingSim's profiler. With --fit, to the
    times of a measured run: one factor of a profile, or two constants of a model's shape.

    Example: orsched cost --gpu h100 --model 8b -o cost.json

    Example: orsched cost --from-profile perf/RTX4090/llama/bf16 --layers 32 -o cost.json

    Example: orsched cost --fit run.csv --model 8b --clients 256 --memory-blocks 2587 -o cost.json
    """

    gpu: str | None = option(
        "A GPU of orsched info machines, or tflops=,gb=,gb_s=,link_gb_s=,like= of one.",
        metavar="NAME",
    )
    model: str | None = option("A model of orsched info machines; 8b: llama3-8b.", metavar="NAME")
    config: Path | None = option(
        "A model's config.json, or the folder with it, in place of --model.",
        type=click.Path(exists=True, path_type=Path),
    )
    from_profile: Path | None = option(
        "A profile of kernels: tp<N>/dense.csv, attention.csv, ... or AIConfigurator's Parquet.",
        type=click.Path(exists=True, file_okay=False, path_type=Path),
        metavar="DIR",
    )
    layers: int | None = option("Layers of a profile's model; or --config.", metavar="N")
    tp: int | None = option(
        "GPUs that share each layer.",
        metavar="N",
        show_default="as few as hold the model; 1 of a profile",
    )
    pp: int | None = option("Stages of layers.", metavar="N", show_default="1")
    dp: int | None = option(
        "Groups of GPUs with attention of their own.", metavar="N", show_default="1"
    )
    hidden: int | None = option("Hidden size, for all-reduce by bytes.", metavar="N")
    ep: int | None = option(
        "Groups of GPUs that divide the experts.", metavar="N", show_default="1"
    )
    weights: str | None = option(
        "Format of weights: bf16, fp8, int8, fp4, mxfp4, int4.",
        metavar="NAME",
        show_default="that of the model",
    )
    kv: str | None = option(
        "Format of caches: bf16 or fp8.", metavar="NAME", show_default="that of the model"
    )
    engine: str | None = option(
        "Engine whose constants hold: vllm, sglang, trtllm.", metavar="NAME", show_default="vllm"
    )
    constants: Path | None = option(
        "Constants in place of those of tables/constants.json.", type=THERE, metavar="FILE"
    )
    constant: tuple[str, ...] = option(
        "One constant, such as gemm_memory=0.7. Repeatable.", metavar="NAME=X"
    )
    experts: int | None = option(
        "Experts that a step activates.", metavar="N", show_default="on average, of random choices"
    )
    dense_layers: int | None = option("Layers without experts.", metavar="N")
    kernels: tuple[str, ...] = option(
        "How often a step runs a kernel; 0: not at all. Repeatable.", "--kernel", metavar="NAME=N"
    )
    fixed_us: float | None = option(
        "What a step takes besides, on the host.", metavar="US", show_default="0"
    )
    run: Path | None = option(
        "A measured run (CSV, a benchmark's result): fit the profile or shape.",
        "--fit",
        type=THERE,
        metavar="RUN",
    )
    format: str | None = option(
        "With --fit: format of the run; vllm-bench:2 is a file's second.",
        "--from",
        metavar="FORMAT",
        show_default="detected",
    )
    clients: int | None = option("With --fit: most requests at once.", metavar="J")
    memory_blocks: int | None = option(
        "With --fit: KV-cache blocks of the server.",
        metavar="N",
        show_default="memory never limits",
    )
    block_tokens: int | None = option(
        "With --fit: tokens per block.", metavar="N", show_default="16"
    )
    token_budget: int | None = option(
        "With --fit: tokens per step.", metavar="N", show_default="2048"
    )
    fit_requests: int | None = option(
        "With --fit: number of first requests to fit to; the others are scored.",
        metavar="N",
        show_default="half, 20 at least",
    )
    weighting: str | None = option(
        "With --fit: the errors to minimise.",
        choices=["seconds", "relative"],
        show_default="seconds",
    )
    length: int | None = option(
        "Tokens of a slot: how many slots fit is printed.", metavar="TOKENS", show_default="2048"
    )
    slots: int | None = option(
        "With --worker-file: clients of the worker.", metavar="J", show_default="as many as fit"
    )
    output: Path | None = option("Write the cost model (.json).", "-o")
    worker_file: Path | None = option(
        "Write a worker (.json): slots, cost, the blocks that fit, stages of up to 2,048 tokens."
    )

    def refuse(self, names: Iterable[str], why: str, remedy: str) -> None:
        """Raise ``InputError`` for the first of some options that is given."""
        for name in names:
            if getattr(self, name) not in (None, ()):
                known = {"kernels": "kernel", "run": "fit", "format": "from"}
                flag = "--" + known.get(name, name).replace("_", "-")
                raise InputError(why, field=flag, remedy=remedy)

    def check_output(self) -> None:
        """Refuse, before any work, files that could not be written."""
        reads = [str(path) for path in (self.config, self.run) if path is not None]
        written = {"output": self.output, "worker-file": self.worker_file}
        check_paths(written, reads, (".json",))

    def _run(self) -> None:
        if self.from_profile is None and self.run is None:
            self.refuse(
                (*_OF_A_PROFILE, *_OF_A_RUN),
                "is of a profile or a run",
                "with --from-profile DIR, or --fit RUN",
            )
            _cost_of_data_sheet(self)
            return
        self.refuse(_OF_A_SHEET, "is of a data sheet", "not with --from-profile or --fit")
        _cost_of_profile(self)


_OF_A_RUN = (
    "format", "clients", "memory_blocks", "block_tokens", "token_budget", "fit_requests",
    "weighting",
)  # fmt: skip
_OF_A_PROFILE = ("layers", "hidden", "experts", "dense_layers", "fixed_us", "kernels")
_OF_BOTH, _LAYOUT = ("tp", "ep"), ("tp", "pp", "dp", "ep")
_OF_A_SHEET = (
    "gpu", "pp", "dp", "engine", "constants", "constant", "length", "slots", "worker_file",
)  # fmt: skip


def _cost_of_data_sheet(given: CostCommand) -> None:
    """Write and print the cost model, and the worker, of a GPU and a model."""
    if given.gpu is None:
        raise InputError(
            "a GPU, a profile or a run",
            field="--gpu",
            remedy="one of --gpu NAME, --from-profile DIR and --fit RUN",
        )
    from orsched.calibration.data_sheet import BLOCK_TOKENS, data_sheet_cost, fitting
    from orsched.data.memory import BlockMemory
    from orsched.data.workers import Worker

    length = LENGTH if given.length is None else given.length
    _check_worker(length, given.slots, given.worker_file)
    given.check_output()
    chip, shape = gpu_named(given.gpu), model_shape(given.model, given.config)
    engine = given.engine or "vllm"
    try:
        shape = shape.stored(given.weights, given.kv)
        layout = _layout(given, chip, shape)
        known = _constants(given, chip, layout, engine)
        cost = data_sheet_cost(chip, shape, layout, engine, known)
        room = fitting(chip, shape, layout, known.memory_share)
    except InputError as error:
        raise _of_an_option(error) from None
    sizes = (f"{name.upper()} {n}" for name, n in vars(layout).items() if n > 1)
    about: dict[str, Any] = {
        "kind": "data sheet",
        "gpu": chip.title,
        "gpus": layout.gpus,
        "layout": ", ".join(sizes) or "-",
        "model": shape.title,
        "weights": shape.formats.words or "weights of 16 bits",
        "engine": engine,
        "source": f"{chip.source}; {shape.source}; constants: {known.source}",
        "kv_tokens": room.kv_tokens,
    }
    write_cost(cost, {"machine": about}, given.output)
    if given.worker_file is not None:
        slots = room.slots(length) if given.slots is None else given.slots
        beside = fitting(chip, shape, layout, known.memory_share, max(1, slots))
        memory = BlockMemory(beside.blocks, BLOCK_TOKENS, "paged")
        name = f"{chip.name}-{shape.name}"
        worker = Worker(max(1, slots), cost, PREFILL_CAP, memory, name)
        write_worker(worker, given.worker_file)
    facts = about | {
        f"blocks_of_{BLOCK_TOKENS}": room.blocks,
        f"slots_of_{length}": room.slots(length),
    }
    _print_cost(facts, cost, given.style)


def _layout(given: CostCommand, chip: Gpu, shape: ModelShape) -> Layout:
    from orsched.calibration.data_sheet import Layout, least_gpus

    said = {name: getattr(given, name) for name in _LAYOUT}
    sizes = {name: value for name, value in said.items() if value is not None}
    if not sizes:
        sizes["tp"] = least_gpus(chip, shape)
    return Layout(**sizes)


def _constants(given: CostCommand, chip: Gpu, layout: Layout, engine: str) -> Constants:
    from orsched.calibration.gpus import constants_of

    changed = read_pairs(given.constant, "--constant")
    return constants_of(chip, engine, layout.link(chip), given.constants, changed)


def _print_cost(facts: dict[str, Any], cost: CostModel, style: str) -> None:
    """Print what a cost model is: in JSON with its parameters, in a table with some times."""
    if style == "json":
        facts = facts | {"cost": {"model": cost.model, **cost.to_dict()}}
    print_facts(facts | cost_facts(cost) if style == "table" else facts, style)


def _check_worker(length: int, slots: int | None, worker_file: Path | None) -> None:
    from orsched.common.columns import whole_number

    whole_number(length, "--length", minimum=1)
    if slots is not None:
        whole_number(slots, "--slots", minimum=1)
        if worker_file is None:
            raise InputError("is of a worker", field="--slots", remedy="--worker-file FILE")


def _of_an_option(error: InputError) -> InputError:
    """Return the error named after an option: a coefficient is out of range by its constants."""
    from orsched.calibration.gpus import Constants

    if error.file is not None or str(error.field).startswith("--"):
        return error
    if error.field in Constants.__dataclass_fields__:
        return InputError(
            f"{error.field}: {error.problem}", field="--constant", remedy=error.remedy
        )
    if error.field in (*_LAYOUT, "weights", "kv", "engine", "constant"):
        return InputError(error.problem, field=f"--{error.field}", remedy=error.remedy)
    problem = f"the cost model that follows cannot be stated: {error.field}: {error.problem}"
    return InputError(problem, field="--constant", remedy="larger shares of the peaks")


def _cost_of_profile(given: CostCommand) -> None:
    """Write and print the cost model of a profile, of a measured run, or of both."""
    given.check_output()
    if given.run is None:
        given.refuse(_OF_A_RUN, "is of --fit", "with --fit RUN")
    if given.from_profile is None:
        given.refuse((*_OF_A_PROFILE, *_OF_BOTH), "is of a profile", "with --from-profile DIR")
    base, about = _base(given)
    report: dict[str, Any] = {"machine": about}
    cost: Any = base
    if given.run is not None:
        fitted, server = _fitted(base, given.run, given)
        cost, report["fit"] = fitted.cost, fitted.to_dict()
        about |= {"run": given.run.name, "constants": report["fit"]["constants"]}
        about |= {"errors": report["fit"]["errors"]} | _kv_cache(server)
    write_cost(cost, report, given.output)
    if given.style == "json":
        fit = {"fit": report["fit"]} if "fit" in report else {}
        print_facts({**about, "cost": {"model": cost.model, **cost.to_dict()}, **fit}, "json")
    else:
        _print_cost(_flat(about), cost, given.style)


def _kv_cache(server: Server) -> dict[str, int]:
    """Return the KV cache of a server in the words of a machine, {} where it never limits.

    A simulation with the fitted cost model then has the memory that the fit had.
    """
    if server.memory_blocks is None:
        return {}
    size = server.block_tokens
    return {"kv_tokens": server.memory_blocks * size, "block_tokens": size}


def _base(given: CostCommand) -> tuple[Any, dict[str, Any]]:
    """Return the cost model of a profile, or a model's shape, and what it is."""
    from orsched.calibration.profile_cost import find_profile, profile_cost

    if given.from_profile is None:
        shape = model_shape(given.model, given.config)
        return shape, {"kind": "shape of a model", "model": shape.title, "source": shape.source}
    try:
        files = find_profile(given.from_profile, 1 if given.tp is None else given.tp)
        if files.moe is None:
            remedy = f"leave it out, or put moe.csv beside {files.dense}"
            given.refuse(("ep", "experts", "dense_layers"), "the profile has no experts", remedy)
        facts = _model_facts(given, published=files.rounds is not None)
        cost = profile_cost(files, facts, _fixed_ns(given.fixed_us))
    except InputError as error:
        if error.file is None and error.field in _FLAGS:
            flag = _FLAGS[error.field]
            raise InputError(error.problem, field=flag, remedy=error.remedy) from None
        raise
    about = _described(cost, files, facts)
    if files.rounds is not None and not given.fixed_us:
        remark("the tables lack small kernels and the host: --fixed-us adds their time")
    if files.unused:
        remark(f"not used: {', '.join(files.unused)}")
    missing = {name: n for name, n in about["filled_in"].items() if n}
    if missing:
        shown = (f"{n} of {about['points'][name]} in {name}" for name, n in missing.items())
        remark(f"combinations that were not measured, filled in: {', '.join(shown)}")
    return cost, about


def _described(cost: ProfiledCost, files: ProfileFiles, model: ModelFacts) -> dict[str, Any]:
    """Return what the cost was made of, and how much of its tables was filled in, for reports."""
    grids = {name: getattr(cost, name) for name in ("dense", "prefill", "decode", "per_sequence")}
    return {
        "kind": "profile of kernels",
        "layers": model.layers,
        "gpus": files.tensor_parallel,
        "files": files.to_dict(),
        "not_used": list(files.unused),
        "points": {name: len(grid.times_ns) for name, grid in grids.items() if grid is not None},
        "filled_in": {name: grid.filled for name, grid in grids.items() if grid is not None},
        "source": str(files.dense.parent),
    }


_FLAGS = {
    "layers": "--layers",
    "hidden": "--hidden",
    "dense_layers": "--dense-layers",
    "expert_parallel": "--ep",
    "activated": "--experts",
    "kernel": "--kernel",
}
"""Options by what they are called in Python."""


def _fitted(base: Any, path: Path, given: CostCommand) -> tuple[RunFit, Server]:
    """Fit to a measured run, and say how firm the constants are and what is missed."""
    from orsched.calibration.recipe import LEAST_REQUESTS, fit_run, require_enough
    from orsched.calibration.runs import Server, read_run, recorded_settings
    from orsched.common.columns import whole_number

    names = ("clients", "memory_blocks", "block_tokens", "token_budget")
    said = {name: value for name in names if (value := getattr(given, name)) is not None}
    recorded = recorded_settings(path)
    if recorded:
        read = (f"{name} {value:,}" for name, value in recorded.items() if name not in said)
        remark(f"settings from meta.json: {', '.join(read)}")
    settings = recorded | said
    if "clients" not in settings:
        raise InputError(
            "the most requests that the server ran at once are not known",
            field="--clients",
            remedy="--clients J",
        )
    try:
        server = Server(**settings)
    except InputError as error:
        flag = "--" + str(error.field).replace("_", "-")
        raise InputError(error.problem, field=flag, remedy=error.remedy) from None
    run = read_run(path, given.format)
    count, weighting = given.fit_requests, given.weighting or "seconds"
    require_enough(run)
    if count is not None:
        whole_number(count, "--fit-requests", minimum=LEAST_REQUESTS, maximum=len(run.requests))
    found = fit_run(run, server, base, requests=count, weighting=weighting)
    for constant in found.constants:
        remark(constant.text())
    for rest, who in ((False, "all requests"), (True, "requests not fitted to")):
        errors = found.errors(rest=rest)
        if errors:
            shown = ", ".join(f"{name} {100 * errors[name]:+.1f} %" for name in _FITTED)
            remark(f"simulated by measured, {who}: {shown}")
    return found, server


_FITTED = ("makespan", "mean TPOT", "mean TTFT", "mean JCT")


def _model_facts(given: CostCommand, *, published: bool) -> ModelFacts:
    """Return what is said of a profile's model; raises ``InputError`` without its layers."""
    from orsched.calibration.profile_cost import ModelFacts, config_facts

    model, config = given.model, given.config
    found: dict[str, int | None] = {}
    shape = None
    if config is not None and model is not None:
        raise InputError(
            "a model and a configuration", field="--model", remedy="one of --model and --config"
        )
    if config is not None and not published:
        found |= config_facts(config)
    elif model is not None or config is not None:
        shape = model_shape(model, config).stored(given.weights, given.kv)
        found |= {"layers": shape.layers, "hidden": shape.hidden}
    for own in ("layers", "hidden", "dense_layers"):
        if getattr(given, own) is not None:
            found[own] = getattr(given, own)
    layers = found.pop("layers", None)
    if layers is None:
        raise InputError(
            "a profile has the times of one layer",
            field="--layers",
            remedy="how many the model has: --layers N, --config config.json or --model NAME",
        )
    return ModelFacts(
        layers,
        hidden=found.get("hidden"),
        dense_layers=found.get("dense_layers") or 0,
        expert_parallel=1 if given.ep is None else given.ep,
        activated=given.experts,
        times_a_step=_kernels(given.kernels),
        shape=shape,
    )


def _kernels(texts: tuple[str, ...]) -> dict[str, int]:
    from orsched.common.columns import whole_number

    found = read_pairs(texts, "--kernel")
    for name, times in found.items():
        try:
            whole_number(times, "--kernel")
        except InputError as error:
            remedy = "a number of times a step, such as --kernel layernorm=64"
            raise InputError(f"{name}: {error.problem}", field="--kernel", remedy=remedy) from None
    return found


def _fixed_ns(microseconds: float | None) -> int:
    if microseconds is None:
        return 0
    if not 0 <= microseconds < 1e12:
        raise InputError(
            f"{microseconds} is not a time", field="--fixed-us", remedy="microseconds, at least 0"
        )
    return round(microseconds * 1000)


def _flat(about: dict[str, Any]) -> dict[str, Any]:
    """Return the facts with what they hold in words, for a table."""
    shown = dict(about)
    for name in ("files", "not_used"):
        if name in about:
            shown[name] = ", ".join(about[name]) or "-"
    for name in ("points", "filled_in"):
        if name in about:
            shown[name] = ", ".join(f"{key} {value}" for key, value in about[name].items())
    for name in ("constants", "errors"):
        shown.pop(name, None)
    return shown
