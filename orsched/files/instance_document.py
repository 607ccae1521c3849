"""The document of an instance: what its JSON file holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orsched.common.columns import int_column
from orsched.common.errors import InputError
from orsched.costs.protocol import read_parameters
from orsched.data.autoscaling import Autoscaling
from orsched.data.instance import Instance
from orsched.data.length_quantiles import LEVELS, QUANTILES
from orsched.data.links import Link
from orsched.data.requests import Prefixes, Requests
from orsched.data.service_classes import LABELLED, ServiceClass
from orsched.data.workers import Worker
from orsched.files.document import (
    VERSION,
    at_field,
    column_field,
    column_lists,
    cost_class,
    require_format,
    require_object,
    text_field,
)

if TYPE_CHECKING:
    from orsched.common.columns import IntColumn

FORMAT = "orsched/instance"
OPTIONAL = (
    "output_limit_tokens", "classes", "link", "autoscaling", "refused", "concurrency",
)  # fmt: skip
LABELS = ("name", "description", "source", "licence")
COLUMNS = (
    "prompt_tokens", "output_tokens", "arrival_ns", "predicted_tokens", "service_class", *LABELLED,
    "deadline_ns", "parent", "delay_ns",
)  # fmt: skip
NAMES = tuple(f"{label}s" for label in LABELLED)
FURTHER = ("ids", *NAMES, "weight")
PREFIX_FIELDS = ("prefix_offsets", "prefix_ids", "prefix_block_tokens")


def instance_header(instance: Instance) -> dict[str, Any]:
    """Return everything of the document but the requests."""
    return {
        "format": FORMAT,
        "version": VERSION,
        **{label: getattr(instance, label) for label in LABELS},
        "first_token": instance.first_token,
        "output_limit_tokens": instance.output_limit_tokens,
        "workers": [worker.to_dict() for worker in instance.workers],
        **({} if instance.link is None else {"link": instance.link.to_dict()}),
        **(
            {"classes": [kind.to_dict() for kind in instance.classes]}
            if instance.names_classes
            else {}
        ),
        **({} if instance.autoscaling is None else {"autoscaling": instance.autoscaling.to_dict()}),
        **({"refused": list(instance.refused)} if instance.refused else {}),
        **({} if instance.concurrency is None else {"concurrency": instance.concurrency}),
    }


def instance_document(instance: Instance) -> dict[str, Any]:
    """Return the document of an instance, plain JSON values in their order in the file."""
    requests = instance.requests
    present = [name for name in COLUMNS if getattr(requests, name) is not None]
    columns = column_lists(requests, present)
    if requests.ids is not None:
        columns["ids"] = list(requests.ids)
    if requests.weights is not None:
        columns["weight"] = requests.weights.tolist()
    columns |= label_names(requests)
    if requests.predicted_quantiles is not None:
        columns[LEVELS] = list(requests.quantile_levels or ())
        columns[QUANTILES] = requests.predicted_quantiles.tolist()
    if requests.prefixes is not None:
        columns["prefix_offsets"] = requests.prefixes.offsets.tolist()
        columns["prefix_ids"] = requests.prefixes.ids.tolist()
        columns["prefix_block_tokens"] = requests.prefixes.block_tokens
    return {**instance_header(instance), "requests": columns}


def instance_from_document(document: object) -> Instance:
    """Inverse of ``instance_document``; columns may be arrays; errors name row and field."""
    values = read_parameters(
        require_format(document, FORMAT),
        "instance",
        ["format", "version", "first_token", "workers", "requests"],
        [*LABELS, *OPTIONAL],
    )
    for name in ("output_limit_tokens", "concurrency"):
        if values.get(name, 0) is None:
            problem = "must be a whole number, not null"
            raise InputError(problem, field=name, remedy="or leave it out")
    workers = _workers(values["workers"])
    autoscaling = _autoscaling(values.get("autoscaling"))
    if autoscaling is not None:
        autoscaling.limits(workers)
    return Instance(
        requests=requests_from_columns(values["requests"]),
        workers=workers,
        first_token=text_field(values, "first_token"),
        output_limit_tokens=values.get("output_limit_tokens"),  # type: ignore[arg-type]
        name=text_field(values, "name", "instance"),
        description=text_field(values, "description"),
        source=text_field(values, "source"),
        licence=text_field(values, "licence"),
        **({"classes": _classes(values["classes"])} if "classes" in values else {}),
        link=_link(values["link"]) if "link" in values else None,
        autoscaling=autoscaling,
        refused=values.get("refused", ()),
        concurrency=values.get("concurrency"),
    )


def _autoscaling(values: object) -> Autoscaling | None:
    if values is None:
        return None
    try:
        return Autoscaling.from_dict(require_object(values, "autoscaling"))
    except InputError as error:
        known = error.field in (None, "autoscaling")
        place = "autoscaling" if known else f"autoscaling.{error.field}"
        raise at_field(error, place, "see the file formats") from None


def _link(values: object) -> Link:
    try:
        return Link.from_dict(require_object(values, "link"))
    except InputError as error:
        place = "link" if error.field in (None, "link") else f"link.{error.field}"
        raise at_field(error, place, "see the file formats") from None


def requests_from_columns(values: object) -> Requests:
    """Return requests from the block ``requests`` of a document."""
    columns = read_parameters(
        require_object(values, "requests"),
        "requests",
        COLUMNS[:2],
        [*COLUMNS[2:], *FURTHER, LEVELS, QUANTILES, *PREFIX_FIELDS],
    )
    given = {
        name: column_field(columns, name)
        for name in (*COLUMNS, *FURTHER, LEVELS, QUANTILES, "prefix_offsets", "prefix_ids")
        if name in columns
    }
    labels: dict[str, Any] = {label: _label(given, label) for label in LABELLED}
    labels |= {names: given.get(names) for names in NAMES}
    return Requests(
        prompt_tokens=given["prompt_tokens"],
        output_tokens=given["output_tokens"],
        arrival_ns=given.get("arrival_ns"),
        predicted_tokens=given.get("predicted_tokens"),
        service_class=given.get("service_class"),
        ids=given.get("ids"),
        prefixes=_prefixes(columns),
        **labels,
        deadline_ns=given.get("deadline_ns"),
        predicted_quantiles=given.get(QUANTILES),
        quantile_levels=given.get(LEVELS),
        weights=given.get("weight"),
        parent=given.get("parent"),
        delay_ns=given.get("delay_ns"),
    )


def label_names(requests: Requests) -> dict[str, list[str]]:
    """Return the names of tenants and groups, where they have names."""
    given = {names: getattr(requests, names) for names in NAMES}
    return {names: list(texts) for names, texts in given.items() if texts is not None}


def _label(given: dict[str, Any], label: str) -> IntColumn | None:
    """Return the numbers of tenants or groups: files hold the names once, in ``tenants``."""
    if label not in given:
        return None
    return int_column(given[label], label, remedy=f"whole numbers; names belong in {label}s")


def _prefixes(columns: dict[str, Any]) -> Prefixes | None:
    missing = [name for name in PREFIX_FIELDS if name not in columns]
    if len(missing) == len(PREFIX_FIELDS):
        return None
    if missing:
        raise InputError(
            f"requests need the field '{missing[0]}'",
            field=missing[0],
            remedy=f"give all of {', '.join(PREFIX_FIELDS)} or none",
        )
    return Prefixes(*(columns[name] for name in PREFIX_FIELDS))


def _classes(values: object) -> tuple[ServiceClass, ...]:
    if not isinstance(values, list) or not values:
        raise InputError(
            "must be a list of at least one class", field="classes", remedy="or leave it out"
        )
    classes = []
    for i, item in enumerate(values):
        try:
            classes.append(ServiceClass.from_dict(item))
        except InputError as error:
            place = f"classes[{i}]" + ("" if error.field is None else f".{error.field}")
            raise at_field(error, place, "see the file formats") from None
    return tuple(classes)


def _workers(values: object) -> tuple[Worker, ...]:
    if not isinstance(values, list) or not values:
        raise InputError(
            "must be a list of at least one worker", field="workers", remedy="add a worker"
        )
    workers = []
    for i, item in enumerate(values):
        try:
            workers.append(Worker.from_dict(item, cost_class))
        except InputError as error:
            place = f"workers[{i}]" + ("" if error.field in (None, "worker") else f".{error.field}")
            raise at_field(error, place, "see the file formats") from None
    return tuple(workers)
