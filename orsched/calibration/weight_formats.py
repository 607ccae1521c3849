"""In how many bits weights and caches are kept, and in which type products are computed."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from orsched.calibration.config_fields import MEASURE, require_known
from orsched.common.columns import shown, whole_number
from orsched.common.errors import InputError
from orsched.common.near_names import known_names

if TYPE_CHECKING:
    from collections.abc import Iterable


class Format(NamedTuple):
    """How the numbers of matrices are kept."""

    bits: float  # of a number, with its share of the scales
    product: str  # the type that they are multiplied in: bf16, fp8, int8, mxfp4 or fp4


BF16 = Format(16, "bf16")
FORMATS = {
    "bf16": BF16,
    "fp8": Format(8, "fp8"),
    "int8": Format(8, "int8"),
    "fp4": Format(4.5, "fp4"),  # NVFP4: a scale of 8 bits for 16 numbers
    "mxfp4": Format(4.25, "mxfp4"),  # a scale of 8 bits for 32 numbers
    "int4": Format(4 + 20 / 128, "bf16"),  # GPTQ and AWQ: scale and zero point for 128 numbers
}
"""By name: what ``weights`` takes."""
CACHES = {"bf16": 16, "fp8": 8}
"""Bits of a number in the caches, by name."""


@dataclass(frozen=True)
class Formats:
    """The formats of a model's parts; embeddings and the output layer have 16 bits."""

    attention: Format = BF16
    ffn: Format = BF16  # layers without experts, and experts that every token passes
    experts: Format = BF16
    cache_bits: int = 16
    words: str = ""  # of the weights, where they do not have 16 bits


IN_16_BITS = Formats()
PARTS = ("attention", "ffn", "experts")


def named_format(name: str, field: str = "weights") -> Format:
    """Return the format of a name; raises ``InputError``."""
    if name not in FORMATS:
        raise InputError(
            f"{shown(name)} is not a format of weights",
            field=field,
            remedy=known_names(name, FORMATS),
        )
    return FORMATS[name]


_AT = "quantization_config"
_KNOWN = frozenset({
    "quant_method", "desc_act", "sym", "damp_percent", "static_groups", "true_sequential",
    "model_name_or_path", "model_file_base_name", "version", "zero_point", "checkpoint_format",
    "meta", "dataset", "tokenizer", "batch_size", "block_name_to_quantize", "cache_block_outputs",
    "exllama_config", "max_input_length", "model_seqlen", "module_name_preceding_first_block",
    "pad_token_id", "use_cuda_fp16", "use_exllama", "backend", "format", "pack_dtype",
    "is_marlin_format", "fuse_max_seq_len", "do_fuse", "disable_exllama", "fmt",
    "activation_scheme", "quantization_status", "global_compression_ratio", "producer",
    "sparsity_config", "transform_config",
})  # fmt: skip
_LEFT_OUT = ("modules_to_not_convert", "ignored_layers", "exclude_modules", "ignore")


def read_formats(values: dict[str, Any], layers: int) -> Formats:
    """Return the formats that ``quantization_config`` states; 16 bits where it is not there.

    Raises ``InputError`` for a method or a field that is not known, or several widths in a part.
    """
    given = values.get(_AT)
    if not given:
        return IN_16_BITS
    if not isinstance(given, dict):
        raise InputError(f"{shown(given)} is not an object", field=_AT, remedy="null, or an object")
    method = given.get("quant_method")
    readers = {
        "gptq": _grouped, "awq": _grouped, "fp8": _fp8, "mxfp4": _mxfp4, "modelopt": _modelopt,
        "modelopt_fp4": _modelopt, "compressed-tensors": _compressed,
    }  # fmt: skip
    if not isinstance(method, str) or method not in readers:
        raise InputError(
            f"weights quantised by {shown(method)} are not known here",
            field=f"{_AT}.quant_method",
            remedy=f"the known methods are {', '.join(readers)}; {MEASURE}",
        )
    found, used = readers[method](given)
    require_known(given, {*used, *_KNOWN, *_LEFT_OUT, "kv_cache_scheme"}, f"{_AT}.")
    kept: set[str] = set()
    for field in _LEFT_OUT:
        kept |= _parts_left_out(given.get(field) or (), f"{_AT}.{field}", layers)
    formats = {part: BF16 if part in kept else found for part in PARTS}
    scheme = given.get("kv_cache_scheme") or given.get("kv_cache_quant_algo")
    words = f"weights of {found.bits:.3g} bits ({method})"
    return Formats(**formats, cache_bits=8 if scheme else 16, words=words)


def with_weights(formats: Formats, name: str | None, caches: str | None) -> Formats:
    """Return formats with all matrices, or the caches, in a format of another name."""
    if name is not None:
        found = named_format(name)
        words = "" if found == BF16 else f"weights in {name}"
        parts: dict[str, Any] = dict.fromkeys(PARTS, found)
        formats = replace(formats, **parts, words=words)
    if caches is not None:
        if caches not in CACHES:
            raise InputError(
                f"{shown(caches)} is not a type of caches",
                field="kv",
                remedy=known_names(caches, CACHES),
            )
        formats = replace(formats, cache_bits=CACHES[caches])
    return formats


