"""In how many bits weights and caches are kept, and in which type products are computed."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from orsched.calibration.config_fields import FEW_NUMBERS, MEASURE, QUANTIZATION, require_known
from orsched.common.columns import shown, whole_number
from orsched.common.errors import InputError, known_names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


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


_AT = "quantization_config"


def read_formats(values: dict[str, Any], layers: int) -> Formats:
    """Return the formats that ``quantization_config`` states; 16 bits where it is not there.

    Raises ``InputError`` for a method or a field that is not known, or several widths in a part.
    """
    given = values.get(_AT)
    if not given:
        return IN_16_BITS
    if not isinstance(given, dict):
        raise InputError(f"{shown(given)} is not an object", field=_AT, remedy="null, or an object")
    method = str(given.get("quant_method"))
    if method not in _METHODS:
        known = ", ".join(_METHODS)
        raise _wrong(f"weights quantised by {method} are not known here", "quant_method", known)
    found, used = _METHODS[method](given)
    require_known(given, {*used, *QUANTIZATION}, f"{_AT}.")
    kept: set[str] = set()
    for field in ("modules_to_not_convert", "ignored_layers", "exclude_modules", "ignore"):
        kept |= _parts_left_out(given.get(field) or (), field, layers)
    formats = {part: BF16 if part in kept else found for part in PARTS}
    scheme = given.get("kv_cache_scheme") or given.get("kv_cache_quant_algo")
    words = f"weights of {found.bits:.3g} bits ({method})"
    return Formats(**formats, cache_bits=8 if scheme else 16, words=words)


def with_weights(formats: Formats, name: str | None, caches: str | None) -> Formats:
    """Return formats with all matrices, or the caches, in a format of another name."""
    for given, known, field in ((name, FORMATS, "weights"), (caches, CACHES, "kv")):
        if given is not None and given not in known:
            names = known_names(given, known)
            raise InputError(f"{shown(given)} is not a known format", field=field, remedy=names)
    if name is not None:
        parts: dict[str, Any] = dict.fromkeys(PARTS, FORMATS[name])
        words = "" if name == "bf16" else f"weights in {name}"
        formats = replace(formats, **parts, words=words)
    return formats if caches is None else replace(formats, cache_bits=CACHES[caches])


def _wrong(problem: str, field: str, known: str = "") -> InputError:
    remedy = f"known: {known}; {MEASURE}" if known else MEASURE
    return InputError(problem, field=f"{_AT}.{field}", remedy=remedy)


def _grouped(given: dict[str, Any]) -> tuple[Format, Iterable[str]]:
    """GPTQ and AWQ: a scale of 16 bits and a zero point for each group of numbers."""
    for field in ("lm_head", "dynamic", "modules_in_block_to_quantize"):
        if given.get(field):
            raise _wrong("layers of several widths are not known here", field)
    bits = whole_number(given.get("bits"), f"{_AT}.bits", minimum=2, maximum=8)
    group = given.get("group_size")
    size = math.inf  # one group for each column
    if group not in (None, -1):
        size = whole_number(group, f"{_AT}.group_size", minimum=1)
    return Format(bits + (16 + bits) / size, "bf16"), ("bits", "group_size")


def _modelopt(given: dict[str, Any]) -> tuple[Format, Iterable[str]]:
    algorithms = {"NVFP4": "fp4", "FP8": "fp8", "FP8_PB_WO": "fp8"}
    name = str(given.get("quant_algo"))
    if name not in algorithms:
        raise _wrong(f"{name} is not known here", "quant_algo", ", ".join(algorithms))
    used = ("quant_algo", "kv_cache_quant_algo", "group_size", "config_groups")
    return FORMATS[algorithms[name]], used


def _compressed(given: dict[str, Any]) -> tuple[Format, Iterable[str]]:
    """Compressed-tensors: one group of layers, and the width of its weights and inputs."""
    groups, at = given.get("config_groups"), "config_groups"
    one = next(iter(groups.values())) if isinstance(groups, dict) and len(groups) == 1 else None
    weights = one.get("weights") if isinstance(one, dict) else None
    if not isinstance(one, dict) or not isinstance(weights, dict):
        raise _wrong("is not one group with weights", at)
    bits = whole_number(weights.get("num_bits"), f"{_AT}.{at}.num_bits", minimum=4, maximum=8)
    group = weights.get("group_size") or -1
    size = math.inf if group == -1 else whole_number(group, f"{_AT}.{at}.group_size", minimum=1)
    kind = str(weights.get("type", "int"))
    product = {"float4": "fp4", "float8": "fp8", "int8": "int8"}.get(f"{kind}{bits}", "bf16")
    scale = 8 if kind == "float" else 16
    return Format(bits + scale / size, product if one.get("input_activations") else "bf16"), (at,)


_METHODS: dict[str, Callable[[dict[str, Any]], tuple[Format, Iterable[str]]]] = {
    "gptq": _grouped,
    "awq": _grouped,
    "fp8": lambda _: (FORMATS["fp8"], ("weight_block_size", "scale_fmt")),
    "mxfp4": lambda _: (FORMATS["mxfp4"], ()),
    "modelopt": _modelopt,
    "modelopt_fp4": _modelopt,
    "compressed-tensors": _compressed,
}
_NUMBER = re.compile(r"layers\.(\d+)\.")
_NAMES = (("attn", "attention"), ("attention", "attention"), ("shared_expert", "ffn"),
          ("experts", "experts"), ("mlp.", "ffn"))  # fmt: skip


def _parts_left_out(names: Any, field: str, layers: int) -> set[str]:
    """Return the parts that a list of modules keeps in 16 bits; ``InputError`` for half a part."""
    if not isinstance(names, (list, tuple)) or not all(isinstance(name, str) for name in names):
        raise _wrong("is not a list of names", field)
    found: dict[str, set[int]] = {}
    for name in names:
        text = name.replace("\\", "")
        part = next((part for word, part in _NAMES if word in text), None)
        gate = "gate_" in text.replace("gate_up", "")
        if part != "attention" and not gate and any(word in text for word in FEW_NUMBERS):
            continue
        if part is None:
            raise _wrong(f"it is not known which part {shown(name)} is", field)
        number = _NUMBER.search(text)
        found.setdefault(part, set()).update(range(layers) if number is None else [int(number[1])])
    for part, numbers in found.items():
        if not numbers.issuperset(range(layers)):
            raise _wrong(f"{part} has several widths, which are not known here", field)
    return set(found)
