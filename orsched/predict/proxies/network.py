"""An encoder with the head of SSJF or of MICO on its first token."""

from __future__ import annotations

from typing import Any

from orsched.predict.proxies.encoders import encoder_width, new_encoder

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
