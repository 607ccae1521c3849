"""Generator table of malformed input: how each valid file is broken and what must be said of it."""

# One case a line, however long: the table is read down its columns.
# ruff: noqa: E501
from __future__ import annotations

import json
from functools import reduce
from io import BytesIO
from operator import delitem, getitem, setitem
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

SHA = "0" * 63 + "1"
# fmt: off
COST = {
    "model": "affine", "prefill_fixed_ns": 25_000_000, "prefill_token_ns": 130_000,
    "round_fixed_ns": 29_000_000, "round_client_ns": 210_000,
}


def instance_document() -> dict[str, Any]:
    worker = {
        "name": "worker-0", "clients": 2, "prefill_cap_tokens": 100,
        "memory": {"blocks": 10, "block_tokens": 16}, "cost": dict(COST),
    }
    return {
        "format": "orsched/instance", "version": 1, "name": "three", "description": "",
        "source": "", "licence": "", "first_token": "decode", "output_limit_tokens": 9,
        "workers": [worker],
        "requests": {
            "prompt_tokens": [5, 6, 7], "output_tokens": [1, 9, 3], "arrival_ns": [0, 10, 20],
            "predicted_tokens": [1, 1, 1], "service_class": [0, 1, 0], "ids": ["a", "b", "c"],
            "prefix_offsets": [0, 1, 1, 3], "prefix_ids": [7, 7, 8], "prefix_block_tokens": 4,
        },
    }


def schedule_document() -> dict[str, Any]:
    return {
        "format": "orsched/schedule", "version": 1, "instance": {"name": "three", "sha256": SHA},
        "method": "fcfs", "information": "none", "seed": 0, "parameters": {"a": 1},
        "steps": {
            "worker": [0, 0], "phase": [0, 1], "start_ns": [0, 5], "end_ns": [5, 9],
            "rounds": [1, 2],
        },
        "work": {
            "request": [0, 0], "client": [0, 0], "phase": [0, 1], "first_step": [0, 1],
            "last_step": [0, 1], "tokens": [4, 1],
        },
        "results": {"makespan_ns": 9},
        "bound": {"name": "volume", "value_ns": 8, "certificate": {}}, "run": {"runtime_s": 0.5},
    }
# fmt: on


def trace_document() -> dict[str, Any]:
    run = {"device": "cpu", "clock": "perf_counter_ns"}
    return {**schedule_document(), "format": "orsched/trace", "run": run}


def cost_document() -> dict[str, Any]:
    return {"format": "orsched/cost", "version": 1, **COST, "fit": {"rows": 5}}


DOCUMENTS = {
    "instance": instance_document, "schedule": schedule_document, "trace": trace_document,
    "cost": cost_document,
}  # fmt: skip

CSV = (
    "id,prompt_tokens,output_tokens,arrival_s,predicted_tokens,service_class\n"
    "a,5,1,0,1,interactive\n"
    'b,6,9,0.5,1,"batch"\n'
    "c,7,3,1.25,1,interactive\n"
)


class Case(NamedTuple):
    """A valid document, what breaks it, and what the error must name.

    ``break_it`` returns what replaces a document, text, table or frame; ``schema``: True where the
    published schema rejects it as well, else the reason why a schema cannot.
    """

    name: str
    kind: str
    break_it: Callable[[Any], Any]
    field: str | None
    says: str
    remedy: str
    row: int | None = None
    schema: bool | str = True


def at(path: str, act: Callable[[Any, Any], Any]) -> Callable[[Any], Any]:
    """Do something to the owner of a dotted path, and to its last part."""

    def change(document: Any) -> Any:
        *folders, last = [int(p) if p.isdigit() else p for p in path.split(".")]
        act(reduce(getitem, folders, document), last)
        return document

    return change


def put(path: str, value: Any) -> Callable[[Any], Any]:
    """Replace (or add) the value at a dotted path."""
    return at(path, lambda owner, last: setitem(owner, last, value))


def drop(path: str) -> Callable[[Any], Any]:
    """Remove the value at a dotted path."""
    return at(path, delitem)


def quantiles(values: Any, levels: Any = (0.1, 0.5)) -> Callable[[Any], Any]:
    """Give the three requests predicted quantiles, and their levels."""

    def change(document: Any) -> Any:
        given = list(levels) if isinstance(levels, tuple) else levels
        document["requests"] |= {"quantile_levels": given, "predicted_quantiles": values}
        return document

    return change


def instead(old: str, new: str) -> Callable[[Any], str]:
    """Write a JSON document and replace one place of its text."""

    def change(document: Any) -> str:
        text = json.dumps(document)
        assert text.count(old) == 1, (old, text)
        return text.replace(old, new)

    return change


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


LENGTHS = "the lengths of lists are not comparable in a schema"
ORDER = "the order of values is not comparable in a schema"
BETWEEN = "values of different fields are not comparable in a schema"
TEXT = "the JSON parser's matter, before any schema"
OPEN = "installed packages may add cost models"
NUL = "a schema says nothing of single characters"

