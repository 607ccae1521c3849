"""Models by name: the shapes of known models, with random weights.

Nothing is downloaded. A schedule says how many tokens each request yields, so the values of tokens
do not matter for the time they take; the shapes do.
"""

from __future__ import annotations

from typing import Any

from orsched.errors import InputError


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


PRESETS: dict[str, tuple[str, dict[str, Any]]] = {
    "tiny": (
        "llama",
        {
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "vocab_size": 512,
        },
    ),
    "tiny-qwen2": (
        "qwen2",
        {
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "vocab_size": 512,
        },
    ),
    "tiny-qwen3": (
        "qwen3",
        {
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 32,
            "vocab_size": 512,
        },
    ),
    "tiny-gpt2": (
        "gpt2",
        {
            "n_embd": 64,
            "n_layer": 2,
            "n_head": 4,
            "n_positions": 4096,
            "vocab_size": 512,
            "bos_token_id": None,
            "eos_token_id": None,
            "tie_word_embeddings": False,  # else random weights repeat one token for ever
        },
    ),
    "tiny-gpt-neo": (
        "gpt_neo",
        {
            "hidden_size": 64,
            "num_layers": 2,
            "num_heads": 4,
            "attention_types": [[["global", "local"], 1]],
            "window_size": 16,
            "vocab_size": 512,
            "max_position_embeddings": 4096,
            "bos_token_id": None,
            "eos_token_id": None,
            "tie_word_embeddings": False,
        },
    ),
    "small": (  # 34 million parameters: between the tests' models and real ones
        "llama",
        {
            "hidden_size": 512,
            "intermediate_size": 1536,
            "num_hidden_layers": 8,
            "num_attention_heads": 8,
            "num_key_value_heads": 4,
            "vocab_size": 8192,
        },
    ),
    # LLaMA 3.2 1B, LLaMA 3.1 8B and LLaMA 2 13B, as their published configurations say
    "1b": (
        "llama",
        {
            "hidden_size": 2048,
            "intermediate_size": 8192,
            "num_hidden_layers": 16,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "head_dim": 64,
            "vocab_size": 128_256,
            "rms_norm_eps": 1e-5,
            "rope_parameters": _llama3_angles(32.0),
            "tie_word_embeddings": True,
        },
    ),
    "8b": (
        "llama",
        {
            "hidden_size": 4096,
            "intermediate_size": 14_336,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "vocab_size": 128_256,
            "rms_norm_eps": 1e-5,
            "rope_parameters": _llama3_angles(8.0),
        },
    ),
    "13b": (
        "llama",
        {
            "hidden_size": 5120,
            "intermediate_size": 13_824,
            "num_hidden_layers": 40,
            "num_attention_heads": 40,
            "num_key_value_heads": 40,
            "vocab_size": 32_000,
            "rms_norm_eps": 1e-5,
        },
    ),
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
            remedy=f"a folder with a model, or one of {', '.join(PRESETS)}",
        )
    kind, arguments = PRESETS[name]
    rotary = {} if kind in ("gpt2", "gpt_neo") else {"max_position_embeddings": LONGEST_CONTEXT}
    return AutoConfig.for_model(kind, **rotary, **arguments)
