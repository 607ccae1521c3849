"""Models by name: the shapes of known models, with random weights.

Nothing is downloaded. A schedule says how many tokens each request yields, so the values of tokens
do not matter for the time they take; the shapes do.
"""

from __future__ import annotations

from typing import Any

from orsched.common.errors import InputError
from orsched.common.near_names import known_names


def _llama3_angles(factor: float) -> dict[str, Any]:
    """Return the rotary embedding of LLaMA 3.1 and 3.2."""
    return {
        "rope_type": "llama3",
        "rope_theta": 500_000.0,
        "factor": factor,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }


def _shape(
    hidden: int, mlp: int, layers: int, heads: int, kv_heads: int, vocabulary: int, **more: Any
) -> dict[str, Any]:
    """Return the configuration of a LLaMA or Qwen model."""
    return {
        "hidden_size": hidden,
        "intermediate_size": mlp,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "vocab_size": vocabulary,
        **more,
    }


_TINY = _shape(64, 128, 2, 4, 2, 512)
_GPT = {
    "vocab_size": 512,
    "bos_token_id": None,
    "eos_token_id": None,
    "tie_word_embeddings": False,  # else random weights repeat one token forever
}

PRESETS: dict[str, tuple[str, dict[str, Any]]] = {
    "tiny": ("llama", _TINY),
    "tiny-qwen2": ("qwen2", _TINY),
    "tiny-qwen3": ("qwen3", {**_TINY, "head_dim": 32}),
    "tiny-gpt2": ("gpt2", {**_GPT, "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 4096}),
    "tiny-gpt-neo": (
        "gpt_neo",
        {
            **_GPT,
            "hidden_size": 64,
            "num_layers": 2,
            "num_heads": 4,
            "attention_types": [[["global", "local"], 1]],
            "window_size": 16,
            "max_position_embeddings": 4096,
        },
    ),
    # 34 million parameters: between the tests' models and real ones
    "small": ("llama", _shape(512, 1536, 8, 8, 4, 8192)),
    # LLaMA 3.2 1B, LLaMA 3.1 8B and LLaMA 2 13B, as their published configurations say
    "1b": (
        "llama",
        {
            **_shape(2048, 8192, 16, 32, 8, 128_256, rms_norm_eps=1e-5),
            "head_dim": 64,
            "rope_parameters": _llama3_angles(32.0),
            "tie_word_embeddings": True,
        },
    ),
    "8b": (
        "llama",
        {
            **_shape(4096, 14_336, 32, 32, 8, 128_256, rms_norm_eps=1e-5),
            "rope_parameters": _llama3_angles(8.0),
        },
    ),
    "13b": ("llama", _shape(5120, 13_824, 40, 40, 40, 32_000, rms_norm_eps=1e-5)),
}
"""Name -> (model type of transformers, arguments of its configuration)."""

LONGEST_CONTEXT = 32_768
"""Positions of the presets whose positions are rotations, which cost no memory."""


def preset_config(name: str) -> Any:
    """Return the transformers configuration of a preset.

    Raises:
        InputError: the name is unknown.
    """
    from transformers import AutoConfig

    if name not in PRESETS:
        raise InputError(
            f"unknown model {name!r}",
            field="model",
            remedy=known_names(name, PRESETS, "a folder with a model, or one of "),
        )
    kind, arguments = PRESETS[name]
    rotary = {} if kind in ("gpt2", "gpt_neo") else {"max_position_embeddings": LONGEST_CONTEXT}
    return AutoConfig.for_model(kind, **rotary, **arguments)
