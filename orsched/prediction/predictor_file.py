"""Files of predictors: JSON that is checked in full when it is read; nothing in it is run."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from orsched.common.columns import whole_number
from orsched.common.errors import InputError
from orsched.common.near_names import known_names
from orsched.files.atomic import write_text
from orsched.files.document import require_format, require_object
from orsched.files.text import dump_json, locating, parse_json, read_text
from orsched.prediction.predictor import LengthPredictor, required

if TYPE_CHECKING:
    import os

FORMAT = "orsched/predictor"
VERSION = 1

CLASSES = {
    "constant": ("baselines", "ConstantPredictor"),
    "prompt_length": ("baselines", "PromptLengthPredictor"),
    "lexical": ("lexical", "LexicalPredictor"),
    "online": ("online", "OnlinePredictor"),
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
        raise InputError(f"{shown:.60} is no kind of predictor", field="kind", remedy=remedy)
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
