"""``config.json`` of a model's folder, validated before transformers reads it.

Its numbers decide how much is built and how long that takes; code that it names is never run.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from orsched.common.errors import InputError
from orsched.files.text import locating, parse_json, read_text

FAMILIES = ("llama", "qwen2", "qwen3", "gpt2", "gpt_neo")
"""Model types whose tokens are tested against ``generate``."""

MAX_LAYERS = 512
MAX_BYTES = 1 << 20  # of ``config.json``; the largest ones published have a few thousand
MAX_TABLE = 1 << 24
MAX_WIDTH = 1 << 18

Check = Callable[[Any], bool]

CONFIG = "config.json"
REMEDY = "a folder with config.json and weights, in the format of transformers"


def _whole(least: int, most: int) -> Check:
    return lambda value: type(value) is int and least <= value <= most


def _number(least: float, most: float) -> Check:
    return lambda value: type(value) in (int, float) and least <= value <= most


def _text(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= 100


def _flag(value: Any) -> bool:
    return type(value) is bool


def _tokens(value: Any) -> bool:
    each = value if isinstance(value, list) else [value]
    return len(each) <= 1000 and all(type(item) is int and -1 <= item < MAX_TABLE for item in each)


def _kinds(value: Any) -> bool:
    return isinstance(value, list) and len(value) <= MAX_LAYERS and all(map(_text, value))


def _attention(value: Any) -> bool:
    """Whether this is GPT-Neo's ``[[["global", "local"], 12], ...]``."""
    return (
        isinstance(value, list)
        and len(value) <= MAX_LAYERS
        and all(
            isinstance(item, list)
            and len(item) == 2
            and _kinds(item[0])
            and _whole(1, MAX_LAYERS)(item[1])
            for item in value
        )
    )


def _angles(value: Any) -> bool:
    """Whether this describes rotary embeddings: words, switches and numbers above 0."""
    number = _number(1e-12, 1e18)
    return isinstance(value, dict) and all(
        all(map(number, item))
        if isinstance(item, list)
        else _text(item) or _flag(item) or item is None or number(item)
        for item in value.values()
    )


class _Field(NamedTuple):
    """What a field may be: what must hold, what that is in words, and whether null may stand."""

    holds: Check
    words: str
    may_be_null: bool = False


def _size(most: int, least: int = 1, may_be_null: bool = False) -> _Field:
    return _Field(_whole(least, most), f"a whole number from {least} to {most:,}", may_be_null)


_SHARE = _Field(_number(0, 1), "a number from 0 to 1")
_SWITCH = _Field(_flag, "true or false")
_WORD = _Field(_text, "a word")
_TOKEN = _Field(_tokens, f"tokens below {MAX_TABLE:,}", True)
_ROTARY = _Field(_angles, "words and finite numbers above 0", True)

FIELDS: dict[str, _Field] = {
    "vocab_size": _size(MAX_TABLE),
    "hidden_size": _size(MAX_WIDTH),
    "n_embd": _size(MAX_WIDTH),
    "intermediate_size": _size(4 * MAX_WIDTH, may_be_null=True),
    "n_inner": _size(4 * MAX_WIDTH, may_be_null=True),
    "num_hidden_layers": _size(MAX_LAYERS),
    "n_layer": _size(MAX_LAYERS),
    "num_layers": _size(MAX_LAYERS),
    "num_attention_heads": _size(4096),
    "n_head": _size(4096),
    "num_heads": _size(4096),
    "num_key_value_heads": _size(4096, may_be_null=True),
    "head_dim": _size(4096, may_be_null=True),
    "max_position_embeddings": _size(1 << 27),
    "n_positions": _size(MAX_TABLE),
    "window_size": _size(1 << 27),
    "sliding_window": _size(1 << 27, may_be_null=True),
    "max_window_layers": _size(1 << 27, 0),
    "hidden_act": _WORD,
    "activation_function": _WORD,
    "rms_norm_eps": _SHARE,
    "layer_norm_epsilon": _SHARE,
    "initializer_range": _SHARE,
    "attention_dropout": _SHARE,
    "resid_pdrop": _SHARE,
    "embd_pdrop": _SHARE,
    "attn_pdrop": _SHARE,
    "resid_dropout": _SHARE,
    "embed_dropout": _SHARE,
    "tie_word_embeddings": _SWITCH,
    "attention_bias": _SWITCH,
    "mlp_bias": _SWITCH,
    "use_sliding_window": _SWITCH,
    "scale_attn_weights": _SWITCH,
    "scale_attn_by_inverse_layer_idx": _SWITCH,
    "reorder_and_upcast_attn": _SWITCH,
    "add_cross_attention": _SWITCH,
    "rope_theta": _Field(_number(1e-3, 1e18), "a finite number above 0"),
    "partial_rotary_factor": _SHARE,
    "rope_scaling": _ROTARY,
    "rope_parameters": _ROTARY,
    "attention_types": _Field(_attention, "[[[KIND, ...], TIMES], ...]", True),
    "layer_types": _Field(_kinds, f"at most {MAX_LAYERS} words", True),
    "pad_token_id": _TOKEN,
    "bos_token_id": _TOKEN,
    "eos_token_id": _TOKEN,
}
"""What is taken from ``config.json``; all else says nothing of how these families compute."""

