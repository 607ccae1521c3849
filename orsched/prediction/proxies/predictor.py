"""A proxy model as a predictor: its outputs, calibrated, are distributions over lengths."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from orsched.common.errors import InputError
from orsched.common.registry import attached
from orsched.prediction.predictor import LengthPredictor
from orsched.prediction.proxies.network import forward
from orsched.prediction.proxies.token_rows import padded, token_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from orsched.prediction.data import LabelledPrompts
    from orsched.prediction.prompt import Prompt
    from orsched.prediction.proxies.recipes import Recipe
    from orsched.prediction.proxies.targets import Targets
    from orsched.prediction.proxies.token_rows import Tokens

    Floats = NDArray[np.float64]

BATCH = 64


@dataclass(frozen=True, eq=False)
class ProxyPredictor(LengthPredictor):
    """An encoder with a head; ``train_proxy`` makes one.

    Attributes:
        recipe: what it was trained by.
        targets: the scale of the head.
        network: on ``device``.
        config: the encoder's checked configuration.
        tokens: how texts become rows.
        most_input: tokens of a row, at most.
        line: logarithm of the length for a score of 0, and by how much it rises with the score;
            (0, 1) where the head gives lengths.
        levels: (k,).
        shift: (k,), from the calibration.
        longest: tokens.
        device: where the network is.
    """

    kind = "proxy"
    recipe: Recipe
    targets: Targets
    network: Any
    config: dict[str, Any]
    tokens: Tokens
    most_input: int
    line: tuple[float, float]
    levels: Floats
    shift: Floats
    longest: float
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
            "a proxy model stands in no other predictor", field="kind", remedy="load it by itself"
        )
