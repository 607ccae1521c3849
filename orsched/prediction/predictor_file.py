"""Predictors by kind: trained, saved, loaded, and applied to an instance."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.common.columns import whole_number
from orsched.common.errors import InputError, known_names
from orsched.data.instance import require_instance
from orsched.files.document import require_format, require_object, write_text
from orsched.files.text import dump_json, locating, parse_json, read_text
from orsched.prediction.data import as_prompts
from orsched.prediction.distribution import LOG_T
from orsched.prediction.predictor import LengthPredictor, required

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence

    from orsched.data.instance import Instance
    from orsched.prediction.data import LabelledPrompts, Prompt


def predict_instance(
    instance: Instance,
    predictor: LengthPredictor,
    prompts: Sequence[Prompt | str],
    *,
    ids: Sequence[str] | None = None,
    point: str | float = "median",
) -> Instance:
    """Return the instance with predicted distributions, and a point of each as predicted tokens.

    Whole tokens from 1 to the output limit, at the levels of the predictor's quantiles and, where
    it has tails, of their knots.

    Args:
        instance: whose requests they are.
        predictor: a fitted one.
        prompts: one a request, in the order of the requests or named by ``ids``.
        ids: the request that each prompt belongs to, by its name; None: the order.
        point: of the distribution, see ``LengthDistribution.tokens``.

    Raises:
        InputError: a request has no prompt or two, or a prompt has no request.
    """
    require_instance(instance)
    asked = as_prompts(prompts)
    if ids is not None and instance.requests.ids is not None:
        asked = _in_order(instance.requests.ids, asked, ids)
    if len(asked) != len(instance):
        raise InputError(
            f"{len(asked)} prompts for {len(instance)} requests",
            field="prompts",
            remedy="one a request, in the same order, or both with id",
        )
    found, limit = predictor.predict(asked), instance.output_limit_tokens
    levels, values = found.columns()
    requests = instance.requests.replace(
        predicted_tokens=np.clip(found.tokens(point), 1, limit),
        predicted_quantiles=np.clip(np.rint(values), 1, limit).astype(np.int64),
        quantile_levels=levels,
    )
    return instance.replace(requests=requests)


def _in_order(
    names: Sequence[str], prompts: Sequence[Prompt], ids: Sequence[str]
) -> Sequence[Prompt]:
    """Return the prompts in the order of the requests' names."""
    found: dict[str, Prompt] = {}
    for row, (name, prompt) in enumerate(zip(ids, prompts, strict=True)):
        if name in found:
            raise InputError(f"{name!r} appears twice", row=row, field="id", remedy="keep one")
        found[name] = prompt
    for row, name in enumerate(names):
        if name not in found:
            raise InputError(
                f"no prompt for request {name!r}", row=row, field="id", remedy="add its prompt"
            )
    if len(found) > len(names):
        known = set(names)
        extra = next(name for name in found if name not in known)
        raise InputError(
            f"no request for prompt {extra!r}",
            field="id",
            remedy="leave the prompt out, or give the instance of these prompts",
        )
    return [found[name] for name in names]


FORMAT = "orsched/predictor"
VERSION = 1

CLASSES = {
    "constant": ("predictor", "ConstantPredictor"),
    "prompt_length": ("predictor", "PromptLengthPredictor"),
    "lexical": ("lexical", "LexicalPredictor"),
    "online": ("lexical", "OnlinePredictor"),
}
"""Kinds of predictors: where their classes are."""

PROXY = "proxy"
"""Proxy models of ``orsched.prediction.proxies``, whose weights are in a file beside theirs."""


def save_predictor(
    predictor: LengthPredictor, path: str | os.PathLike[str], *, seed: int | None = None
) -> None:
    """Write a predictor to a JSON file, whole or not at all.

    Args:
        predictor: one of this package's kinds.
        path: the file.
        seed: by which its data were parted, for ``part("test", seed)`` later; None if unknown.

    Raises:
        InputError: it cannot be written, or is of a kind that files do not have.
    """
    if not isinstance(predictor, LengthPredictor) or predictor.kind not in (*CLASSES, PROXY):
        raise InputError(
            "is not a predictor that files hold",
            field="predictor",
            remedy="give what load_predictor or train returns",
        )
    head: dict[str, Any] = {"format": FORMAT, "version": VERSION, "kind": predictor.kind}
    if seed is not None:
        head["seed"] = seed
    if predictor.kind == PROXY:
        # Of the runner's layer, with torch; a part of this package for those who have it.
        import_module("orsched.prediction.proxies.proxy_file").save_proxy(predictor, path, head)
        return
    write_text(path, dump_json({**head, **predictor.common(), **predictor.document()}))


