"""The document of a cost model: its name, its parameters and the report of their fit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orsched.common.errors import InputError
from orsched.files.document import VERSION, at_field, object_field, require_format, text_field
from orsched.files.text import plain

if TYPE_CHECKING:
    from orsched.costs import CostModel

FORMAT = "orsched/cost"
HEADER = ("format", "version", "model", "fit")


def cost_class(name: str) -> Any:
    """Return the class of a cost model; raises ``InputError`` with the known names."""
    from orsched.common.registry import cost_model

    try:
        return cost_model(name)
    except InputError as error:
        raise at_field(error, "cost.model") from None


def cost_document(cost: CostModel, fit: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return the document of a cost model, with the report of its fit if there is one."""
    parameters = plain(cost.to_dict(), "cost")
    for name in parameters:
        if name in HEADER:
            raise InputError(
                "the name is taken by the file format", field=name, remedy="rename the parameter"
            )
    document = {"format": FORMAT, "version": VERSION, "model": cost.model}
    document |= {name: parameters[name] for name in cost.to_dict()}
    return document if fit is None else document | {"fit": plain(fit, "fit")}


def cost_from_document(document: object) -> tuple[CostModel, dict[str, Any] | None]:
    """Inverse of ``cost_document``: the model and the report of its fit or None.

    Raises ``InputError`` that names the field.
    """
    values = require_format(document, FORMAT)
    if "model" not in values:
        raise InputError("is missing", field="model", remedy="name the cost model")
    name = text_field(values, "model")
    fit = object_field(values, "fit") if "fit" in values else None
    try:
        owner = cost_class(name)
    except InputError as error:
        raise at_field(error, "model") from None
    cost = owner.from_dict({key: item for key, item in values.items() if key not in HEADER})
    return cost, None if fit is None else plain(fit, "fit")
