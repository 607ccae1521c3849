"""Proxy models as predictors, and their files: JSON, and the weights beside it as safetensors."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from orsched.common.columns import whole_number
from orsched.common.errors import InputError
from orsched.common.registry import attached
from orsched.files.document import require_object, write_bytes, write_text
from orsched.files.text import dump_json, read_bytes
from orsched.prediction.predictor import LengthPredictor, one_a_level, read_common, required
from orsched.prediction.proxies.network import (
    Targets,
    checked_config,
    config_of,
    forward,
    new_network,
    recipe_of,
)
from orsched.prediction.proxies.token_rows import padded, token_rows, tokens_of
from orsched.prediction.trees import float_column
from orsched.runner.worker.model_folder import blamed_on

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from orsched.prediction.data import LabelledPrompts, Prompt
    from orsched.prediction.proxies.network import Recipe
    from orsched.prediction.proxies.token_rows import Tokens

    Floats = NDArray[np.float64]


BATCH = 64


@dataclass(frozen=True, eq=False)
class ProxyPredictor(LengthPredictor):
    """An encoder with a head; ``train_proxy`` makes one.

    ``line``: logarithm of the length for a score of 0, and by how much it rises with the score; (0,
    1) where the head gives lengths.
    """

    kind = "proxy"
    recipe: Recipe  # what it was trained by
    targets: Targets  # the scale of the head
    network: Any  # on ``device``
    config: dict[str, Any]  # the encoder's checked configuration
    tokens: Tokens  # how texts become rows
    most_input: int  # tokens of a row, at most
    line: tuple[float, float]
    levels: Floats  # (k,)
    shift: Floats  # (k,), from the calibration
    longest: float  # tokens
    device: str = "cpu"

    @classmethod
    def fit(
        cls, train: LabelledPrompts, calibrate: LabelledPrompts, **options: Any
    ) -> ProxyPredictor:
        """Train on rows of ``train``, calibrate on others; options as of ``train_proxy``."""
        found: ProxyPredictor = attached("fit_proxy")(train, calibrate, **options)
        return found

    def outputs(self, prompts: Sequence[Prompt]) -> Floats:
        """Return what the head gives for each prompt; shape (n, outputs)."""
        import torch

        rows = token_rows(prompts, self.tokens, self.most_input)
        found = np.empty((len(rows), self.targets.outputs()))
        order = np.argsort([len(row) for row in rows], kind="stable")
        self.network.eval()
        for first in range(0, len(rows), BATCH):
            chosen = order[first : first + BATCH]
            numbers, mask = padded([rows[i] for i in chosen.tolist()], self.tokens.pad)
            with torch.inference_mode():
                given = forward(
                    self.network,
                    torch.from_numpy(numbers).to(self.device),
                    torch.from_numpy(mask).to(self.device),
                )
            found[chosen] = given.float().cpu().numpy()
        if not np.isfinite(found).all():
            raise InputError(
                "the model's outputs are not finite", field="weights", remedy="train again"
            )
        return found

    def log_quantiles(self, prompts: Sequence[Prompt]) -> Floats:
        """Return calibrated logarithms of quantiles."""
        logs = self.targets.logs(self.outputs(prompts), self.levels)
        return np.asarray(self.line[0] + self.line[1] * logs + self.shift, np.float64)

    def document(self) -> dict[str, Any]:
        """Refuse: its weights have a file of their own, see ``save_predictor``."""
        raise InputError(
            "a proxy model has weights in a file of their own",
            field="predictor",
            remedy="save it by itself with save_predictor",
        )

    @classmethod
    def from_document(cls, values: dict[str, Any]) -> NoReturn:
        """Refuse: its weights have a file of their own, see ``load_predictor``."""
        raise InputError(
            "a proxy model is not part of another predictor",
            field="kind",
            remedy="load it by itself",
        )


_AGAIN = "train again, or copy both files again"


def weights_path(path: str | os.PathLike[str]) -> Path:
    """Return where the weights of a predictor's file are: beside it, as .safetensors."""
    return Path(path).with_suffix(".safetensors")