def load_predictor(path: str | os.PathLike[str]) -> LengthPredictor:
    """Return the predictor of a file; raises ``InputError`` that names the file and the field."""
    return load_with_seed(path)[0]


def load_with_seed(path: str | os.PathLike[str]) -> tuple[LengthPredictor, int | None]:
    """Return the predictor of a file and the seed by which its data were parted, or None."""
    with locating(path):
        document = require_format(parse_json(read_text(path)), FORMAT)
        seed = document.get("seed")
        if seed is not None:
            whole_number(seed, "seed")
        if document.get("kind") == PROXY:
            proxy_file = import_module("orsched.prediction.proxies.proxy_file")
            return proxy_file.load_proxy(document, path), seed
        return predictor_from(document), seed


def class_of_kind(kind: object) -> type[LengthPredictor]:
    """Return the class of a kind of predictor; raises ``InputError`` that lists the kinds."""
    if not isinstance(kind, str) or kind not in CLASSES:
        shown = repr(kind) if isinstance(kind, str) else "this"
        remedy = known_names(kind if isinstance(kind, str) else "", list(CLASSES), "one of: ")
        raise InputError(f"{shown:.60} is not a kind of predictor", field="kind", remedy=remedy)
    module, name = CLASSES[kind]
    found: type[LengthPredictor] = getattr(import_module(f"orsched.prediction.{module}"), name)
    return found


def predictor_from(document: object, *, nested: bool = False) -> LengthPredictor:
    """Return the predictor of a document, or of one in it; raises ``InputError``."""
    values = require_object(document, "base" if nested else "the file")
    made = class_of_kind(required(values, "kind"))
    if nested and made.kind == "online":
        raise InputError("is online already", field="base.kind", remedy="train again")
    try:
        return made.from_document(values)
    except InputError as error:
        name = error.field
        if nested:
            name = f"base.{name}" if name else "base"
        remedy = error.remedy or "train again"
        raise InputError(error.problem, row=error.row, field=name, remedy=remedy) from None


KINDS = tuple(CLASSES)  # the kinds of predictors, the simplest first; ``lexical`` is the default
TAILED = ("lexical", "online")  # the kinds that take ``tails``


def train(
    data: LabelledPrompts,
    kind: str = "lexical",
    *,
    seed: int = 0,
    trees: int = 40,
    tails: str | None = None,
    progress: Callable[[str], None] | None = None,
) -> LengthPredictor:
    """Return a predictor fitted on 60 % of the conversations and calibrated on 20 %.

    The rest, ``data.part("test", seed)``, is not looked at.

    Args:
        data: prompts with the lengths of their replies.
        kind: one of ``KINDS``.
        seed: decides the parts and what the fit draws.
        trees: trees for each quantile, of the kinds that have any: 1 to 1,000.
        tails: ``log-t`` fits the law of lengths beyond the outermost quantiles on the rows that
            calibrate, for ``lexical`` and ``online``; None: straight lines.
        progress: called with a few words on what is being done.

    Raises:
        InputError: unknown kind or tails, too few rows for tails, or a part without rows.
        MissingDependencyError: scikit-learn is needed and not installed.
    """
    made = class_of_kind(kind)
    if not 1 <= trees <= 1000:
        raise InputError(f"{trees} trees", field="trees", remedy="1 to 1,000")
    if tails is not None:
        _require_tails(tails, kind)
    fit, held = data.part("train", seed), data.part("calibrate", seed)
    return made.fit(fit, held, seed=seed, trees=trees, tails=tails, progress=progress)


def _require_tails(tails: str, kind: str) -> None:
    if tails != LOG_T:
        raise InputError(f"{tails!r:.40} is not a law of tails", field="tails", remedy=LOG_T)
    if kind not in TAILED:
        raise InputError(f"{kind} has none", field="tails", remedy=f"kinds: {', '.join(TAILED)}")
