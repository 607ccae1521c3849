"""Options of ``orsched cost --from-profile`` and ``--fit``, and which of them go together."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from orsched.common.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

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
    click.option(
        "--fit",
        "run",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        metavar="RUN",
        help="A measured run (.csv, requests.jsonl, vllm bench result): fit the profile or shape.",
    ),
    click.option("--clients", type=int, metavar="J", help="Of --fit: most requests at once."),
    click.option(
        "--memory-blocks",
        type=int,
        metavar="N",
        show_default="memory never limits",
        help="Of --fit: KV-cache blocks of the server.",
    ),
    click.option(
        "--block-tokens", type=int, metavar="N", show_default="16", help="Of --fit: of a block."
    ),
    click.option(
        "--token-budget", type=int, metavar="N", show_default="2048", help="Of --fit: of a step."
    ),
    click.option(
        "--fit-requests",
        type=int,
        metavar="N",
        show_default="half, 20 at least",
        help="Of --fit: to how many of the first requests; the others are scored.",
    ),
    click.option(
        "--weighting",
        type=click.Choice(["seconds", "relative"]),
        show_default="seconds",
        help="Of --fit: what is made small.",
    ),
)

_OF_A_RUN = (
    "clients",
    "memory_blocks",
    "block_tokens",
    "token_budget",
    "fit_requests",
    "weighting",
)
_OF_A_PROFILE = ("layers", "tp", "hidden", "ep", "experts", "dense_layers", "fixed_us", "kernels")


def PROFILE(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of a profile to a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def refuse_profile(options: dict[str, Any]) -> None:
    """Raise ``InputError`` if an option is given that a data sheet has no use for."""
    _refuse(options, tuple(options), "of a profile or a run", "--from-profile DIR, or --fit RUN")


def refuse_without_effect(folder: Path | None, options: dict[str, Any]) -> None:
    """Raise ``InputError`` for an option of a run without one, or of a profile without one."""
    if options["run"] is None:
        _refuse(options, _OF_A_RUN, "of --fit", "--fit RUN")
    if folder is None:
        _refuse(options, _OF_A_PROFILE, "of a profile", "--from-profile DIR")


def _refuse(options: dict[str, Any], names: tuple[str, ...], whose: str, remedy: str) -> None:
    for name in names:
        if options[name] not in (None, ()):
            flag = "--" + {"kernels": "kernel"}.get(name, name).replace("_", "-")
            raise InputError(f"is {whose}", field=flag, remedy=f"with {remedy}")
