"""What ``--gpu``, ``--model`` and ``--config`` name: GPUs and shapes of models."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from orsched.common.errors import InputError
from orsched.common.near_names import nearest

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from orsched.calibration.gpus import Gpu
    from orsched.calibration.shapes import ModelShape

T = TypeVar("T")


def gpu_named(name: str) -> Gpu:
    """Return the GPU that --gpu names; raises ``InputError`` for an unknown one."""
    from orsched.calibration.gpus import GPUS

    return _named(name, GPUS, "--gpu")


def model_named(name: str) -> ModelShape:
    """Return the shape that --model names, by its name or its short one.

    Raises ``InputError`` for an unknown one.
    """
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
