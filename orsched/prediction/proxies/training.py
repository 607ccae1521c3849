"""Training of a proxy model: encoder, rows, loop, calibration."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.common.columns import whole_number
from orsched.common.errors import InputError, unavailable
from orsched.prediction.data import by_prompt
from orsched.prediction.predictor import LEVELS, log_lengths, shifts
from orsched.prediction.proxies.loop import Rows, Training, drawing
from orsched.prediction.proxies.network import (
    FULL,
    SMALL,
    Recipe,
    Targets,
    checked_config,
    config_of,
    folder_values,
    folder_weights,
    new_network,
    recipe_of,
    targets_for,
)
from orsched.prediction.proxies.proxy_file import ProxyPredictor
from orsched.prediction.proxies.token_rows import Tokens, token_rows, tokenizer_text, tokens_of
from orsched.runner.worker.language_model import settled

if TYPE_CHECKING:
    import os

    from numpy.typing import NDArray

    from orsched.prediction.data import LabelledPrompts

    Floats = NDArray[np.float64]


HELD_OUT = 0.1  # share of the training conversations that decide when to stop


def train_proxy(
    data: LabelledPrompts, kind: str = "bert_ssjf", *, seed: int = 0, **options: Any
) -> ProxyPredictor:
    """Return a proxy model trained on 60 % of the conversations and calibrated on 20 %.

    Args:
        data: prompts with the lengths of their replies.
        kind: ``bert_ssjf``, ``distilbert_mico`` or ``bert_ranker``.
        seed: decides the parts, the random weights, the order of rows and dropout.
        options: those of ``fit_proxy``.

    Raises:
        InputError: an unknown kind or option value, a part without rows, or a wrong folder.
        MissingDependencyError: torch and transformers are needed and not installed.
    """
    fit, held = data.part("train", seed), data.part("calibrate", seed)
    return fit_proxy(fit, held, kind=kind, seed=seed, **options)


def fit_proxy(
    train: LabelledPrompts,
    calibrate: LabelledPrompts,
    *,
    kind: str = "bert_ssjf",
    head: str | None = None,
    model: str | os.PathLike[str] | dict[str, Any] = "small",
    tokenizer: str | os.PathLike[str] | None = None,
    seed: int = 0,
    device: str = "auto",
    checkpoint: str | os.PathLike[str] | None = None,
    every: int = 500,
    progress: Any = None,
    **changes: Any,
) -> ProxyPredictor:
    """Return a proxy model trained on rows and calibrated on others.

    Args:
        train: a tenth of its conversations decides when to stop. Several replies of one prompt are
            samples of its length: the prompt is one row of a batch, whose loss is their mean.
        calibrate: rows that shift the quantiles, and for the ranker turn scores into lengths.
        kind: of ``recipes.RECIPES``.
        head: of ``recipes.SSJF_HEADS``.
        model: a folder with ``config.json`` and safetensors; ``small`` or ``full`` for random
            weights of a small or the papers' configuration; or values of one.
        tokenizer: a ``tokenizer.json``; None: the folder's, else the rule of ``RuleTokens``.
        seed: of all that is drawn.
        device: ``auto``, ``cpu``, ``cuda``, or as torch says.
        checkpoint: a file from which training goes on if it exists; it is not removed.
        every: steps between checkpoints, besides one after each epoch.
        progress: called with a few words on what is being done.
        changes: fields of ``Recipe``: phases, batch, most_input, patience, below.
    """
    whole_number(seed, "seed", remedy="give a whole number of at least 0")
    whole_number(every, "every", minimum=1)
    recipe = recipe_of(kind, head, **changes)
    chosen = _device(device)
    train, stop = _parts(_kept(train, recipe.below), seed)
    targets = targets_for(recipe.head, train.output_tokens)
    values, tokens, network = _start(recipe, model, tokenizer, targets, seed)
    most = min(recipe.most_input, config_of(recipe.encoder, values).max_position_embeddings)

    def rows(part: LabelledPrompts) -> Rows:
        prompts, lengths, samples = by_prompt(part)
        several = samples if (samples > 1).any() else None
        return Rows(token_rows(prompts, tokens, most), targets.labels(lengths), several)

    weights = _class_weights(targets, train) if recipe.head in ("classes", "binary") else None
    Training(
        network, recipe, rows(train), rows(stop), pad=tokens.pad, device=chosen, seed=seed,
        weights=weights, checkpoint=checkpoint, every=every, say=progress,
    ).run()  # fmt: skip
    levels = np.array(LEVELS)
    longest = float(max(train.output_tokens.max(), calibrate.output_tokens.max(initial=1)))
    plain = ProxyPredictor(
        recipe, targets, network, values, tokens, most, (0.0, 1.0), levels,
        np.zeros(len(levels)), longest, chosen,
    )  # fmt: skip
    return _calibrated(plain, calibrate)


def _calibrated(plain: ProxyPredictor, rows: LabelledPrompts) -> ProxyPredictor:
    """Return the predictor with its line, for scores, and its shifts from held-out rows."""
    truth = log_lengths(rows, "calibration")
    if plain.targets.head == "ranks":
        scores = plain.outputs(rows.prompts)[:, 0]
        spread = float(scores.var())
        slope = float(np.cov(scores, truth, bias=True)[0, 1]) / spread if spread > 0 else 0.0
        # A score is an order: a slope that is not above 0 would turn it round.
        slope = max(slope, 1e-6)
        plain = replace(plain, line=(float(truth.mean() - slope * scores.mean()), slope))
    return replace(plain, shift=shifts(plain.log_quantiles(rows.prompts), truth, plain.levels))


def _start(
    recipe: Recipe, model: Any, tokenizer: Any, targets: Targets, seed: int
) -> tuple[dict[str, Any], Tokens, Any]:
    """Return configuration, tokens and the network as it is before training."""
    import torch

    folder = None
    if isinstance(model, dict):
        values = checked_config(recipe.encoder, model)
    elif model in ("small", "full"):
        values = (SMALL if model == "small" else FULL)[recipe.encoder]
    else:
        folder = Path(model)
        values = folder_values(folder, recipe.encoder)
        if tokenizer is None and (folder / "tokenizer.json").is_file():
            tokenizer = folder / "tokenizer.json"
    config = config_of(recipe.encoder, values)
    try:
        text = None if tokenizer is None else tokenizer_text(tokenizer)
        tokens = tokens_of(text, config.vocab_size)
    except InputError as error:
        raise error.located(file=None if tokenizer is None else str(tokenizer)) from None
    state = None if folder is None else folder_weights(folder, config)
    with drawing("cpu"):
        torch.manual_seed(seed)
        network = new_network(config, targets.outputs(), recipe.head)
    if state is not None:
        network["encoder"].load_state_dict(state)
    return values, tokens, network


def _kept(rows: LabelledPrompts, below: int | None) -> LabelledPrompts:
    if below is None:
        return rows
    fits = (rows.output_tokens > 1) & (rows.output_tokens < below)
    return rows.rows(np.nonzero(fits)[0])


def _parts(rows: LabelledPrompts, seed: int) -> tuple[LabelledPrompts, LabelledPrompts]:
    """Return what is trained on and what decides when to stop, apart by conversation."""
    # Another seed than that of ``part``, which has used up this one's lowest shares.
    shares = rows.shares(seed + 1_000_003)
    parts = [rows.rows(np.nonzero(kept)[0]) for kept in (shares >= HELD_OUT, shares < HELD_OUT)]
    for part in parts:
        log_lengths(part)
    return parts[0], parts[1]


def _class_weights(targets: Targets, rows: LabelledPrompts) -> Floats:
    """Return 1 / count of each class, as SSJF's code has it; each prompt counts once."""
    _, lengths, samples = by_prompt(rows)
    labels = targets.labels(lengths).astype(np.int64)
    shares = np.repeat(1 / samples, samples)
    counts = np.bincount(labels, weights=shares, minlength=targets.outputs())
    return np.asarray(1.0 / np.where(counts > 0, counts, 1.0), np.float64)


def _device(device: str) -> str:
    try:
        import torch
    except ImportError as error:
        missing = "torch is needed for proxy models: pip install 'orsched[runner]'"
        raise unavailable(error, missing) from None
    if device == "auto":
        return settled("cuda") if torch.cuda.is_available() else "cpu"
    try:
        found = settled(device)
        torch.empty(1, device=found)
    except (RuntimeError, AssertionError) as error:
        problem = " ".join(str(error).split())[:200]
        raise InputError(
            f"{device!r:.40} is not a device here: {problem}",
            field="device",
            remedy="cpu, cuda, auto",
        ) from None
    return found
