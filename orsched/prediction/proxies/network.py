"""Networks of SSJF and MICO: an encoder, heads on its first token, and their targets."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.common.columns import whole_number
from orsched.common.errors import InputError, known_names, unavailable
from orsched.files.text import locating
from orsched.prediction.distribution import class_of
from orsched.prediction.evaluation import PERCENTILES
from orsched.runner.worker.model_folder import CONFIG, blamed_on, read_object, weight_files

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from orsched.common.columns import IntColumn

    Floats = NDArray[np.float64]


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


REGRESSION = ("regression_l1", "regression_mse")
ORDINAL = ("ordinal_l1", "ordinal_mse")
SSJF_HEADS = (*REGRESSION, *ORDINAL, "classes", "binary")
"""The variants of SSJF's head (arXiv 2404.08509, Table 2)."""

HEADS = (*SSJF_HEADS, "buckets", "ranks")


@dataclass(frozen=True)
class Phase:
    """A part of a training."""

    epochs: int  # passes over the rows, at most
    rate: float  # of AdamW at the start; it falls linearly to 0 over the phase
    frozen: bool = False  # whether the encoder stays as it is, and the head alone is trained


@dataclass(frozen=True)
class Recipe:
    """How a proxy model is trained."""

    kind: str  # its name
    encoder: str  # ``bert`` or ``distilbert``
    head: str  # one of ``HEADS``
    phases: tuple[Phase, ...]  # one after the other
    batch: int  # rows a step
    most_input: int = 512  # tokens read of a prompt, its last, with the first and last mark
    patience: int = 2  # a phase ends after so many epochs without a better held-out loss
    below: int | None = None  # rows of 2 to ``below - 1`` tokens are trained on; None: all


RECIPES = {
    "bert_ssjf": Recipe(
        "bert_ssjf", "bert", "regression_l1", (Phase(3, 1e-5), Phase(3, 1e-4, frozen=True)), 16
    ),
    "distilbert_mico": Recipe("distilbert_mico", "distilbert", "buckets", (Phase(3, 5e-5),), 32),
    "bert_ranker": Recipe(
        "bert_ranker", "bert", "ranks", (Phase(3, 1e-5), Phase(3, 1e-4, frozen=True)), 16
    ),
}
"""The papers' numbers; the ranker has SSJF's."""


def recipe_of(kind: str, head: str | None = None, **changes: Any) -> Recipe:
    """Return a recipe of ``RECIPES`` with another head of SSJF or other numbers.

    ``head``: of ``SSJF_HEADS`` for ``bert_ssjf``; None: regression with L1. ``changes`` replace
    fields of ``Recipe``. Raises ``InputError``: unknown kind or head, number out of range.
    """
    if kind not in RECIPES:
        remedy = known_names(str(kind), list(RECIPES), "one of: ")
        raise InputError(f"{kind!r:.60} is not a proxy model", field="kind", remedy=remedy)
    found = RECIPES[kind]
    if head is not None:
        allowed = SSJF_HEADS if kind == "bert_ssjf" else (found.head,)
        if head not in allowed:
            remedy = known_names(str(head), list(allowed), "one of: ")
            raise InputError(f"{head!r:.60} is not a head of {kind}", field="head", remedy=remedy)
        found = replace(found, head=head)
    found = replace(found, **{name: value for name, value in changes.items() if value is not None})
    for name, least, most in (
        ("batch", 1, 4096), ("most_input", 3, 4096), ("patience", 1, 1000),
    ):  # fmt: skip
        whole_number(getattr(found, name), name, minimum=least, maximum=most)
    if found.below is not None:
        whole_number(found.below, "below", minimum=3)
    return found


MICO_BUCKETS = 10


@dataclass(frozen=True, eq=False)
class Targets:
    """The scale of a head.

    ``middles`` in tokens: (c,), what stands for a class in ordinal regression; (1,), what one unit
    of a regression is; empty for the others.
    """

    head: str  # one of ``HEADS``
    edges: Floats  # (c - 1,) tokens where classes end, increasing; none for regression and ranks
    middles: Floats
    longest: float  # tokens

    def outputs(self) -> int:
        """Return how many numbers the head gives: one a class, else one."""
        return len(self.edges) + 1 if self.in_classes() else 1

    def in_classes(self) -> bool:
        """Return whether the head gives a probability to each class."""
        return self.head in ("classes", "binary", "buckets")

    def labels(self, lengths: IntColumn) -> Floats:
        """Return what the head is to give: the class, or a real number; shape (n,)."""
        if self.head in REGRESSION:
            return np.asarray(lengths / self.middles[0], np.float64)
        if self.head == "ranks":
            return lengths.astype(np.float64)
        return class_of(lengths, self.edges).astype(np.float64)

    def logs(self, outputs: Floats, levels: Floats) -> Floats:
        """Return logarithms of quantiles, before calibration; (n, k) from (n, outputs).

        Classes: inside a class the logarithm is linear in the probability. Real numbers: the same
        at all levels. Ranks: the score itself.
        """
        if self.in_classes():
            return self._quantiles(outputs, levels)
        values = outputs[:, 0]
        if self.head in REGRESSION:
            values = np.log(np.maximum(values * self.middles[0], 1.0))
        elif self.head in ORDINAL:
            places = np.arange(len(self.middles), dtype=np.float64)
            values = np.interp(values, places, np.log(self.middles))
        return np.repeat(values[:, None], len(levels), axis=1)

    def _quantiles(self, outputs: Floats, levels: Floats) -> Floats:
        shares = np.exp(outputs - outputs.max(axis=1, keepdims=True))
        shares /= shares.sum(axis=1, keepdims=True)
        up_to = np.hstack([np.zeros((len(shares), 1)), np.cumsum(shares, axis=1)])
        top = max(self.longest, float(self.edges.max(initial=1.0)))
        ends = np.log(np.concatenate(([1.0], self.edges, [top])))
        return np.array([np.interp(levels, row, ends) for row in up_to]).reshape(-1, len(levels))