# fmt: off
INSTANCE = [
    ("no format", drop("format"), "format", "is missing", "orsched/instance"),
    ("another format", put("format", "orsched/schedule"), "format", "not 'orsched/instance'", "load_schedule"),
    ("foreign format", put("format", "pyjobshop"), "format", "not a format of orsched", "orsched/instance"),
    ("no version", drop("version"), "version", "missing", '"version": 1'),
    ("version 0", put("version", 0), "version", "0 is below 1", '"version": 1'),
    ("version as text", put("version", "1"), "version", "'1' is not a whole number", '"version": 1'),
    ("newer version", put("version", 2), "version", "newer orsched (version 2", "upgrade"),
    ("unknown field", put("deadline", 5), "deadline", "no field 'deadline'", "known fields: format"),
    ("no workers", drop("workers"), "workers", "needs the field 'workers'", "add it"),
    ("no requests", drop("requests"), "requests", "needs the field 'requests'", "add it"),
    ("no first-token rule", drop("first_token"), "first_token", "needs the field", "add it"),
    ("wrong first-token rule", put("first_token", "both"), "first_token", "'both' is not a first-token rule", "use prefill or decode"),
    ("limit null", put("output_limit_tokens", None), "output_limit_tokens", "not null", "leave it out"),
    ("limit 0", put("output_limit_tokens", 0), "output_limit_tokens", "0 is below 1", "values from 1"),
    ("name a number", put("name", 5), "name", "must be a text, not a number", "quotes"),
    ("description nested", put("description", nested(200)), "description", "not a list", "quotes"),
    ("no worker", put("workers", []), "workers", "at least one worker", "add a worker"),
    ("worker a number", put("workers.0", 5), "workers[0]", "must be an object", "formats"),
    ("no clients", drop("workers.0.clients"), "workers[0].clients", "needs the field 'clients'", "add it"),
    ("clients 0", put("workers.0.clients", 0), "workers[0].clients", "0 is below 1", "values from 1"),
    ("clients negative", put("workers.0.clients", -3), "workers[0].clients", "-3 is below 1", "values from 1"),
    ("clients a fraction", put("workers.0.clients", 1.5), "workers[0].clients", "1.5 is not a whole number", "whole"),
    ("clients true", put("workers.0.clients", True), "workers[0].clients", "True is not a whole number", "whole"),
    ("clients huge", put("workers.0.clients", 10**30), "workers[0].clients", "does not fit into 64 bits", "from 1 to"),
    ("worker's field unknown", put("workers.0.speed", 2), "workers[0].speed", "no field 'speed'", "known fields"),
    ("worker without a name", put("workers.0.name", ""), "workers[0].name", "must be a text", "formats"),
    ("cap 0", put("workers.0.prefill_cap_tokens", 0), "workers[0].prefill_cap_tokens", "0 is below 1", "values from 1"),
    ("memory a list", put("workers.0.memory", []), "workers[0].memory", "must be an object", "formats"),
    ("blocks 0", put("workers.0.memory.blocks", 0), "workers[0].blocks", "0 is below 1", "values from 1"),
    ("no cost model", drop("workers.0.cost.model"), "workers[0].cost", "a field 'model'", "formats"),
    ("negative cost", put("workers.0.cost.round_fixed_ns", -1), "workers[0].round_fixed_ns", "-1 is below 0", "values from 0"),
    ("cost as text", put("workers.0.cost.round_fixed_ns", "29 ms"), "workers[0].round_fixed_ns", "'29 ms' is not", "whole"),
    ("requests a list", put("requests", []), "requests", "must be an object", ""),
    ("no outputs", drop("requests.output_tokens"), "output_tokens", "needs the field", "add it"),
    ("unknown column", put("requests.colour", [1, 2, 3]), "colour", "no field", "prompt_tokens"),
    ("column a number", put("requests.prompt_tokens", 5), "prompt_tokens", "must be a list, not a number", "one value per row"),
    ("column null", put("requests.predicted_tokens", None), "predicted_tokens", "must be a list, not null", "one value"),
    ("column a text", put("requests.prompt_tokens", "5,6,7"), "prompt_tokens", "not a text", "one value"),
    ("lists in a column", put("requests.prompt_tokens", [[5], [6], [7]]), "prompt_tokens", "expected one dimension", "list of numbers"),
    ("one list in a column", put("requests.prompt_tokens.1", [6]), "prompt_tokens", "[6] is not a whole number", "", 1),
    ("ids numbers", put("requests.ids.1", 5), "ids", "5 is not a name", "give a text", 1),
    ("id with NUL", put("requests.ids.1", "a\0"), "ids", "is not a name", "give a text", 1, NUL),
    ("id empty", put("requests.ids.1", ""), "ids", "is not a name", "give a text", 1),
    ("id twice", put("requests.ids.2", "a"), "ids", "'a' appears twice", "unique", 2),
    ("eviction unknown", put("workers.0.memory", {"blocks": 9, "block_tokens": 4, "allocation": "paged", "prefix_cache": {"eviction": "mru"}}), "workers[0].eviction", "'mru' is not an eviction rule", "one of lru,"),
    ("prefix cache a text", put("workers.0.memory", {"blocks": 9, "block_tokens": 4, "allocation": "paged", "prefix_cache": "lru"}), "workers[0].prefix_cache", "must be an object", ""),
    ("prefix ids alone", drop("requests.prefix_offsets"), "prefix_offsets", "need the field", "or none"),
    ("prefix block 0", put("requests.prefix_block_tokens", 0), "prefix_block_tokens", "0 is below 1", "values from 1"),
    ("prompt 0", put("requests.prompt_tokens.1", 0), "prompt_tokens", "0 is below 1", "leave failed requests out", 1),
    ("prompt negative", put("requests.prompt_tokens.2", -7), "prompt_tokens", "-7 is below 1", "at least one token", 2),
    ("prompt huge", put("requests.prompt_tokens.0", 2**31), "prompt_tokens", "2147483648 is above", "values from 1 to 2147483647", 0),
    ("prompt beyond 64 bits", put("requests.prompt_tokens.2", 10**40), "prompt_tokens", "133 bits does not fit", "", 2),
    ("prompt null", put("requests.prompt_tokens.1", None), "prompt_tokens", "the value is missing", "", 1),
    ("prompt a text", put("requests.prompt_tokens.1", "6"), "prompt_tokens", "'6' is not a whole number", "", 1),
    ("prompt a fraction", put("requests.prompt_tokens.1", 6.5), "prompt_tokens", "6.5 is not a whole number", "", 1),
    ("prompt false", put("requests.prompt_tokens.0", False), "prompt_tokens", "False is not a whole number", "", 0),
    ("true among fractions", put("requests.prompt_tokens", [True, 2.0, 3.0]), "prompt_tokens", "True is not", "", 0),
    ("prompt an object", put("requests.prompt_tokens.1", {}), "prompt_tokens", "{} is not a whole number", "", 1),
    ("output 0", put("requests.output_tokens.0", 0), "output_tokens", "0 is below 1", "leave failed requests out", 0),
    ("prediction 0", put("requests.predicted_tokens.2", 0), "predicted_tokens", "0 is below 1", "at least one", 2),
    ("arrival negative", put("requests.arrival_ns.0", -1), "arrival_ns", "-1 is below 0", "start at 0", 0),
    ("arrival beyond the limit", put("requests.arrival_ns.2", 2**62), "arrival_ns", "is above", "values from 0 to", 2),
    ("service class -1", put("requests.service_class.1", -1), "service_class", "-1 is below 0", "0 interactive, 1 batch", 1),
    ("tenant a name", put("requests.tenant", [0, "a", 0]), "tenant", "'a' is not a whole number", "names belong in tenants", 1),
    ("tenant negative", put("requests.tenant", [0, 0, -1]), "tenant", "-1 is below 0", "names belong", 2),
    ("group a name", put("requests.group", [0, "a", 0]), "group", "'a' is not a whole number", "names belong in groups", 1),
    ("groups without a column", put("requests.groups", ["a"]), "groups", "without the column 'group'", "add it", None),
    ("tenants without a column", put("requests.tenants", ["a"]), "tenants", "without the column 'tenant'", "add it", None),
    ("weight negative", put("requests.weight", [0, -5, 0]), "weight", "-5 is below 0", "whole numbers from 0 to 1000000", 1),
    ("weight a fraction", put("requests.weight", [0, 1, 0.5]), "weight", "0.5", "multiply fractions", 2),
    ("weight too large", put("requests.weight", [10**6 + 1, 1, 1]), "weight", "above 1000000", "whole numbers", 0),
    ("too few weights", put("requests.weight", [1, 1]), "weight", "2 values where 3", "", None, LENGTHS),
    ("deadline negative", put("requests.deadline_ns", [0, -5, 0]), "deadline_ns", "-5 is below 0", "", 1),
    ("quantiles without levels", put("requests.predicted_quantiles", [[1], [1], [1]]), "predicted_quantiles", "without quantile_levels", "give both"),
    ("levels without quantiles", put("requests.quantile_levels", [0.5]), "quantile_levels", "without predicted_quantiles", "give both"),
    ("no levels", quantiles([[], [], []], []), "quantile_levels", "no levels", "probabilities between 0 and 1"),
    ("level 0", quantiles([[1, 2]] * 3, [0, 0.5]), "quantile_levels", "0 is not a number between", "probabilities", 0),
    ("level 1", quantiles([[1, 2]] * 3, [0.5, 1]), "quantile_levels", "1 is not a number between", "probabilities", 1),
    ("level in percent", quantiles([[1, 2]] * 3, [10, 50]), "quantile_levels", "10 is not a number between", "probabilities", 0),
    ("level a text", quantiles([[1, 2]] * 3, [0.1, "0.5"]), "quantile_levels", "'0.5' is not a number", "probabilities", 1),
    ("level true", quantiles([[1]] * 3, [True]), "quantile_levels", "True is not a number", "probabilities", 0),
    ("levels null", quantiles([[1]] * 3, None), "quantile_levels", "must be a list, not null", ""),
    ("too many levels", quantiles([[1] * 101] * 3, [k / 200 for k in range(1, 102)]), "quantile_levels", "more than 100 levels", "fewer"),
    ("quantiles of one request no list", quantiles([[1, 2], 5, [1, 2]]), "predicted_quantiles", "5 is not a list", "one value a level", 1),
    ("quantile 0", quantiles([[1, 2], [1, 2], [0, 2]]), "predicted_quantiles", "0 is below 1", "whole tokens", 2),
    ("quantile huge", quantiles([[1, 2**31], [1, 2], [1, 2]]), "predicted_quantiles", "is above", "whole tokens", 0),
    ("quantile beyond 64 bits", quantiles([[1, 2], [1, 10**40], [1, 2]]), "predicted_quantiles", "133 bits", "whole tokens", 1),
    ("quantile a fraction", quantiles([[1, 2], [1.5, 2], [1, 2]]), "predicted_quantiles", "1.5 is not a whole number", "whole tokens", 1),
    ("quantile null", quantiles([[1, 2], [None, 2], [1, 2]]), "predicted_quantiles", "the value is missing", "whole tokens", 1),
    ("no classes", put("classes", []), "classes", "at least one class", "leave it out", None),
    ("classes an object", put("classes", {}), "classes", "at least one class", "leave it out", None),
    ("class a text", put("classes", ["interactive"]), "classes[0]", "must be an object", "see the file formats", None),
    ("class without a name", put("classes", [{"ttft_ns": 5}]), "classes[0].name", "needs the field 'name'", "add it", None),
    ("class with an empty name", put("classes", [{"name": ""}]), "classes[0].name", "'' is not a name", "give a text", None),
    ("limit negative", put("classes", [{"name": "a"}, {"name": "b", "tpot_ns": -1}]), "classes[1].tpot_ns", "-1 is below 0", "", None),
    ("limit in seconds", put("classes", [{"name": "a", "ttft_s": 1}]), "classes[0].ttft_s", "no field 'ttft_s'", "ttft_ns", None),
    ("limit a text", put("classes", [{"name": "a", "deadline_ns": "1"}]), "classes[0].deadline_ns", "not a whole number", "", None),
    ("bulk a number", put("classes", [{"name": "a", "bulk": 1}]), "classes[0].bulk", "1 is not a truth value", "true", None),
]
INSTANCE_BEYOND_SCHEMA = [
    ("service class 2", put("requests.service_class.1", 2), "service_class", "2 is above 1", "0 interactive, 1 batch", 1, BETWEEN),
    ("class twice", put("classes", [{"name": "a"}, {"name": "a", "ttft_ns": 1}]), "classes", "'a' appears twice", "unique", 1, BETWEEN),
    ("class that is not there", put("classes", [{"name": "chat"}]), "service_class", "1 is above 0", "0 chat", 1, BETWEEN),
    ("tenant without a name", put("requests", {"prompt_tokens": [1], "output_tokens": [1], "tenant": [1], "tenants": ["a"]}), "tenant", "1 is above 0", "places in tenants", 0, BETWEEN),
    ("tenant with a number for a name", put("requests", {"prompt_tokens": [1], "output_tokens": [1], "tenant": [0], "tenants": ["7"]}), "tenants", "'7' is not a name", "not numbers", 0, BETWEEN),
    ("quantiles fall", quantiles([[1, 2], [3, 2], [1, 2]]), "predicted_quantiles", "2 at level 0.5 is below 3 at level 0.1", "must not fall", 1, ORDER),
    ("levels fall", quantiles([[1, 2]] * 3, [0.5, 0.1]), "quantile_levels", "0.1 is not above 0.5", "sort them", 1, ORDER),
    ("level twice", quantiles([[1, 2]] * 3, [0.5, 0.5]), "quantile_levels", "0.5 is not above 0.5", "sort them", 1, ORDER),
    ("quantiles of another number", quantiles([[1, 2], [1, 2, 3], [1, 2]]), "predicted_quantiles", "3 values for 2 levels", "one value a level", 1, LENGTHS),
    ("quantiles short", quantiles([[1, 2]]), "predicted_quantiles", "1 values where 3", "one value per row", None, LENGTHS),
    ("tenant column short", put("requests.tenant", [0]), "tenant", "1 values where 3", "one value per row", None, LENGTHS),
    ("column short", put("requests.output_tokens", [1, 9]), "output_tokens", "2 values where 3", "one value per row", None, LENGTHS),
    ("column long", put("requests.arrival_ns", [0, 1, 2, 3]), "arrival_ns", "4 values where 3", "one value per row", None, LENGTHS),
    ("ids short", put("requests.ids", ["a"]), "ids", "1 values where 3", "one value per row", None, LENGTHS),
    ("offsets short", put("requests", {"prompt_tokens": [9, 9], "output_tokens": [1, 1], "prefix_offsets": [0, 2], "prefix_ids": [7, 8], "prefix_block_tokens": 4}), "prefix_offsets", "2 offsets for 2 requests", "one more", None, LENGTHS),
    ("offsets fall", put("requests.prefix_offsets", [0, 2, 1, 3]), "prefix_offsets", "must not fall", "sort", 1, ORDER),
    ("offsets end early", put("requests.prefix_offsets", [0, 1, 1, 2]), "prefix_offsets", "from 0 to the number of ids, 3", "one more", None, LENGTHS),
    ("prefix beyond the prompt", put("requests.prefix_block_tokens", 16), "prefix_ids", "longer than the prompt: 2 blocks of 16 tokens, the prompt of 7 has 1", "drop the last", 2, BETWEEN),
    ("chains disagree", put("requests", {"prompt_tokens": [9, 9], "output_tokens": [1, 1], "prefix_offsets": [0, 2, 4], "prefix_ids": [7, 8, 9, 8], "prefix_block_tokens": 4}), "prefix_ids", "hash chains disagree: the id 8 is block 1, behind 9, in request 0 block 1, behind 7", "give each block one", 1, BETWEEN),
    ("an id at two places", put("requests", {"prompt_tokens": [9, 9], "output_tokens": [1, 1], "prefix_offsets": [0, 2, 3], "prefix_ids": [7, 8, 8], "prefix_block_tokens": 4}), "prefix_ids", "the id 8 is block 0, the first one, in request 0 block 1, behind 7", "give each block one", 1, BETWEEN),
    ("an id twice", put("requests.prefix_ids", [7, 8, 8]), "prefix_ids", "the id 8 appears twice, as blocks 0 and 1", "give each block one", 2, BETWEEN),
    ("prefix cache of whole memory", put("workers.0.memory.prefix_cache", {}), "workers[0].prefix_cache", "blocks that are taken as caches grow", "paged", None, BETWEEN),
    ("prefix cache that pads", put("workers.0", {"clients": 1, "cost": dict(COST), "padding": True, "memory": {"blocks": 9, "block_tokens": 4, "allocation": "paged", "prefix_cache": {}}}), "workers[0].prefix_cache", "pads has no prefix cache", "leave padding", None, BETWEEN),
    ("prefix cache of another size", put("workers.0.memory", {"blocks": 9, "block_tokens": 2, "allocation": "paged", "prefix_cache": {}}), "workers[0].memory.block_tokens", "blocks of 4 tokens, the prefix cache of worker-0 has blocks of 2", "requests.refined(2)", None, BETWEEN),
    ("output above the limit", put("output_limit_tokens", 8), "output_tokens", "request b yields more tokens than the limit of 8", "raise output_limit_tokens", 1, BETWEEN),
    ("times after the largest", put("requests.arrival_ns.2", 2**61), "requests", "served one by one, the requests end after", "smaller", None, BETWEEN),
    ("unknown cost model", put("workers.0.cost.model", "magic"), "workers[0].cost.model", "unknown cost model 'magic'", "affine", None, OPEN),
    ("float beyond exact", put("requests.arrival_ns", [0, 1, 1e17]), "arrival_ns", "1e+17 is not a whole number", "", 2,
     "a schema does not tell 1e17 from 100000000000000000"),
    ("NaN", instead("[5, 6, 7]", "[5, NaN, 7]"), None, "NaN is not a JSON number", "finite", None, TEXT),
    ("infinity", instead("[0, 10, 20]", "[0, 10, -Infinity]"), None, "-Infinity is not a JSON number", "finite", None, TEXT),
    ("overflowing number", instead("[0, 10, 20]", "[0, 10, 1e999]"), None, "1e999 is too large", "finite", None, TEXT),
    ("number of 5000 digits", instead("[0, 10, 20]", f"[0, 10, {'9' * 5000}]"), None, "a number of 5000 digits at line 1", "64 bits", None, TEXT),
    ("field twice", instead('"name": "three"', '"name": "three", "name": "four"'), "name", "appears twice", "keep one", None, TEXT),
    ("column twice", instead('"ids"', '"prompt_tokens": [1], "ids"'), "prompt_tokens", "appears twice", "keep one", None, TEXT),
    ("not UTF-8", lambda d: json.dumps(d).encode().replace(b"three", b"\xff\xfe"), None, "not UTF-8 text", "save it as UTF-8", 1, TEXT),
    ("half a character", instead('"three"', '"\\ud800"'), None, "half a surrogate pair", "remove it", None, TEXT),
    ("cut short", lambda d: json.dumps(d, indent=1)[:120], None, "at line 8, column 2", "cut short", None, TEXT),
    ("cut in a text", lambda d: json.dumps(d)[:55], None, "at line 1, column", "cut short", None, TEXT),
    ("comma missing", instead('"version": 1, ', '"version": 1 '), None, "at line 1, column", "correct the text", None, TEXT),
    ("a comment", lambda d: "// requests\n" + json.dumps(d), None, "at line 1, column 1", "correct the text", None, TEXT),
    ("two documents", lambda d: json.dumps(d) + json.dumps(d), None, "Extra data", "correct the text", None, TEXT),
    ("empty", lambda _: b"", None, "the file is empty", "write it again", None, TEXT),
    ("blank", lambda _: b"\n \n", None, "the file is empty", "write it again", None, TEXT),
    ("a list", lambda _: b"[]", None, "must be a JSON object", "formats", None, TEXT),
    ("nested without end", lambda _: b'{"a":' + b"[" * 200_000, None, "nested too deeply", "no field", None, TEXT),
    ("binary", lambda _: bytes(range(128, 256)), None, "not UTF-8 text", "save it as UTF-8", 1, TEXT),
]
SCHEDULE = [
    ("an instance", put("format", "orsched/instance"), "format", "not 'orsched/schedule'", "load_instance"),
    ("newer version", put("version", 7), "version", "newer orsched (version 7", "upgrade"),
    ("unknown field", put("gap", 0.1), "gap", "no field 'gap'", "known fields"),
    ("no method", drop("method"), "method", "needs the field 'method'", "add it"),
    ("method null", put("method", None), "method", "must be a text, not null", "quotes"),
    ("wrong information", put("information", "all"), "information", "not an information class", "none, predicted or clairvoyant"),
    ("eviction without a rule", put("eviction", {}), "eviction.rule", "needs the field 'rule'", "add it"),
    ("eviction a text", put("eviction", "lru"), "eviction", "must be an object", ""),
    ("eviction unknown", put("eviction", {"rule": "mru"}), "eviction", "'mru' is not an eviction rule", "one of lru,"),
    ("hit negative", put("work.hit", [-4, 0]), "work.hit", "-4 is below 0", "values from 0", 0),
    ("seed negative", put("seed", -1), "seed", "-1 is below 0", "values from 0"),
    ("seed a fraction", put("seed", 0.5), "seed", "0.5 is not a whole number", "whole number"),
    ("no hash", drop("instance.sha256"), "sha256", "needs the field 'sha256'", "add it"),
    ("hash short", put("instance.sha256", "abc"), "instance.sha256", "64 hexadecimal", "copy"),
    ("hash in capitals", put("instance.sha256", "A" * 64), "instance.sha256", "64 hexadecimal", "copy"),
    ("steps a list", put("steps", []), "steps", "must be an object, not a list", "formats"),
    ("no start", drop("steps.start_ns"), "steps.start_ns", "needs the field 'start_ns'", "add it"),
    ("unknown column", put("work.slot", [0, 0]), "work.slot", "no field 'slot'", "known fields"),
    ("column null", put("steps.rounds", None), "steps.rounds", "must be a list, not null", "one value per row"),
    ("phase 3", put("steps.phase.1", 3), "steps.phase", "3 is above 2", "values from 0 to 2", 1),
    ("start negative", put("steps.start_ns.0", -5), "steps.start_ns", "-5 is below 0", "values from 0", 0),
    ("rounds 0", put("steps.rounds.1", 0), "steps.rounds", "0 is below 1", "values from 1", 1),
    ("tokens 0", put("work.tokens.1", 0), "work.tokens", "0 is below 1", "values from 1", 1),
    ("client a text", put("work.client.0", "0"), "work.client", "'0' is not a whole number", "whole numbers", 0),
    ("parameters a list", put("parameters", []), "parameters", "must be an object, not a list", "formats"),
    ("results null", put("results", None), "results", "must be an object, not null", "formats"),
    ("bound a number", put("bound", 8), "bound", "must be an object or null", "null"),
    ("bound without value", drop("bound.value_ns"), "bound.value_ns", "needs the field", "add it"),
    ("bound a fraction", put("bound.value_ns", 8.5), "bound.value_ns", "8.5 is not a whole number", "whole number"),
    ("schedule of a device", put("run", {"device": "cpu", "clock": "c"}), "format", "was measured", "orsched/trace"),
]
SCHEDULE_BEYOND_SCHEMA = [
    ("column short", put("steps.end_ns", [5]), "steps.end_ns", "1 values where 2", "one value per row", None, LENGTHS),
    ("step beyond the last", put("work.last_step.1", 2), "work.last_step", "step 2 does not exist", "has 2 steps", 1, BETWEEN),
    ("first step beyond the last", put("work.first_step.0", 9), "work.first_step", "step 9 does not exist", "has 2 steps", 0, BETWEEN),
    ("parameters too deep", put("parameters.a", nested(60)), "parameters.a" + "[0]" * 50, "nested too deeply", "at most 50", None,
     "depth is not comparable in a schema"),
]
TRACE = [
    ("no device", drop("run.device"), "run.device", "needs the text 'device'", "which clock"),
    ("clock empty", put("run.clock", ""), "run.clock", "needs the text 'clock'", "which clock"),
    ("no run", drop("run"), "run.device", "needs the text 'device'", "which clock"),
    ("device a number", put("run.device", 0), "run.device", "needs the text 'device'", "which device"),
]
COST_MODEL = [
    ("a schedule", put("format", "orsched/schedule"), "format", "not 'orsched/cost'", "load_schedule"),
    ("no model", drop("model"), "model", "is missing", "name the cost model"),
    ("model a number", put("model", 5), "model", "must be a text", "quotes"),
    ("no parameter", drop("round_client_ns"), "round_client_ns", "needs the field", "add it"),
    ("unknown parameter", put("round_token_ns", 5), "round_token_ns", "no field", "known fields"),
    ("parameter negative", put("prefill_token_ns", -1), "prefill_token_ns", "-1 is below 0", "values from 0"),
    ("parameter null", put("prefill_token_ns", None), "prefill_token_ns", "is missing", "give it"),
    ("fit a number", put("fit", 0.9), "fit", "must be an object", "formats"),
]
COST_BEYOND_SCHEMA = [
    ("unknown model", put("model", "magic"), "model", "unknown cost model 'magic'", "affine", None, OPEN),
]


