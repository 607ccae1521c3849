"""Options of ``orsched cost --from-profile``, and what it does with them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from orsched.cli.artefacts import check_paths
from orsched.cli.machine_output import cost_facts
from orsched.cli.output import print_facts, remark
from orsched.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from orsched.hardware.profile_cost import ModelFacts

_OPTIONS = (
    click.option(
        "--from-profile",
        type=click.Path(exists=True, file_okay=False, path_type=Path),
        metavar="DIR",
        help="A profile of kernels: tp<N>/dense.csv, attention.csv, per_sequence.csv, moe.csv.",
    ),
    click.option("--layers", type=int, metavar="N", help="Of a profile's model; or --config."),
    click.option("--tp", type=int, metavar="N", show_default="1", help="GPUs of a profile."),
    click.option("--hidden", type=int, metavar="N", help="Hidden size, for all-reduce by bytes."),
    click.option("--ep", type=int, metavar="N", show_default="1", help="Expert parallelism."),
    click.option(
        "--experts",
        type=int,
        metavar="N",
        show_default="on average, of random choices",
        help="Experts that a step activates.",
    ),
    click.option("--dense-layers", type=int, metavar="N", help="Layers without experts."),
    click.option(
        "--kernel",
        "kernels",
        multiple=True,
        metavar="NAME=N",
        help="How often a step runs a kernel; 0: not at all. Repeatable.",
    ),
    click.option(
        "--fixed-us",
        type=float,
        metavar="US",
        show_default="0",
        help="What a step takes besides, on the host.",
    ),
)


def PROFILE(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of a profile to a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def cost_of_profile(
    folder: Path,
    model: str | None,
    config: Path | None,
    output: Path | None,
    style: str,
    **options: Any,
) -> None:
    """Write and print the cost model of a profile."""
    from orsched.files import save_cost
    from orsched.hardware.profile_cost import described, profile_cost
    from orsched.hardware.profile_files import find_profile

    check_paths({"output": output}, [] if config is None else [str(config)])
    files = find_profile(folder, 1 if options["tp"] is None else options["tp"])
    facts = model_facts(model, config, options)
    cost = profile_cost(files, facts, _fixed_ns(options["fixed_us"]))
    about = described(cost, files, facts)
    if files.unused:
        remark(f"not used: {', '.join(files.unused)}")
    missing = {name: n for name, n in about["filled_in"].items() if n}
    if missing:
        shown = ", ".join(
            f"{n} of {about['points'][name]} in {name}" for name, n in missing.items()
        )
        remark(f"combinations that were not measured, filled in: {shown}")
    if output is not None:
        save_cost(cost, output, {"machine": about})
        remark(f"cost model written to {output}")
    if style == "json":
        about = {**about, "cost": {"model": cost.model, **cost.to_dict()}}
    print_facts(about if style != "table" else _flat(about) | cost_facts(cost), style)


def model_facts(model: str | None, config: Path | None, options: dict[str, Any]) -> ModelFacts:
    """Return what is said of a profile's model; raises ``InputError`` without its layers."""
    from orsched.hardware import MODELS
    from orsched.hardware.profile_cost import ModelFacts, config_facts
    from orsched.hardware.shapes import SHORT

    found: dict[str, int | None] = {}
    if config is not None:
        found |= config_facts(config)
    elif model is not None:
        name = SHORT.get(model, model)
        if name not in MODELS:
            known = ", ".join(MODELS)
            raise InputError(f"{model!r} is not in the catalogue", field="--model", remedy=known)
        found |= {"layers": MODELS[name].layers, "hidden": MODELS[name].hidden}
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
    found = {}
    for text in texts:
        name, _, number = text.partition("=")
        if not name or not number.isdigit():
            raise InputError(
                f"{text!r} is not NAME=N", field="--kernel", remedy="such as --kernel layernorm=64"
            )
        found[name] = int(number)
    return found


def _fixed_ns(microseconds: float | None) -> int:
    if microseconds is None:
        return 0
    if not 0 <= microseconds < 1e12:
        raise InputError(
            f"{microseconds} is no time", field="--fixed-us", remedy="microseconds, at least 0"
        )
    return round(microseconds * 1000)


def _flat(about: dict[str, Any]) -> dict[str, Any]:
    """Return the facts with what they hold in words, for a table."""
    shown = dict(about)
    shown["files"] = ", ".join(about["files"])
    shown["not_used"] = ", ".join(about["not_used"]) or "-"
    for name in ("points", "filled_in"):
        shown[name] = ", ".join(f"{key} {value}" for key, value in about[name].items())
    return shown