ALIASES = {
    "gpt2": {
        "hidden_size": "n_embd",
        "max_position_embeddings": "n_positions",
        "num_attention_heads": "n_head",
        "num_hidden_layers": "n_layer",
    },
    "gpt_neo": {"num_attention_heads": "num_heads", "num_hidden_layers": "num_layers"},
}


def folder_config(folder: Path) -> Any:
    """Return the transformers configuration of the model in a folder."""
    path = folder / CONFIG
    values = read_object(path)
    with locating(path):
        kind = values.get("model_type")
        if kind not in FAMILIES:
            code = "; code of its own is never run" if "auto_map" in values else ""
            raise InputError(
                f"models of type {kind!r:.80} are not supported{code}",
                field="model_type",
                remedy=", ".join(FAMILIES),
            )
        if values.get("quantization_config") is not None:
            raise InputError(
                "quantised weights are not supported",
                field="quantization_config",
                remedy="take the model with its own weights",
            )
        kept = _checked(kind, values)
        _require_heads(kept)
        from transformers import AutoConfig

        with blamed_on(path, field=None):
            return AutoConfig.for_model(kind, **kept)


def read_object(path: Path, most: int = MAX_BYTES) -> dict[str, Any]:
    """Return the object in a JSON file of a bounded size."""
    if not path.is_file():
        raise InputError("no such file", file=str(path), field="model", remedy=REMEDY)
    if path.stat().st_size > most:
        raise InputError(f"more than {most:,} bytes", file=str(path), remedy=REMEDY)
    with locating(path):
        values = parse_json(read_text(path))
        if not isinstance(values, dict):
            raise InputError("holds no object", remedy=REMEDY)
    return values


def _checked(kind: str, values: dict[str, Any]) -> dict[str, Any]:
    """Return the fields that say how the model computes; raises ``InputError`` for wrong ones."""
    kept: dict[str, Any] = {}
    for name, field in FIELDS.items():
        if name not in values:
            continue
        value = values[name]
        if not (field.may_be_null and value is None) and not field.holds(value):
            raise InputError(f"{value!r:.80} is not {field.words}", field=name, remedy="correct it")
        kept[ALIASES.get(kind, {}).get(name, name)] = value
    if kind == "gpt_neo" and kept.get("attention_types") is not None:
        count = sum(len(kinds) * times for kinds, times in kept["attention_types"])
        if count != kept.get("num_layers", 24):
            raise InputError(
                f"is for {count} layers",
                field="attention_types",
                remedy="give one kind for each layer",
            )
    return kept


def _require_heads(kept: dict[str, Any]) -> None:
    """Refuse a width that the heads do not divide, and heads that rotations do not fit into."""
    names = ("num_attention_heads", "n_head", "num_heads")
    heads = next((kept[name] for name in names if name in kept), None)
    width = kept.get("hidden_size", kept.get("n_embd"))
    groups = kept.get("num_key_value_heads")
    if heads is None:
        return
    if width is not None and kept.get("head_dim") is None and width % heads:
        raise InputError(
            f"{width} is not a multiple of {heads} heads",
            field="hidden_size",
            remedy="correct one of both",
        )
    if groups is not None and heads % groups:
        raise InputError(
            f"{heads} heads are not a multiple of {groups}",
            field="num_key_value_heads",
            remedy="correct one of both",
        )
    if kept.get("head_dim") is not None and kept["head_dim"] % 2:
        raise InputError(
            f"{kept['head_dim']} is odd", field="head_dim", remedy="give an even number"
        )
    if "vocab_size" in kept and kept.get("pad_token_id") is not None:
        pad = kept["pad_token_id"]
        if not isinstance(pad, int) or not -1 <= pad < kept["vocab_size"]:
            raise InputError(
                f"{pad} is not a token of the model",
                field="pad_token_id",
                remedy="give a token of the vocabulary, or null",
            )