def line(number: int, text: str) -> Callable[[str], str]:
    """Replace a line of the CSV, counted from 1."""
    def change(csv: str) -> str:
        lines = csv.splitlines()
        lines[number - 1] = text
        return "\n".join(lines) + "\n"

    return change


HEADER = CSV.splitlines()[0]
REQUESTS_CSV = [
    ("empty", lambda _: "", None, "the file is empty", "write it again"),
    ("unknown column", line(1, HEADER.replace("id", "name")), "name", "unknown column 'name'", "known columns: id"),
    ("column twice", line(1, HEADER.replace("id", "arrival_s")), "arrival_s", "appears twice", "keep one", 1),
    ("no prompts", lambda _: "id,output_tokens\na,5\n", "prompt_tokens", "is missing", "add it"),
    ("no header", lambda t: t.split("\n", 1)[1], "1", "appears twice", "keep one", 1),
    ("two arrivals", lambda _: "prompt_tokens,output_tokens,arrival_s,arrival_ns\n", "arrival_s", "given twice", "keep one"),
    ("semicolons", lambda t: t.replace(",", ";"), HEADER.replace(",", ";")[:60], "unknown column", "commas"),
    ("cell missing", line(3, "b,6,9,0.5,1"), None, "5 cells where 6", "cut off", 3),
    ("cell too many", line(4, "c,7,3,1,25,1,batch"), None, "7 cells where 6", "quote texts", 4),
    ("prompt empty", line(3, "b,,9,0.5,1,batch"), "prompt_tokens", "the value is missing", "0 or more", 3),
    ("prompt 0", line(4, "c,0,3,1.25,1,batch"), "prompt_tokens", "0 is below 1", "leave failed requests out", 4),
    ("prompt a fraction", line(2, "a,5.5,1,0,1,batch"), "prompt_tokens", "'5.5' is not a whole number", "a whole number", 2),
    ("prompt with underscore", line(2, "a,1_0,1,0,1,batch"), "prompt_tokens", "'1_0' is not a whole number", "a whole number", 2),
    ("prompt in other digits", line(2, "a,٣,1,0,1,batch"), "prompt_tokens", "is not a whole number", "a whole number", 2),
    ("prompt of 30 digits", line(3, f"b,{'9' * 30},9,0.5,1,batch"), "prompt_tokens", "does not fit into 64 bits", "fewer digits", 3),
    ("prompt of 5000 digits", line(3, f"b,{'9' * 5000},9,0.5,1,batch"), "prompt_tokens", "does not fit into 64 bits", "fewer digits", 3),
    ("output negative", line(3, "b,6,-9,0.5,1,batch"), "output_tokens", "-9 is negative", "0 or more", 3),
    ("arrival NaN", line(3, "b,6,9,nan,1,batch"), "arrival_s", "NaN is not a finite time", "give seconds", 3),
    ("arrival empty", line(3, "b,6,9,,1,batch"), "arrival_s", "the value is missing", "0 or more", 3),
    ("arrival a point", line(3, "b,6,9,.,1,batch"), "arrival_s", "'.' is not a number", "give seconds", 3),
    ("arrival two points", line(3, "b,6,9,1.2.3,1,batch"), "arrival_s", "'1.2.3' is not a number", "give seconds", 3),
    ("arrival a date", line(3, "b,6,9,2023-11-16 18:15,1,batch"), "arrival_s", "is not a number", "give seconds", 3),
    ("arrival negative", line(3, "b,6,9,-0.5,1,batch"), "arrival_s", "-0.5 is negative", "0 or more", 3),
    ("arrival huge", line(3, "b,6,9,1e300,1,batch"), "arrival_s", "1.000e+300 is too large for a time", "of at most 2**61 ns", 3),
    ("prediction 0", line(2, "a,5,1,0,0,batch"), "predicted_tokens", "0 is below 1", "predict at least one token", 2),
    ("quantiles fall", lambda _: "prompt_tokens,output_tokens,predicted_p90,predicted_p50\n1,2,3,3\n1,2,3,4\n", "predicted_p90", "3 at level 0.9 is below 4 at level 0.5", "must not fall", 3),
    ("quantile 0", lambda _: "prompt_tokens,output_tokens,predicted_p90\n1,2,3\n1,2,0\n", "predicted_p90", "0 is below 1", "whole tokens", 3),
    ("quantile NaN", lambda _: "prompt_tokens,output_tokens,predicted_p90\n1,2,nan\n", "predicted_p90", "'nan' is not a whole number", "a whole number", 2),
    ("quantile at 100 %", lambda _: "prompt_tokens,output_tokens,predicted_p100\n1,2,3\n", "predicted_p100", "unknown column", "predicted_p50 (or another percentile)"),
    ("quantile at 0 %", lambda _: "prompt_tokens,output_tokens,predicted_p0\n1,2,3\n", "predicted_p0", "unknown column", "predicted_p50 (or another percentile)"),
    ("quantile twice", lambda _: "prompt_tokens,output_tokens,predicted_p5,predicted_p5.0\n1,2,3,3\n", "predicted_p5.0", "predicted_p5 is of the same level", "keep one"),
    ("service class unknown", line(4, "c,7,3,1.25,1,fast"), "service_class", "'fast' is not a service class", "interactive, batch", 4),
    ("id empty", line(3, ",6,9,0.5,1,batch"), "id", "is not a name", "give a text", 3),
    ("id twice", line(4, "a,7,3,1.25,1,batch"), "id", "'a' appears twice", "unique", 4),
    ("line after a long cell", lambda t: t.replace("a,5", '"a\n\nx",5').replace("c,7", "c,0"), "prompt_tokens", "0 is below 1", "", 6),
    ("line after an empty one", lambda t: t.replace("b,6", "\nb,x"), "prompt_tokens", "'x' is not", "a whole number", 4),
    ("quote left open", line(3, 'b,6,9,0.5,1,"batch'), None, "not valid CSV", "check the quotes", 4),
    ("text after a quote", line(3, 'b,6,9,0.5,1,"batch"x'), None, "not valid CSV", "check the quotes", 3),
    ("cell of 200 kB", line(3, f"{'b' * 200_000},6,9,0.5,1,batch"), None, "not valid CSV", "", 3),
    ("not UTF-8", lambda t: t.encode("utf-16"), None, "not UTF-8", "save it as UTF-8"),
]
# fmt: on


