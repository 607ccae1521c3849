"""What ``orsched cost`` does with a profile of kernels, a measured run, or both."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orsched.cli.artefacts import check_paths
from orsched.cli.catalogue_options import model_named, model_shape
from orsched.cli.machine_output import cost_facts
from orsched.cli.output import print_facts, remark
from orsched.cli.profile_options import refuse_without_effect
from orsched.common.errors import InputError
from orsched.common.pairs import read_pairs
from orsched.common.scalars import require_suffix

if TYPE_CHECKING:
    from pathlib import Path

    from orsched.calibration.profile_cost import ModelFacts, ProfileFiles
    from orsched.calibration.recipe import RunFit
    from orsched.calibration.runs import Server


def cost_of_profile(
    folder: Path | None,
    model: str | None,
    config: Path | None,
    output: Path | None,
    style: str,
    **options: Any,
) -> None:
    """Write and print the cost model of a profile, of a measured run, or of both."""
    from orsched.files import save_cost

    reads = [str(path) for path in (config, options["run"]) if path is not None]
    check_paths({"output": output}, reads)
    if output is not None:
        require_suffix(output, (".json",), "--output")
    refuse_without_effect(folder, options)
    base, about = _base(folder, model, config, options)
    report: dict[str, Any] = {"machine": about}
    cost: Any = base
    if options["run"] is not None:
        fitted, server = _fitted(base, options)
        cost, report["fit"] = fitted.cost, fitted.to_dict()
        about |= {"run": options["run"].name, "constants": report["fit"]["constants"]}
        about |= {"errors": report["fit"]["errors"]} | _kv_cache(server)
    if output is not None:
        save_cost(cost, output, report)
        remark(f"cost model written to {output}")
    if style == "json":
        shown = about | {"cost": {"model": cost.model, **cost.to_dict()}}
        print_facts(shown | ({"fit": report["fit"]} if "fit" in report else {}), style)
    else:
        print_facts(_flat(about) | (cost_facts(cost) if style == "table" else {}), style)


def _kv_cache(server: Server) -> dict[str, int]:
    """Return the KV cache of a server in the words of a machine, {} where it never limits.

    A simulation with the fitted cost model then has the memory that the fit had.
    """
    if server.memory_blocks is None:
        return {}
    size = server.block_tokens
    return {"kv_tokens": server.memory_blocks * size, "block_tokens": size}


def _base(
    folder: Path | None, model: str | None, config: Path | None, options: dict[str, Any]
) -> tuple[Any, dict[str, Any]]:
    """Return the cost model of a profile, or a model's shape, and what it is."""
    from orsched.calibration.profile_cost import described, find_profile, profile_cost

    if folder is None:
        shape = model_shape(model, config)
        return shape, {"kind": "shape of a model", "model": shape.title, "source": shape.source}
    try:
        files = find_profile(folder, 1 if options["tp"] is None else options["tp"])
        _require_experts(files, options)
        facts = model_facts(model, config, options)
        cost = profile_cost(files, facts, _fixed_ns(options["fixed_us"]))
    except InputError as error:
        if error.file is None and error.field in _FLAGS:
            flag = _FLAGS[error.field]
            raise InputError(error.problem, field=flag, remedy=error.remedy) from None
        raise
    about = described(cost, files, facts)
    if files.unused:
        remark(f"not used: {', '.join(files.unused)}")
    missing = {name: n for name, n in about["filled_in"].items() if n}
    if missing:
        shown = (f"{n} of {about['points'][name]} in {name}" for name, n in missing.items())
        remark(f"combinations that were not measured, filled in: {', '.join(shown)}")
    return cost, about


_FLAGS = {
    "layers": "--layers",
    "hidden": "--hidden",
    "dense_layers": "--dense-layers",
    "expert_parallel": "--ep",
    "activated": "--experts",
    "kernel": "--kernel",
}
"""Options by what they are called in Python."""


def _require_experts(files: ProfileFiles, options: dict[str, Any]) -> None:
    """Raise ``InputError`` if an option is given that a profile without experts has no use for."""
    for name in ("ep", "experts", "dense_layers"):
        if files.moe is None and options[name] is not None:
            raise InputError(
                "the profile has no experts",
                field="--" + name.replace("_", "-"),
                remedy=f"leave it out, or put moe.csv beside {files.dense}",
            )


def _fitted(base: Any, options: dict[str, Any]) -> tuple[RunFit, Server]:
    """Fit to a measured run, and say how firm the constants are and what is missed."""
    from orsched.calibration.recipe import LEAST_REQUESTS, fit_run, require_enough
    from orsched.calibration.runs import Server, read_run, recorded_settings
    from orsched.common.columns import whole_number

    names = ("clients", "memory_blocks", "block_tokens", "token_budget")
    said = {name: options[name] for name in names if options[name] is not None}
    recorded = recorded_settings(options["run"])
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
    run = read_run(options["run"])
    count, weighting = options["fit_requests"], options["weighting"] or "seconds"
    require_enough(run)
    if count is not None:
        whole_number(count, "--fit-requests", minimum=LEAST_REQUESTS, maximum=len(run.requests))
    found = fit_run(run, server, base, requests=count, weighting=weighting)
    for constant in found.constants:
        remark(constant.text())
    for rest, who in ((False, "all requests"), (True, "requests not fitted to")):
        errors = found.errors(rest=rest)
        if errors:
            shown = ", ".join(f"{name} {100 * errors[name]:+.1f} %" for name in _SHOWN)
            remark(f"simulated by measured, {who}: {shown}")
    return found, server


_SHOWN = ("makespan", "mean TPOT", "mean TTFT", "mean JCT")


def model_facts(model: str | None, config: Path | None, options: dict[str, Any]) -> ModelFacts:
    """Return what is said of a profile's model; raises ``InputError`` without its layers."""
    from orsched.calibration.profile_cost import ModelFacts, config_facts

    found: dict[str, int | None] = {}
    if config is not None and model is not None:
        raise InputError(
            "a model and a configuration", field="--model", remedy="one of --model and --config"
        )
    if config is not None:
        found |= config_facts(config)
    elif model is not None:
        shape = model_named(model)
        found |= {"layers": shape.layers, "hidden": shape.hidden}
    for own in ("layers", "hidden", "dense_layers"):
        if options[own] is not None:
            found[own] = options[own]
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
        expert_parallel=1 if options["ep"] is None else options["ep"],
        activated=options["experts"],
        times_a_step=_kernels(options["kernels"]),
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
