"""An encoder with the head of SSJF or of MICO on its first token."""

from __future__ import annotations

from typing import Any

from orsched.prediction.proxies.encoders import encoder_width, new_encoder

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
