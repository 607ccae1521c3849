"""Encoders of transformers from a checked configuration, with random weights or a folder's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orsched.common.errors import InputError, unavailable
from orsched.files.text import locating
from orsched.runner.worker.model_folder import CONFIG, blamed_on, read_object, weight_files

if TYPE_CHECKING:
    from pathlib import Path


_WHOLE = {
    "bert": {
        "vocab_size": 1 << 20, "hidden_size": 8192, "num_hidden_layers": 128,
        "num_attention_heads": 256, "intermediate_size": 1 << 16, "max_position_embeddings": 8192,
        "type_vocab_size": 16,
    },
    "distilbert": {
        "vocab_size": 1 << 20, "dim": 8192, "n_layers": 128, "n_heads": 256,
        "hidden_dim": 1 << 16, "max_position_embeddings": 8192,
    },
}  # fmt: skip
"""Whole numbers of a configuration, and the most that each may be."""

_SHARES = {
    "bert": (
        "hidden_dropout_prob", "attention_probs_dropout_prob", "layer_norm_eps",
        "initializer_range",
    ),
    "distilbert": ("dropout", "attention_dropout", "initializer_range"),
}  # fmt: skip
_WORDS = {"bert": ("hidden_act",), "distilbert": ("activation",)}
_ACTIVATIONS = ("gelu", "relu", "gelu_new", "silu")
_FLAGS = {"bert": (), "distilbert": ("sinusoidal_pos_embds",)}

SMALL: dict[str, dict[str, Any]] = {
    "bert": {
        "vocab_size": 1024, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
        "intermediate_size": 64, "max_position_embeddings": 512,
    },
    "distilbert": {
        "vocab_size": 1024, "dim": 32, "n_layers": 1, "n_heads": 2, "hidden_dim": 64,
        "max_position_embeddings": 512,
    },
}  # fmt: skip
"""Configurations that train within seconds on a CPU."""

FULL: dict[str, dict[str, Any]] = {
    "bert": {"vocab_size": 30522},
    "distilbert": {"vocab_size": 30522},
}
"""BERT-base and DistilBERT: the defaults of transformers."""


def checked_config(encoder: str, values: dict[str, Any]) -> dict[str, Any]:
    """Return what says how an encoder computes; ``InputError`` names a field out of range."""
    kept: dict[str, Any] = {}
    for name, most in _WHOLE[encoder].items():
        if name in values:
            value = values[name]
            if type(value) is not int or not 1 <= value <= most:
                raise _wrong(value, name, f"a whole number from 1 to {most:,}")
            kept[name] = value
    for name in _SHARES[encoder]:
        if name in values:
            if type(values[name]) not in (int, float) or not 0 <= values[name] < 1:
                raise _wrong(values[name], name, "a number from 0 to below 1")
            kept[name] = values[name]
    for name in _WORDS[encoder]:
        if name in values:
            if values[name] not in _ACTIVATIONS:
                raise _wrong(values[name], name, "one of " + ", ".join(_ACTIVATIONS))
            kept[name] = values[name]
    for name in _FLAGS[encoder]:
        if name in values:
            if type(values[name]) is not bool:
                raise _wrong(values[name], name, "true or false")
            kept[name] = values[name]
    return _fitting(encoder, kept)


def folder_values(folder: Path, encoder: str) -> dict[str, Any]:
    """Return the checked configuration of a model's folder; raises ``InputError`` with the file."""
    path = folder / CONFIG
    values = read_object(path)
    with locating(path):
        if values.get("model_type") != encoder:
            code = "; code of its own is never run" if "auto_map" in values else ""
            raise InputError(
                f"is of type {values.get('model_type')!r:.80}, not {encoder}{code}",
                field="model_type",
                remedy=f"give the folder of a {encoder} model",
            )
        return checked_config(encoder, values)


def config_of(encoder: str, values: dict[str, Any]) -> Any:
    """Return the transformers configuration of checked values."""
    try:
        from transformers import AutoConfig
    except ImportError as error:
        missing = "transformers is needed for proxy models: pip install 'orsched[runner]'"
        raise unavailable(error, missing) from None
    return AutoConfig.for_model(encoder, **values)


def new_encoder(config: Any) -> Any:
    """Return an encoder with random weights, without a pooler, on the current device."""
    from transformers import BertModel, DistilBertModel

    if config.model_type == "bert":
        return BertModel(config, add_pooling_layer=False)
    return DistilBertModel(config)


def encoder_width(config: Any) -> int:
    """Return how many numbers the encoder gives for a token."""
    return int(config.hidden_size)


def folder_weights(folder: Path, config: Any) -> dict[str, Any]:
    """Return the encoder's tensors in a folder, by its own names for them.

    Heads and poolers beside them are left; older names of normalisations are understood. Raises
    ``InputError``: there are none, they are pickled, damaged, missing or of another shape.
    """
    from safetensors.torch import load_file

    try:
        files = weight_files(folder)
    except InputError as error:
        remedy = "give a folder with model.safetensors; pickled weights are not read"
        raise InputError(error.problem, file=error.file, field=error.field, remedy=remedy) from None
    state: dict[str, Any] = {}
    for path in files:
        with blamed_on(path, field="model"):
            state |= load_file(path)
    prefix = config.model_type + "."
    plain = {_name(name.removeprefix(prefix)): tensor for name, tensor in state.items()}
    wanted = _shapes(config)
    for name, shape in wanted.items():
        found = tuple(plain[name].shape) if name in plain else "missing"
        if found != shape:
            raise InputError(
                f"the weights are not those of {CONFIG}: {name} is {found}, not {shape}",
                file=str(folder),
                field="model",
                remedy="copy the model again",
            )
    return {name: plain[name].float() for name in wanted}


def _shapes(config: Any) -> dict[str, tuple[int, ...]]:
    """Return the shapes of an encoder's tensors, without making it."""
    import torch

    with torch.device("meta"):
        return {name: tuple(t.shape) for name, t in new_encoder(config).state_dict().items()}


def _name(name: str) -> str:
    return name.replace("LayerNorm.gamma", "LayerNorm.weight").replace(
        "LayerNorm.beta", "LayerNorm.bias"
    )


def _fitting(encoder: str, kept: dict[str, Any]) -> dict[str, Any]:
    width, heads = ("hidden_size", "num_attention_heads")
    if encoder == "distilbert":
        width, heads = ("dim", "n_heads")
    if kept.get(width, 768) % kept.get(heads, 12):
        raise _wrong(kept.get(width), width, f"a multiple of {kept.get(heads, 12)} heads")
    if kept.get("vocab_size", 30522) < 8:
        raise _wrong(kept["vocab_size"], "vocab_size", "at least 8")
    if kept.get("max_position_embeddings", 512) < 3:
        raise _wrong(kept["max_position_embeddings"], "max_position_embeddings", "at least 3")
    return kept


def _wrong(value: object, name: str, wanted: str) -> InputError:
    return InputError(f"{value!r:.80} is not {wanted}", field=name, remedy="copy the model again")
