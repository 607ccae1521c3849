"""The fields of a ``config.json``: which are used, change nothing, or are refused."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from orsched.common.columns import shown, whole_number
from orsched.common.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Collection


_TABLE: dict[str, Any] = json.loads(
    files("orsched.calibration").joinpath("tables", "fields.json").read_text("utf-8")
)
FAMILIES: dict[str, str] = _TABLE["families"]
"""Decoders with gated feed-forward layers of three matrices: model type -> name of the class."""
USED, IRRELEVANT, QUANTIZATION = (
    frozenset(_TABLE[name]) for name in ("used", "irrelevant", "quantization")
)
"""Fields that are read; that change neither sizes nor times; and of ``quantization_config``."""
FEW_NUMBERS: tuple[str, ...] = tuple(_TABLE["few_numbers"])
"""Parts of the names of modules that have few numbers, or 16 bits in any case."""
TIED_BY_DEFAULT = ("gemma", "cohere")
"""Families whose output layer is the embedding unless the file says otherwise."""
MEASURE = (
    "measure its steps (orsched calibrate --template) or its kernels (orsched cost --from-profile)"
)
REFUSED = {
    "audio_config": "a data sheet has no times of models beyond one decoder of text",
    "is_encoder_decoder": "a data sheet has no times of models beyond one decoder of text",
    "quantization": "this form of quantised weights is not known",
    "compression_config": "this form of quantised weights is not known",
}
"""Fields that change sizes or times in a way that the shape does not hold, and why."""
_DTYPES = ("bfloat16", "float16", "float32")  # types that engines serve in 16 bits


def require_fields(values: dict[str, Any]) -> None:
    """Raise ``InputError`` for the first field that the shape of a model does not hold.

    A field that is null, false, 0 or empty is off.
    """
    for field, problem in REFUSED.items():
        if values.get(field):
            raise InputError(problem, field=field, remedy=MEASURE)
    _require_family(values)
    dtype = values.get("dtype") or values.get("torch_dtype")
    if dtype is not None and dtype not in _DTYPES:
        field = "dtype" if values.get("dtype") else "torch_dtype"
        raise InputError(
            f"{shown(dtype)} is not a type of 16 bits", field=field, remedy=", ".join(_DTYPES)
        )
    require_known(values, USED | IRRELEVANT, "")


def require_known(values: dict[str, Any], known: Collection[str], prefix: str) -> None:
    """Raise ``InputError`` for the first field that is on and not known."""
    for field, value in values.items():
        if value and field not in known:
            raise InputError(
                "it is not known whether this field changes sizes or times",
                field=f"{prefix}{field}",
                remedy="remove it if it changes neither, else give --model with a shape of the "
                "catalogue",
            )


def _require_family(values: dict[str, Any]) -> None:
    kind, classes = values.get("model_type"), values.get("architectures")
    named = classes[0] if isinstance(classes, list) and classes else None
    names = {f"{name}For{what}" for name in FAMILIES.values() for what in _HEADS}
    if (kind or named) and kind not in FAMILIES and named not in names:
        raise InputError(
            f"{shown(named or kind)} is not a known decoder with gated feed-forward layers",
            field="architectures" if named else "model_type",
            remedy=f"{MEASURE}; known model types: {', '.join(FAMILIES)}",
        )


_HEADS = ("CausalLM", "ConditionalGeneration")


def layer_kinds(values: dict[str, Any], layers: int) -> list[str]:
    """Return the kind of attention of each layer: ``full``, ``window`` or ``linear``.

    Raises ``InputError`` for other kinds, or a number of them that is not that of the layers.
    """
    for field, known in _ALONE.items():
        each = values.get(field) or ()
        if any(one != known for one in (each if isinstance(each, (list, tuple)) else [each])):
            raise InputError(f"only {known!r} is known", field=field, remedy=MEASURE)
    given, interval = values.get("layer_types"), values.get("full_attention_interval")
    if given:
        kinds = [_KINDS.get(kind) if isinstance(kind, str) else None for kind in given]
        if None in kinds:
            raise InputError(
                f"layers of the type {shown(given[kinds.index(None)])} have no times here",
                field="layer_types",
                remedy=f"{', '.join(_KINDS)}; {MEASURE}",
            )
        if len(kinds) != layers:
            raise InputError(
                f"{len(kinds)} types for {layers} layers",
                field="layer_types",
                remedy="one type for each of num_hidden_layers",
            )
        return [kind or "" for kind in kinds]
    if interval:
        every = whole_number(interval, "full_attention_interval", minimum=1)
        return ["full" if (layer + 1) % every == 0 else "linear" for layer in range(layers)]
    if window_of(values) is None:
        return ["full"] * layers
    first = values.get("max_window_layers") or 0
    full = whole_number(first, "max_window_layers") if values.get("use_sliding_window") else 0
    return ["full" if layer < full else "window" for layer in range(layers)]


_KINDS = {
    "full_attention": "full", "sliding_attention": "window", "linear_attention": "linear",
    "deepseek_sparse_attention": "full", "indexed_attention": "full",
}  # fmt: skip


_ALONE = {"attn_type_list": 1, "indexer_types": "full", "index_topk_freq": 1}
"""Fields of which one value alone is known, in all layers."""


def window_of(values: dict[str, Any]) -> int | None:
    """Return the tokens that layers with a window see; None where contexts are never longer."""
    window, longest = values.get("sliding_window"), values.get("max_position_embeddings")
    if not window or not values.get("use_sliding_window", True):
        return None
    window = whole_number(window, "sliding_window", minimum=1, maximum=2**30)
    if longest is not None and window >= whole_number(longest, "max_position_embeddings"):
        return None
    return window


def dense_layers(values: dict[str, Any], layers: int) -> int:
    """Return how many layers have no experts, by the rules of DeepSeek, Qwen and Llama 4."""
    if isinstance(values.get("mlp_layer_types"), list):
        return int(values["mlp_layer_types"].count("dense"))
    first = whole_number(values.get("first_k_dense_replace") or 0, "first_k_dense_replace")
    every, interleave, freq = (
        whole_number(values.get(name) or 1, name, minimum=1)
        for name in ("decoder_sparse_step", "interleave_moe_layer_step", "moe_layer_freq")
    )
    alone = values.get("mlp_only_layers") or []
    if not isinstance(alone, list):
        raise InputError("is not a list", field="mlp_only_layers", remedy="a list of layers")
    return sum(
        layer < first
        or layer in alone
        or (layer + 1) % every > 0
        or (layer + 1) % interleave > 0
        or layer % freq > 0
        for layer in range(layers)
    )
