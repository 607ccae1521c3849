"""Loading a decoder-only language model, with attention that reads the slots' caches."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from orsched.common.errors import InputError
from orsched.runner.worker.config_json import CONFIG, folder_config
from orsched.runner.worker.presets import PRESETS, preset_config
from orsched.runner.worker.weights import folder_model

if TYPE_CHECKING:
    import torch

ANGLES = ("default", "linear", "llama3", "yarn", "dynamic")
"""Rotary embeddings whose angles do not depend on what else is in a step (within the model's
positions, for the last)."""

DTYPES = ("float64", "float32", "bfloat16", "float16")


class Shape(NamedTuple):
    """What a cache needs to know of a model."""

    layers: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    positions: int


def model_config(name: str) -> Any:
    """Return the configuration of a preset, or of the model in a folder.

    Raises:
        InputError: there is neither, or its configuration is wrong or not supported.
    """
    if name in PRESETS or not Path(name).is_dir():
        return preset_config(name)  # says what there is
    config = folder_config(Path(name))
    _require_supported(config, Path(name) / CONFIG)
    return config


def load_model(
    name: str, device: str, dtype: str, seed: int = 0, allow_pickle: bool = False
) -> Any:
    """Return a model in evaluation mode: a preset with random weights, or one from a folder.

    Args:
        name: a preset, or a folder with a model in the format of transformers; nothing is
            downloaded, and code in the folder is never run.
        device: ``cpu``, ``cuda``, ``cuda:1``.
        dtype: ``float64``, ``float32``, ``bfloat16`` or ``float16``.
        seed: of the random weights.
        allow_pickle: whether weights in a folder may be pickled; else they are safetensors.

    Raises:
        InputError: the name, the family or the type is unknown, or the folder holds no model.
    """
    import torch

    if dtype not in DTYPES:
        raise InputError(f"unknown type {dtype!r}", field="dtype", remedy=", ".join(DTYPES))
    numbers = getattr(torch, dtype)
    config = model_config(name)
    if name in PRESETS:
        model = _random_weights(config, device, numbers, seed)
    else:
        model = folder_model(Path(name), config, numbers, allow_pickle)
    return model.to(device).eval()


def shape_of(config: Any) -> Shape:
    """Return the shape of a model's cache."""
    heads = config.num_attention_heads
    return Shape(
        layers=config.num_hidden_layers,
        kv_heads=getattr(config, "num_key_value_heads", None) or heads,
        head_dim=getattr(config, "head_dim", None) or config.hidden_size // heads,
        vocabulary=config.vocab_size,
        positions=config.max_position_embeddings,
    )


def _random_weights(config: Any, device: str, numbers: torch.dtype, seed: int) -> Any:
    """Make the weights where they are needed; torch's own random stream goes on undisturbed."""
    import torch
    from transformers import AutoModelForCausalLM

    where = torch.device(device)
    with torch.random.fork_rng(devices=[where] if where.type == "cuda" else []):
        torch.manual_seed(seed)
        with where:
            return AutoModelForCausalLM.from_config(config, dtype=numbers, trust_remote_code=False)


def _require_supported(config: Any, file: Path) -> None:
    """Refuse what the worker's attention does not do."""
    angles = (getattr(config, "rope_parameters", None) or {}).get("rope_type", "default")
    if angles not in ANGLES:
        raise InputError(
            f"rotary embeddings of type {angles!r} are not supported",
            file=str(file),
            field="model",
            remedy=", ".join(ANGLES),
        )
    kinds = set(getattr(config, "layer_types", None) or ()) - {"full_attention"}
    if kinds and config.model_type != "gpt_neo":
        raise InputError(
            f"layers of type {', '.join(sorted(kinds)):.200} are not supported",
            file=str(file),
            field="model",
            remedy="a model whose layers all attend to the whole context",
        )