def targets_for(head: str, lengths: IntColumn) -> Targets:
    """Return the scale of a head for the lengths that are trained on.

    SSJF's five classes end at the percentiles 25, 50, 75 and 99, its two at the median; MICO's ten
    buckets are ``floor(length / (longest / 10))``. A regression's unit is the mean length, so that
    a head that starts near 0 is not thousands of steps away. Raises ``InputError`` where all
    lengths are in one class.
    """
    longest = float(lengths.max())
    nothing = np.zeros(0)
    if head in REGRESSION:
        return Targets(head, nothing, np.array([lengths.mean()]), longest)
    if head == "ranks":
        return Targets(head, nothing, nothing, longest)
    if head == "buckets":
        # Lengths are whole: the largest below each multiple of the width ends its bucket.
        edges = np.ceil(np.arange(1, MICO_BUCKETS) * longest / MICO_BUCKETS) - 1
    else:
        edges = np.percentile(lengths, (50,) if head == "binary" else PERCENTILES)
    edges = np.unique(edges[(edges >= 1) & (edges < longest)])
    if not len(edges):
        raise InputError(
            "all lengths are in one class", field="output_tokens", remedy="give other lengths"
        )
    place = class_of(lengths, edges)
    middles = nothing
    if head in ORDINAL:
        middles = np.array([np.median(_some(lengths, place == c)) for c in range(len(edges) + 1)])
    return Targets(head, edges.astype(np.float64), middles, longest)


def _some(lengths: IntColumn, wanted: NDArray[np.bool_]) -> IntColumn:
    return lengths[wanted] if wanted.any() else lengths


SSJF_WIDTH = 128


def new_network(config: Any, outputs: int, head: str) -> Any:
    """Return a network with parts ``encoder`` and ``head``, with random weights.

    SSJF: width to 128, 128 to 128, 128 to outputs, with ReLU between (its published code; without
    the 25 inputs that name the serving model, of which there is one here). MICO: DistilBERT's own,
    width to width, ReLU, dropout 0.2, to outputs.
    """
    from torch import nn

    width = encoder_width(config)
    if head == "buckets":
        layers = [nn.Linear(width, width), nn.ReLU(), nn.Dropout(0.2), nn.Linear(width, outputs)]
    else:
        layers = [
            nn.Linear(width, SSJF_WIDTH), nn.ReLU(), nn.Linear(SSJF_WIDTH, SSJF_WIDTH), nn.ReLU(),
            nn.Linear(SSJF_WIDTH, outputs),
        ]  # fmt: skip
    return nn.ModuleDict({"encoder": new_encoder(config), "head": nn.Sequential(*layers)})


def forward(network: Any, numbers: Any, mask: Any) -> Any:
    """Return the head's outputs for padded rows of tokens; (n, outputs)."""
    found = network["encoder"](input_ids=numbers, attention_mask=mask).last_hidden_state
    return network["head"](found[:, 0])


def sample_loss(head: str, outputs: Any, labels: Any, shares: Any, weights: Any = None) -> Any:
    """Return the mean loss of a batch in which some prompts have several samples.

    A row is a sample: a prompt's outputs stand once for each of its samples, whose ``shares`` add
    up to 1, so that each prompt counts as much as another. Ranks: pairs of different prompts count
    by the product of their shares; those of one prompt have one score and nothing to learn.
    """
    from torch.nn import functional

    if head in ("classes", "binary", "buckets"):
        each = functional.cross_entropy(outputs, labels.long(), weight=weights, reduction="none")
        if weights is not None:
            return (each * shares).sum() / (weights[labels.long()] * shares).sum()
        return (each * shares).sum() / shares.sum()
    values = outputs[:, 0]
    if head == "ranks":
        gaps = values[:, None] - values[None, :]
        counted = (labels[:, None] > labels[None, :]) * shares[:, None] * shares[None, :]
        return (functional.softplus(-gaps) * counted).sum() / counted.sum().clamp_min(1e-12)
    gaps = values - labels
    each = gaps.abs() if head.endswith("_l1") else gaps * gaps
    return (each * shares).sum() / shares.sum()


def loss_of(head: str, outputs: Any, labels: Any, weights: Any = None) -> Any:
    """Return the mean loss of a batch.

    Cross entropy for classes; L1 or the square for real numbers; for ranks the logistic loss of
    the differences of all pairs of the batch that differ in length (RankNet, Burges et al. 2005).
    """
    from torch.nn import functional

    if head in ("classes", "binary", "buckets"):
        return functional.cross_entropy(outputs, labels.long(), weight=weights)
    values = outputs[:, 0]
    if head == "ranks":
        longer = labels[:, None] > labels[None, :]
        gaps = (values[:, None] - values[None, :])[longer]
        return functional.softplus(-gaps).mean() if len(gaps) else values.sum() * 0.0
    if head.endswith("_l1"):
        return functional.l1_loss(values, labels)
    return functional.mse_loss(values, labels)