@contextmanager
def blamed_on(path: Path, field: str | None) -> Iterator[None]:
    """Turn what transformers, safetensors or torch raise, but short memory, into ``InputError``."""
    import torch

    try:
        yield
    except (InputError, MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        text = " ".join(str(error).split()) or "no words"
        raise InputError(
            f"transformers loads no model: {type(error).__name__}: {text:.300}",
            file=str(path),
            field=field,
            remedy=REMEDY,
        ) from None


MAX_INDEX_BYTES = 1 << 26
INDEX = ".index.json"
SAFE, PICKLED = "model.safetensors", "pytorch_model.bin"
_SHARD = re.compile(r"[\w.-]{1,200}")


def folder_model(folder: Path, config: Any, numbers: Any, allow_pickle: bool = False) -> Any:
    """Return the model in a folder with its weights, of torch's type ``numbers``, on the CPU.

    Torch is asked to read pickled weights, where they are allowed, without running anything.
    """
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING

    files = weight_files(folder, allow_pickle)
    state: dict[str, Any] = {}
    for path in files:
        with blamed_on(path, field="model"):
            state |= _tensors(path)
    with blamed_on(folder, "model"):
        _require_enough(folder, config, sum(tensor.numel() for tensor in state.values()))
        model, found = MODEL_FOR_CAUSAL_LM_MAPPING[type(config)].from_pretrained(
            None, config=config, state_dict=state, dtype=numbers, output_loading_info=True
        )
        missing = sorted(found["missing_keys"])
        if missing:
            raise _of_another_model(folder, f"{len(missing)} are missing, such as {missing[0]}")
    return model


def weight_files(folder: Path, allow_pickle: bool = False) -> list[Path]:
    """Return the files of a model's weights, each of them in the folder."""
    for name in (SAFE, PICKLED):
        if name == PICKLED:
            _require_no_pickle(folder, allow_pickle)
        if (folder / name).is_file():
            return [folder / name]
        index = folder / (name + INDEX)
        if index.is_file():
            return _indexed(index, Path(name).suffix)
    raise InputError(
        f"the folder has no weights: no {SAFE}", file=str(folder), field="model", remedy=REMEDY
    )


def _require_no_pickle(folder: Path, allowed: bool) -> None:
    """Refuse pickled weights, unless they are allowed."""
    found = [p for kind in ("*.bin", "*.pt", "*.pth", "*.ckpt") for p in sorted(folder.glob(kind))]
    if found and not allowed:
        raise InputError(
            f"the weights are pickled ({found[0].name:.80}), a format that can run code",
            file=str(folder),
            field="model",
            remedy="convert them to safetensors, or add --allow-pickle; in Python "
            "allow_pickle=True",
        )


def _indexed(index: Path, suffix: str) -> list[Path]:
    names = read_object(index, MAX_INDEX_BYTES).get("weight_map")
    values = list(dict.fromkeys(names.values())) if isinstance(names, dict) else []
    for name in values or [None]:
        plain = isinstance(name, str) and _SHARD.fullmatch(name) and name.endswith(suffix)
        if not plain or not (index.parent / str(name)).is_file():
            raise InputError(
                f"{name!r:.80} is not a weights file beside it",
                file=str(index),
                field="weight_map",
                remedy="copy the model again",
            )
    return [index.parent / str(name) for name in values]


def _tensors(path: Path) -> dict[str, Any]:
    import torch
    from safetensors.torch import load_file

    if path.suffix == ".safetensors":
        return dict(load_file(path))
    read = torch.load(path, map_location="cpu", weights_only=True)
    if not isinstance(read, dict) or not all(torch.is_tensor(item) for item in read.values()):
        raise ValueError("holds something else than tensors by name")
    return read


def _require_enough(folder: Path, config: Any, elements: int) -> None:
    """Refuse files with fewer weights than the model has, before it is built in full size."""
    import torch
    from transformers import AutoModelForCausalLM

    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, trust_remote_code=False)
    needed = sum(parameter.numel() for parameter in model.parameters())
    if elements < needed:
        raise _of_another_model(folder, f"{elements:,} for {needed:,} parameters")


def _of_another_model(folder: Path, problem: str) -> InputError:
    return InputError(
        f"the weights are not those of {CONFIG}: {problem}",
        file=str(folder),
        field="model",
        remedy="copy the model again",
    )
