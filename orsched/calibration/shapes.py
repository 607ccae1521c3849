"""Shapes of public models, from their published ``config.json``, and what a token costs in them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from orsched.calibration.config_fields import TIED_BY_DEFAULT, layer_bits, require_fields
from orsched.common.columns import whole_number
from orsched.common.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

_FIELDS = {
    "layers": "num_hidden_layers",
    "hidden": "hidden_size",
    "heads": "num_attention_heads",
    "ffn": "intermediate_size",
    "vocabulary": "vocab_size",
}
_MOST = 2**24


@dataclass(frozen=True)
class ModelShape:
    """A decoder of the LLaMA family: gated feed-forward layers, grouped heads of keys.

    Attributes:
        name: in the catalogue.
        title: as its makers call it.
        layers, hidden, heads, kv_heads, ffn, vocabulary: of ``config.json``.
        head_size: numbers of a head.
        tied: whether the output layer is the embedding.
        source: where the numbers are from.
        layer_bits: bits of a number in the layers' matrices; all else has 16.
    """

    name: str
    title: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    ffn: int
    vocabulary: int
    head_size: int
    tied: bool = False
    source: str = ""
    layer_bits: float = 16

    @property
    def layer_weights(self) -> int:
        """Numbers in the layers' matrices: what every token is multiplied with."""
        attention = 2 * self.hidden * self.head_size * (self.heads + self.kv_heads)
        return self.layers * (attention + 3 * self.hidden * self.ffn)

    @property
    def head_weights(self) -> int:
        """Numbers in the output layer."""
        return self.hidden * self.vocabulary

    @property
    def weights(self) -> int:
        """All numbers; those of norms and biases, below a thousandth, are left out."""
        return self.layer_weights + self.head_weights * (1 if self.tied else 2)

    @property
    def read_bytes(self) -> int:
        """Bytes of the layers and the output layer, which every step reads."""
        return round(self.layer_weights * self.layer_bits / 8) + 2 * self.head_weights

    @property
    def weight_bytes(self) -> int:
        """Bytes of all numbers."""
        return self.read_bytes + (0 if self.tied else 2 * self.head_weights)

    @property
    def kv_numbers(self) -> int:
        """Numbers that a token leaves in the caches."""
        return 2 * self.layers * self.kv_heads * self.head_size

    @property
    def attended_flops(self) -> int:
        """Arithmetic of one token attending to one other, in all layers."""
        return 4 * self.layers * self.heads * self.head_size

    @classmethod
    def from_config(cls, values: dict[str, Any], name: str, source: str) -> Self:
        """Read a ``config.json`` of the LLaMA family (also Mistral, Qwen 2 and 3).

        Every field is used, known to change nothing (``config_fields.IRRELEVANT``), or refused.

        Raises:
            InputError: a field is missing, not a whole number or out of range, or it says what the
                shape does not hold: experts, windows, compressed caches, unknown weights.
        """
        require_fields(values)
        bits, weights = layer_bits(values)
        found = {}
        for own, theirs in _FIELDS.items():
            if theirs not in values:
                raise InputError(
                    "the field is missing",
                    field=theirs,
                    remedy="give the config.json of a decoder of the LLaMA family",
                )
            found[own] = whole_number(values[theirs], theirs, minimum=1, maximum=_MOST)
        heads = found["heads"]
        given = values.get("num_key_value_heads")
        kv_heads = heads if given is None else given
        size = values.get("head_dim") or found["hidden"] // heads
        tied = values.get("model_type") in TIED_BY_DEFAULT
        return cls(
            name=name,
            title=name,
            kv_heads=whole_number(kv_heads, "num_key_value_heads", minimum=1, maximum=heads),
            head_size=whole_number(size, "head_dim", minimum=1, maximum=_MOST),
            tied=bool(values.get("tie_word_embeddings", tied)),
            source=f"{source}, {weights}" if weights else source,
            layer_bits=bits,
            **found,
        )


def read_config(path: Path) -> ModelShape:
    """Return the shape of a model's ``config.json`` (or of the folder that holds it).

    Raises ``InputError`` as ``from_config``, or for what cannot be read.
    """
    from orsched.files.text import locating, parse_json, read_text

    file = path / "config.json" if path.is_dir() else path
    with locating(file):
        values = parse_json(read_text(file))
        if not isinstance(values, dict):
            raise InputError("is not an object", remedy="give a model's config.json")
        return ModelShape.from_config(values, file.resolve().parent.name, "config.json")


def _shape(name: str, title: str, source: str, *numbers: int, tied: bool = False) -> ModelShape:
    layers, hidden, heads, kv_heads, ffn, vocabulary, *rest = numbers
    head_size = rest[0] if rest else hidden // heads
    text = f"config.json of {source}, huggingface.co, November 2026"
    return ModelShape(
        name, title, layers, hidden, heads, kv_heads, ffn, vocabulary, head_size, tied, text
    )


MODELS = {
    shape.name: shape
    for shape in (
        _shape(
            "llama3-1b", "Llama 3.2 1B", "meta-llama/Llama-3.2-1B",
            16, 2048, 32, 8, 8192, 128_256, tied=True,
        ),
        _shape(
            "llama3-3b", "Llama 3.2 3B", "meta-llama/Llama-3.2-3B",
            28, 3072, 24, 8, 8192, 128_256, tied=True,
        ),
        _shape(
            "llama3-8b", "Llama 3.1 8B", "meta-llama/Llama-3.1-8B",
            32, 4096, 32, 8, 14_336, 128_256,
        ),
        _shape(
            "llama3-70b", "Llama 3.1 70B", "meta-llama/Llama-3.1-70B",
            80, 8192, 64, 8, 28_672, 128_256,
        ),
        _shape(
            "llama2-7b", "Llama 2 7B", "meta-llama/Llama-2-7b-hf",
            32, 4096, 32, 32, 11_008, 32_000,
        ),
        _shape(
            "llama2-13b", "Llama 2 13B", "meta-llama/Llama-2-13b-hf",
            40, 5120, 40, 40, 13_824, 32_000,
        ),
        _shape(
            "llama-65b", "LLaMA 65B", "huggyllama/llama-65b",
            80, 8192, 64, 64, 22_016, 32_000,
        ),
        _shape(
            "mistral-7b", "Mistral 7B v0.3", "mistralai/Mistral-7B-v0.3",
            32, 4096, 32, 8, 14_336, 32_768,
        ),
        _shape(
            "qwen2.5-7b", "Qwen 2.5 7B", "Qwen/Qwen2.5-7B",
            28, 3584, 28, 4, 18_944, 152_064,
        ),
        _shape(
            "qwen2.5-14b", "Qwen 2.5 14B", "Qwen/Qwen2.5-14B",
            48, 5120, 40, 8, 13_824, 152_064,
        ),
        _shape(
            "qwen2.5-32b", "Qwen 2.5 32B", "Qwen/Qwen2.5-32B",
            64, 5120, 40, 8, 27_648, 152_064,
        ),
        _shape(
            "qwen2.5-72b", "Qwen 2.5 72B", "Qwen/Qwen2.5-72B",
            80, 8192, 64, 8, 29_568, 152_064,
        ),
    )
}  # fmt: skip
"""By name."""

SHORT = {
    "1b": "llama3-1b",
    "3b": "llama3-3b",
    "8b": "llama3-8b",
    "13b": "llama2-13b",
    "70b": "llama3-70b",
}
"""The names of the runner's presets, and sizes, stand for these models."""