def column(name: str, values: list[Any] | None, kind: str | None = None) -> Callable[[Any], Any]:
    """Replace a column of a table, add it, or drop it (None)."""

    def change(table: Any) -> Any:
        import pyarrow as pa

        names = table.column_names
        if name in names:
            table = table.drop_columns([name])
        if values is not None:
            array = pa.array(values, None if kind is None else pa.type_for_alias(kind))
            table = table.append_column(name, array)
        return table

    return change


def header(change: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Change the header in the metadata of a table."""

    def on_table(table: Any) -> Any:
        document = change(json.loads(table.schema.metadata[b"orsched"]))
        return table.replace_schema_metadata({b"orsched": json.dumps(document).encode()})

    return on_table


def raw(change: Callable[[bytes], bytes]) -> Callable[[Any], bytes]:
    """Change the bytes of a Parquet file."""

    def on_table(table: Any) -> bytes:
        import pyarrow.parquet as pq

        sink = BytesIO()
        pq.write_table(table, sink)
        return change(sink.getvalue())

    return on_table


# fmt: off
INSTANCE_PARQUET = [
    ("empty", raw(lambda b: b""), None, "the file is empty", "write it again"),
    ("cut short", raw(lambda b: b[:-20]), None, "not a Parquet file, or cut short", "write it again"),
    ("overwritten", raw(lambda b: b[:4] + b"\xff" * 300 + b[304:]), None, "", "write it again"),
    ("JSON", raw(lambda b: b"{}" * 20), None, "not a Parquet file", "write it again"),
    ("no header", lambda t: t.replace_schema_metadata(None), "orsched", "no key 'orsched'", "orsched.load"),
    ("header no JSON", lambda t: t.replace_schema_metadata({b"orsched": b"{"}), "orsched", "line 1, column 2", "correct it"),
    ("header a list", lambda t: t.replace_schema_metadata({b"orsched": b"[]"}), "orsched", "not a list", ""),
    ("header not UTF-8", lambda t: t.replace_schema_metadata({b"orsched": b"\xff"}), "orsched", "the metadata", "correct it"),
    ("newer version", header(put("version", 9)), "version", "newer orsched", "upgrade"),
    ("clients 0", header(put("workers.0.clients", 0)), "workers[0].clients", "0 is below 1", "values from 1"),
    ("requests in the header", header(put("requests", {})), "requests", "rows of a Parquet file", "drop it"),
    ("no prompts", column("prompt_tokens", None), "prompt_tokens", "the column is missing", "add it"),
    ("unknown column", column("deadline", [1, 2, 3]), "deadline", "unknown column", "known columns"),
    ("column twice", lambda t: t.append_column("id", t["id"]), "id", "appears twice", "keep one"),
    ("prompt null", column("prompt_tokens", [1, None, 3]), "prompt_tokens", "the value is missing", "every row", 1),
    ("prompts texts", column("prompt_tokens", ["1", "2", "3"]), "prompt_tokens", "a column of type string", "int64", 0),
    ("prompts fractions", column("prompt_tokens", [1.0, 2.0, 3.0]), "prompt_tokens", "a column of type double", "int64", 0),
    ("prompts booleans", column("prompt_tokens", [True] * 3), "prompt_tokens", "a column of type bool", "int64", 0),
    ("prompt beyond 63 bits", column("prompt_tokens", [1, 2, 2**63], "uint64"), "prompt_tokens", "does not fit into 64 bits", "", 2),
    ("output 0", column("output_tokens", [1, 2, 0]), "output_tokens", "0 is below 1", "leave failed", 2),
    ("ids numbers", column("id", [1, 2, 3]), "id", "a column of type int64", "texts", 0),
    ("id null", column("id", ["a", "b", None]), "id", "the value is missing", "every row", 2),
    ("id twice", column("id", ["a", "b", "a"]), "ids", "appears twice", "unique", 2),
    ("prefixes numbers", column("prefix_ids", [1, 2, 3]), "prefix_ids", "a column of type int64", "lists of int64", 0),
    ("prefix null", column("prefix_ids", [[1], None, [2]]), "prefix_ids", "the value is missing", "every row", 1),
    ("null in a prefix", column("prefix_ids", [[1], [], [2, None]]), "prefix_ids", "the value is missing", "null", 2),
    ("no prefix size", header(drop("prefix_block_tokens")), "prefix_block_tokens", "need the field", "or none"),
]
SCHEDULE_PARQUET = [
    ("unknown table", column("table", ["steps", "steps", "work", "rest"]), "table", "'rest' is not a table", "steps or work", 3),
    ("table null", column("table", ["steps", "steps", "work", None]), "table", "the value is missing", "every row", 3),
    ("no rounds", column("rounds", None), "rounds", "the column is missing", "add it"),
    ("unknown column", column("slot", [1, 1, 1, 1]), "slot", "unknown column", "known columns"),
    ("start null", column("start_ns", [0, None, None, None], "int64"), "steps.start_ns", "the value is missing", "every row", 1),
    ("start of work", column("start_ns", [0, 5, None, 5]), "work.start_ns", "rows of work have no value here", "empty", 1),
    ("tokens 0", column("tokens", [None, None, 4, 0]), "work.tokens", "0 is below 1", "values from 1", 1),
    ("step beyond the last", column("last_step", [None, None, 0, 8]), "work.last_step", "step 8 does not exist", "2 steps", 1),
    ("steps in the header", header(put("steps", {})), "steps", "rows of a Parquet file", "drop it"),
    ("no method", header(drop("method")), "method", "needs the field", "add it"),
]


def cells(name: str, values: Any) -> Callable[[Any], Any]:
    """Replace a column of a data frame."""
    return lambda frame: frame.assign(**{name: values})


FRAME = [
    ("no frame", lambda f: f.to_dict(), None, "a dict is not a data frame", "DataFrame"),
    ("unknown column", cells("tokens", 1), "tokens", "unknown column 'tokens'", "known columns"),
    ("column of no name", lambda f: f.assign(x=1).rename(columns={"x": 0}), "0", "unknown column 0", "known columns"),
    ("column twice", lambda f: f.iloc[:, [0, 0, 1, 2]], "id", "appears twice", "keep one"),
    ("no outputs", lambda f: f.drop(columns="output_tokens"), "output_tokens", "is missing", "add it"),
    ("prompt NaN", cells("prompt_tokens", [1, float("nan"), 3]), "prompt_tokens", "the value is missing", "fill it", 1),
    ("prompt infinite", cells("prompt_tokens", [1, 2, float("inf")]), "prompt_tokens", "inf is not a whole number", "", 2),
    ("prompt a fraction", cells("prompt_tokens", [1.0, 2.5, 3.0]), "prompt_tokens", "2.5 is not a whole number", "", 1),
    ("prompt a text", cells("prompt_tokens", [1, "2", 3]), "prompt_tokens", "'2' is not a whole number", "", 1),
    ("prompts booleans", cells("prompt_tokens", [True, True, True]), "prompt_tokens", "True is not", "", 0),
    ("output 0", cells("output_tokens", [1, 0, 3]), "output_tokens", "0 is below 1", "leave failed", 1),
    ("arrival negative", cells("arrival_s", [0.0, -0.5, 1.0]), "arrival_s", "-0.5 s is negative", "start at 0", 1),
    ("arrival infinite", cells("arrival_s", [0.0, 0.5, float("inf")]), "arrival_s", "inf is not a finite time", "give seconds", 2),
    ("arrival a text", cells("arrival_s", ["0", "1", "2"]), "arrival_s", "'0' is not a number of seconds", "such as 0.5", 0),
    ("arrivals dates", cells("arrival_ns", "date"), "arrival_s", "given twice", "keep one"),
    ("service class unknown", cells("service_class", ["batch", "fast", "batch"]), "service_class", "'fast' is no", "interactive", 1),
    ("id a number", cells("id", ["a", 2, "c"]), "id", "2 is not a name", "give a text", 1),
    ("id twice", cells("id", ["a", "a", "c"]), "id", "'a' appears twice", "unique", 1),
    ("prefixes without size", cells("prefix_ids", [[1], [2], [3]]), "prefix_block_tokens", "is missing", "prefix_ids needs it"),
    ("prefix a number", lambda f: f.assign(prefix_ids=[1, 2, 3], prefix_block_tokens=16), "prefix_ids", "is not a list", "lists", 0),
    ("prefix sizes differ", lambda f: f.assign(prefix_ids=[[1], [2], [3]], prefix_block_tokens=[16, 16, 8]), "prefix_block_tokens", "8 differs", "", 2),
]
# fmt: on

TABLES = {
    "instance": INSTANCE + INSTANCE_BEYOND_SCHEMA, "schedule": SCHEDULE + SCHEDULE_BEYOND_SCHEMA,
    "trace": TRACE, "cost": COST_MODEL + COST_BEYOND_SCHEMA, "requests.csv": REQUESTS_CSV,
    "instance.parquet": INSTANCE_PARQUET, "schedule.parquet": SCHEDULE_PARQUET, "frame": FRAME,
}  # fmt: skip

CASES = [Case(v[0], kind, *v[1:]) for kind, table in TABLES.items() for v in table]