def save_proxy(
    predictor: ProxyPredictor, path: str | os.PathLike[str], head: dict[str, Any]
) -> None:
    """Write the weights, then the JSON that has their hash; each file whole or not at all."""
    from safetensors.torch import save

    target = weights_path(path)
    if target == Path(path):
        raise InputError("is the weights' name", file=str(path), remedy="name a .json file")
    tensors = {
        name: tensor.detach().cpu().contiguous()
        for name, tensor in predictor.network.state_dict().items()
    }
    raw = save(tensors)
    targets = predictor.targets
    write_bytes(target, raw)
    document = {
        **head,
        **predictor.common(),
        "model": predictor.recipe.kind,
        "head": targets.head,
        "config": predictor.config,
        "most_input": predictor.most_input,
        "edges": targets.edges.tolist(),
        "middles": targets.middles.tolist(),
        "scale_longest": targets.longest,
        "line": list(predictor.line),
        "shift": predictor.shift.tolist(),
        "tokenizer": predictor.tokens.source(),
        "weights_sha256": hashlib.sha256(raw).hexdigest(),
    }
    write_text(path, dump_json(document))


def load_proxy(values: dict[str, Any], path: str | os.PathLike[str]) -> ProxyPredictor:
    """Return the predictor of a document, with the weights beside its file, on the CPU.

    Raises:
        InputError: a field is wrong, or the weights are missing, cut short, or of another file.
    """
    levels, longest = read_common(values)
    recipe = recipe_of(_text(values, "model"), _text(values, "head"))
    config_values = checked_config(
        recipe.encoder, require_object(required(values, "config"), "config")
    )
    config = config_of(recipe.encoder, config_values)
    most = whole_number(
        required(values, "most_input"),
        "most_input",
        minimum=3,
        maximum=config.max_position_embeddings,
    )
    targets = _targets(values, recipe.head)
    source = required(values, "tokenizer")
    if source is not None and not isinstance(source, str):
        raise InputError("must be a text or null", field="tokenizer", remedy=_AGAIN)
    tokens = tokens_of(source, config.vocab_size)
    line = float_column(required(values, "line"), "line")
    if len(line) != 2 or not line[1] > 0:
        raise InputError("must be two numbers, the second above 0", field="line", remedy=_AGAIN)
    shift = one_a_level(values, "shift", levels)
    network = _network(config, targets, _weights(values, weights_path(path)), weights_path(path))
    return ProxyPredictor(
        recipe, targets, network, config_values, tokens, most, (float(line[0]), float(line[1])),
        levels, shift, longest,
    )  # fmt: skip


def _targets(values: dict[str, Any], head: str) -> Targets:
    edges = float_column(required(values, "edges"), "edges")
    if (np.diff(edges, prepend=0.99) <= 0).any() or len(edges) > 1000:
        raise InputError("must increase from 1", field="edges", remedy=_AGAIN)
    middles = float_column(required(values, "middles"), "middles")
    wanted = {"regression": 1, "ordinal": len(edges) + 1}.get(head.partition("_")[0], 0)
    if len(middles) != wanted or (middles <= 0).any():
        raise InputError(f"must be {wanted} lengths", field="middles", remedy=_AGAIN)
    longest = float_column([required(values, "scale_longest")], "scale_longest")[0]
    if not 1 <= longest < 1e15:
        raise InputError("must be a number of tokens", field="scale_longest", remedy=_AGAIN)
    return Targets(head, edges, middles, float(longest))


def _weights(values: dict[str, Any], path: Path) -> dict[str, Any]:
    from safetensors.torch import load

    raw = read_bytes(path)
    if hashlib.sha256(raw).hexdigest() != required(values, "weights_sha256"):
        raise InputError(
            "is cut short, changed, or of another training", file=str(path), remedy=_AGAIN
        )
    with blamed_on(path, field="weights"):
        return dict(load(raw))


def _network(config: Any, targets: Targets, tensors: dict[str, Any], path: Path) -> Any:
    """Return the network of a file; it is made in full size only where the file has its size."""
    import torch

    with torch.device("meta"):
        wanted = new_network(config, targets.outputs(), targets.head).state_dict()
    for name in sorted(wanted.keys() | tensors.keys()):
        sides = [tuple(side[name].shape) if name in side else None for side in (tensors, wanted)]
        if sides[0] != sides[1] or tensors[name].dtype != torch.float32:
            raise InputError(
                f"{name:.100} is {sides[0]}, not float32 {sides[1]}",
                file=str(path),
                field="weights",
                remedy=_AGAIN,
            )
        if not torch.isfinite(tensors[name]).all():
            raise InputError(
                f"{name:.100} is not finite", file=str(path), field="weights", remedy=_AGAIN
            )
    with torch.random.fork_rng([]):
        network = new_network(config, targets.outputs(), targets.head)
    network.load_state_dict(tensors)
    return network


def _text(values: dict[str, Any], name: str) -> str:
    found = required(values, name)
    if not isinstance(found, str):
        raise InputError("must be a text", field=name, remedy=_AGAIN)
    return found
