"""Loading a decoder-only language model, with attention that reads the slots' caches."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from orsched.common.errors import InputError, known_names
from orsched.runner.worker.model_folder import CONFIG, blamed_on, folder_config, folder_model

if TYPE_CHECKING:
    import torch


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
    """Return the transformers configuration of a preset."""
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


def settled(device: str) -> str:
    """Return a device's name with the index that some of torch wants (``cuda``: the current)."""
    import torch

    chosen = torch.device(device)
    if chosen.type == "cuda" and chosen.index is None:
        return f"cuda:{torch.cuda.current_device()}"
    return device


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
    """Return the configuration of a preset, or of the model in a folder."""
    if name in PRESETS or not Path(name).is_dir():
        return preset_config(name)  # says what there is
    config = folder_config(Path(name))
    _require_supported(config, Path(name) / CONFIG)
    return config


def load_model(
    name: str, device: str, dtype: str, seed: int = 0, allow_pickle: bool = False
) -> Any:
    """Return a model in evaluation mode: a preset with random weights, or one from a folder.

    The folder is in the format of transformers; nothing is downloaded, and code in it is never run.
    Its weights are safetensors unless they may be pickled. ``dtype`` is ``float64``, ``float32``,
    ``bfloat16`` or ``float16``.
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


def model_on_paper(name: str, dtype: str) -> Any:
    """Return a model without its weights: a preset, or one from a folder."""
    import torch
    from transformers import AutoModelForCausalLM

    config = model_config(name)
    with torch.device("meta"), blamed_on(Path(name), "model"):
        return AutoModelForCausalLM.from_config(
            config, dtype=getattr(torch, dtype), trust_remote_code=False
        )


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