def _grouped(given: dict[str, Any]) -> tuple[Format, Iterable[str]]:
    """GPTQ and AWQ: a scale of 16 bits and a zero point for each group of numbers."""
    for field in ("lm_head", "dynamic", "modules_in_block_to_quantize"):
        if given.get(field):
            raise InputError(
                "layers of several widths are not known here",
                field=f"{_AT}.{field}",
                remedy=MEASURE,
            )
    bits = whole_number(given.get("bits"), f"{_AT}.bits", minimum=2, maximum=8)
    group = given.get("group_size")
    size = 0
    if group not in (None, -1):  # else one group for each column
        size = whole_number(group, f"{_AT}.group_size", minimum=1)
    return Format(bits + ((16 + bits) / size if size else 0), "bf16"), ("bits", "group_size")


def _fp8(given: dict[str, Any]) -> tuple[Format, Iterable[str]]:
    return FORMATS["fp8"], ("weight_block_size", "scale_fmt")


def _mxfp4(given: dict[str, Any]) -> tuple[Format, Iterable[str]]:
    return FORMATS["mxfp4"], ()


def _modelopt(given: dict[str, Any]) -> tuple[Format, Iterable[str]]:
    algorithms = {"NVFP4": "fp4", "FP8": "fp8", "FP8_PB_WO": "fp8"}
    name = given.get("quant_algo")
    if name not in algorithms:
        raise InputError(
            f"{shown(name)} is not known here",
            field=f"{_AT}.quant_algo",
            remedy=f"{', '.join(algorithms)}; {MEASURE}",
        )
    used = ("quant_algo", "kv_cache_quant_algo", "group_size", "config_groups")
    return FORMATS[algorithms[name]], used


def _compressed(given: dict[str, Any]) -> tuple[Format, Iterable[str]]:
    """Compressed-tensors: one group of layers, and the width of its weights and inputs."""
    groups = given.get("config_groups")
    at = f"{_AT}.config_groups"
    one = list(groups.values()) if isinstance(groups, dict) else []
    if len(one) != 1 or not isinstance(one[0], dict) or not isinstance(one[0].get("weights"), dict):
        raise InputError("is not one group with weights", field=at, remedy=MEASURE)
    weights, inputs = one[0]["weights"], one[0].get("input_activations")
    bits = whole_number(weights.get("num_bits"), f"{at}.weights.num_bits", minimum=4, maximum=8)
    kind, size = weights.get("type", "int"), weights.get("group_size") or 0
    size = 0 if size == -1 else whole_number(size, f"{at}.weights.group_size")
    scale = 8 if kind == "float" else 16
    product = {("float", 4): "fp4", ("float", 8): "fp8", ("int", 8): "int8"}.get((kind, bits))
    return Format(bits + (scale / size if size else 0), (inputs and product) or "bf16"), (
        "config_groups",
    )


_NUMBER = re.compile(r"layers\.(\d+)\.")
_SMALL = (
    "lm_head", "embed", "router", "norm", "vision", "visual", "mm_projector", "multi_modal",
    "mtp", "eh_proj", "shared_head", "indexer", "e_score", "conv1d", "mlp.gate", "in_proj_a",
    "in_proj_b", "shared_expert_gate", ".bias", "vt.",
)  # fmt: skip
"""Parts of the names of modules that have few numbers, or 16 bits in any case."""


def _parts_left_out(names: Any, field: str, layers: int) -> set[str]:
    """Return the parts that a list of modules keeps in 16 bits; ``InputError`` for half a part."""
    if not isinstance(names, (list, tuple)) or not all(isinstance(name, str) for name in names):
        raise InputError("is not a list of names", field=field, remedy="a list of modules")
    whole: set[str] = set()
    some: dict[str, set[int]] = {}
    for name in names:
        text = name.removeprefix("re:").replace("\\", "")
        small = any(word in text for word in _SMALL) and "gate_" not in text.replace("gate_up", "")
        part = _part_of(text)
        if small and part != "attention":
            continue
        if part is None:
            raise InputError(
                f"it is not known which part {shown(name)} is", field=field, remedy=MEASURE
            )
        number = _NUMBER.search(text)
        if number is None:
            whole.add(part)
        else:
            some.setdefault(part, set()).add(int(number[1]))
    for part, found in some.items():
        if part not in whole and len({n for n in found if n < layers}) < layers:
            raise InputError(
                f"layers of several widths are not known here: {part} of {len(found)} layers",
                field=field,
                remedy=MEASURE,
            )
    return whole | set(some)


def _part_of(text: str) -> str | None:
    if "attn" in text or "attention" in text:
        return "attention"
    if "shared_expert" in text:
        return "ffn"
    if "experts" in text:
        return "experts"
    return "ffn" if "mlp." in text else None
