"""Studies as data: a grid, and its cells in a fixed order with keys; settings of a single run."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, dataclass, field, replace
from itertools import product
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from orsched._version import __version__
from orsched.common.columns import whole_number
from orsched.common.errors import InputError, known_names
from orsched.common.own_code import at_path, code_in, is_own, require_consent
from orsched.common.scalars import CELLS
from orsched.common.units import MAX_TOKENS
from orsched.data.autoscaling import Autoscaling, read_autoscaling
from orsched.data.links import Split, read_split
from orsched.files.text import read_toml, require_known, require_table
from orsched.planning.study.axes import (
    InstanceChoice,
    PolicyChoice,
    grid,
    instance_axis,
    listed,
    policy_axis,
)
from orsched.solving.objectives import minimised, named_as_bounds, other_name
from orsched.solving.scenario import Workers, read_workers, worker_files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from orsched.data.service_classes import SLO
    from orsched.instances.arrivals import Arrivals
    from orsched.instances.failures import Exponential
    from orsched.instances.predictions import Predictor


def _readers() -> dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]]:
    """Return what reads a specification of each axis of laws and rules, and what writes it."""
    from orsched.instances.arrivals import read_arrivals
    from orsched.instances.failures import read_failures
    from orsched.instances.predictions import read_predictor

    return {
        "arrivals": (read_arrivals, lambda law: law.spec()),
        "predictions": (read_predictor, _text),
        "failures": (read_failures, _text),
        "autoscale": (read_autoscaling, lambda rule: rule.to_dict()),
        "concurrency": (read_concurrency, int),
    }


def read_concurrency(value: object) -> int:
    """Return how many requests are in flight at most; raises ``InputError``."""
    return whole_number(value, "concurrency", minimum=1, maximum=MAX_TOKENS)


def read_specs(value: object, field: str) -> tuple[Any, ...]:
    """Read an axis of specifications, each once; None for ``as_given`` or an axis left out."""
    read, write = _readers()[field]
    found: list[Any] = []
    for item in [None] if value is None else listed(value, field):
        if item is None or item == "as_given":
            found.append(None)
        else:
            found += map(write, map(read, grid(item) if isinstance(item, dict) else [item]))
    return _distinct(found)


def _workers_axis(value: object, base: Path) -> tuple[Any, ...]:
    """Read numbers of copies, splits, and lists of worker files or tables."""
    if value is None:
        return (None,)
    found: list[Any] = []
    for item in listed(value, "workers"):
        workers = read_workers([item] if isinstance(item, dict) else item, base)
        if isinstance(workers, Split):
            found.append(str(workers))
        elif isinstance(workers, int):
            found.append(workers)
        else:
            found.append([worker.to_dict() for worker in workers])
    return _distinct(found)


def _text(law: Any) -> str:
    """Return a law as a specification with all its parameters."""
    pairs = ",".join(f"{name}={number!r}" for name, number in asdict(law).items())
    return f"{law.law}:{pairs}" if pairs else str(law.law)


def _distinct(items: Iterable[Any]) -> tuple[Any, ...]:
    """Return plain values in order, each once."""
    return tuple({repr(item): item for item in items}.values())


RECORD = 4
"""Version of the records of cells; those of other versions are left alone and run again."""

_MOST_DIGITS = 30
OBJECTIVES = ("makespan", "mean_jct", "mean_ttft")
KEYS = (
    "name", "instances", "policies", "seeds", "parameters", "arrivals", "workers", "predictions",
    "failures", "autoscale", "concurrency", "bounds", "objective", "slo", "iterations", "plots",
)  # fmt: skip
PLOT_KEYS = ("y", "x", "by")


@dataclass(frozen=True)
class Study:
    """A grid: instances x arrivals x workers x predictions x failures x seeds x policies.

    Made by ``read_study``; the attributes are the validated axes.

    Attributes:
        name: a label.
        instances, arrivals, workers, predictions, seeds, policies: the axes; the cells run through
            the last one fastest.
        bounds: which bounds each cell computes.
        slo: limits ``{"ttft_ns", "tpot_ns"}``, with ``text`` those on figures; or None.
        iterations: iterations of methods that search, or None.
        plots: what to draw, each with the keys ``y``, ``x`` and ``by``.
        file: where it was read from, or None.
        failures, autoscale: laws of failures and rules of autoscaling, axes after the predictions.
        concurrency: requests in flight at most, an axis after these.
        objective: names of what methods are to minimise and cells report, an axis; or None.
    """

    name: str
    instances: tuple[InstanceChoice, ...]
    arrivals: tuple[str | None, ...]
    workers: tuple[Any, ...]
    predictions: tuple[str | None, ...]
    seeds: tuple[int, ...]
    policies: tuple[PolicyChoice, ...]
    bounds: tuple[str, ...] = ("makespan",)
    slo: dict[str, Any] | None = None
    iterations: int | None = None
    plots: tuple[dict[str, Any], ...] = field(default=())
    file: str | None = None
    failures: tuple[str | None, ...] = (None,)
    autoscale: tuple[Any, ...] = (None,)
    concurrency: tuple[int | None, ...] = (None,)
    objective: tuple[str | None, ...] = (None,)

    def require_consent(self, allow_code: bool) -> None:
        """Raise ``InputError`` if a file names policies of the user's own, unless allowed."""
        contents = [policy.content for policy in self.policies if self.file is not None]
        own = dict.fromkeys(each["name"] for each in contents if is_own(each["name"]))
        own |= dict.fromkeys(name for each in contents for name in code_in(each["parameters"]))
        try:
            require_consent(own, "policies.name", allow_code)
        except InputError as error:
            raise error.located(file=self.file) from None

    def axes(self) -> tuple[tuple[Any, ...], ...]:
        """Return the axes, the slowest first."""
        return (
            self.instances, self.arrivals, self.workers, self.predictions, self.failures,
            self.autoscale, self.concurrency, self.seeds, self.objective, self.policies,
        )  # fmt: skip

    def cells(self) -> list[Cell]:
        """Return all cells in order; those that are equal stand once."""
        found: dict[str, Cell] = {}
        for instance, arrivals, workers, predictions, *rest, seed, aim, policy in product(
            *self.axes()
        ):
            fleet = dict(zip(("failures", "autoscale", "concurrency"), rest, strict=True))
            problem = {
                "instance": instance.content,
                "arrivals": arrivals,
                "workers": workers,
                "predictions": predictions,
                **{name: said for name, said in fleet.items() if said is not None},
                "seed": seed,
                "bounds": list(self.bounds),
            }
            content = {
                "orsched": __version__,
                "record": RECORD,
                **problem,
                "policy": policy.content,
                "slo": self.slo,
                "iterations": self.iterations,
                # Left out where none is named, so that cells of before there were any stay.
                **({} if aim is None else {"objective": aim}),
            }
            cell = Cell(key_of(content), key_of(problem), content, instance, policy)
            found.setdefault(cell.key, cell)
        return list(found.values())


class Cell(NamedTuple):
    """One run: ``content`` is all that its results depend on, as plain JSON values.

    ``key`` is the content's hash and the name of the file, ``problem`` the hash of what instance
    and bounds follow from; the choices know where files lie.
    """

    key: str
    problem: str
    content: dict[str, Any]
    instance: InstanceChoice
    policy: PolicyChoice

    def task(self) -> dict[str, Any]:
        """Return what a worker process needs, as plain JSON values."""
        return {
            "key": self.key,
            "problem": self.problem,
            "content": self.content,
            "path": self.instance.path,
        }


def record_of(job: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """Return the record of a cell, or of another job with a key and a content, to be filled in."""
    known = {"format": "orsched/cell", "version": RECORD, "key": job["key"], "cell": job["content"]}
    return {**known, **more}


def key_of(content: Mapping[str, Any]) -> str:
    """Return the hash of plain JSON values: 40 hexadecimal digits of SHA-256."""
    text = json.dumps(content, sort_keys=True, ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:40]


def read_study(
    source: Study | Mapping[str, Any] | str | os.PathLike[str], base: str | None = None
) -> Study:
    """Return a study from a TOML file, or from a mapping with the same keys.

    The keys are those of the page *Studies*. In a mapping, ``Instance`` objects may stand among the
    instances; relative paths count from ``base``, in a file from its folder. Nothing that the study
    names is imported.

    Raises:
        InputError: a key or value is wrong; the message names it.
    """
    if isinstance(source, Study):
        return source
    if isinstance(source, (str, os.PathLike)):
        path = Path(source)
        try:
            read = read_study({"name": path.stem, **read_toml(path)}, str(path.parent))
            return replace(read, file=str(path))
        except InputError as error:
            raise error.located(file=str(path)) from None
    table = dict(source)
    require_known(table, "", KEYS)
    folder = Path(base or ".")
    for key in ("instances", "policies"):
        if key not in table:
            raise InputError("is missing", field=key, remedy=f"say what to run: {key} = [...]")
    shared = require_table(table.get("parameters", {}), "parameters")
    objective = _objectives(table.get("objective"))
    study = Study(
        _name(table.get("name", "study")),
        instance_axis(table["instances"], folder),
        read_specs(table.get("arrivals"), "arrivals"),
        _workers_axis(table.get("workers"), folder),
        read_specs(table.get("predictions"), "predictions"),
        _seeds(table.get("seeds", [0])),
        policy_axis(table["policies"], shared, folder),
        _bounds(table.get("bounds", ["makespan"]), objective),
        _slo(table.get("slo")),
        _iterations(table.get("iterations")),
        _plots(table.get("plots", [])),
        failures=read_specs(table.get("failures"), "failures"),
        autoscale=read_specs(table.get("autoscale"), "autoscale"),
        concurrency=read_specs(table.get("concurrency"), "concurrency"),
        objective=objective,
    )
    CELLS.require(prod(map(len, study.axes())), "seeds")
    return study


def _iterations(value: object) -> int | None:
    return None if value is None else whole_number(value, "iterations", minimum=1)


def _name(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise InputError("must be a text", field="name")
    return value


def _seeds(value: object) -> tuple[int, ...]:
    """Read ``"A:B"`` (A to B - 1), a number, or a list of numbers."""
    if isinstance(value, str):
        first, last = _range(value)
        CELLS.require(last - first, "seeds")
        return tuple(range(first, last))
    values = value if isinstance(value, list) else [value]
    if not values:
        raise InputError("holds no seed", field="seeds", remedy='e.g. "0:10"')
    return tuple(dict.fromkeys(whole_number(item, "seeds") for item in values))


def _range(value: str) -> tuple[int, int]:
    first, _, last = value.partition(":")
    numbers = all(
        end.isascii() and end.isdigit() and len(end) <= _MOST_DIGITS for end in (first, last)
    )
    if not numbers or int(first) >= int(last):
        raise InputError(f"{value!r} is not A:B", field="seeds", remedy='e.g. "0:10"')
    return whole_number(int(first), "seeds"), whole_number(int(last), "seeds")


def _objectives(value: object) -> tuple[str | None, ...]:
    if value is None:
        return (None,)
    names = listed(value, "objective")
    if not all(isinstance(name, str) for name in names):
        raise InputError("must be a text", field="objective", remedy='e.g. "jct_mean"')
    return _distinct(minimised(name).name for name in names)


def _bounds(value: object, objectives: tuple[str | None, ...]) -> tuple[str, ...]:
    """Read the bounds that each cell computes; those of the objectives are among them."""
    if not isinstance(value, list):
        raise InputError("must be a list", field="bounds", remedy=", ".join(OBJECTIVES))
    value = [other_name(item) if isinstance(item, str) else item for item in value]
    for item in value:
        if item not in OBJECTIVES:
            raise InputError(
                f"no bound on {item!r}",
                field="bounds",
                remedy=known_names(item, OBJECTIVES),
            )
    for aim in (minimised(name) for name in objectives if name is not None):
        value += [*named_as_bounds(aim), *(name for name in aim.parts if name == "makespan")]
    return tuple(name for name in (*OBJECTIVES, "weighted_jct_mean") if name in value)


def _slo(value: object) -> dict[str, Any] | None:
    from orsched.data.service_classes import SLO

    if value is None:
        return None
    table = dict(require_table(value, "slo", ("ttft_s", "tpot_s", "limits")))
    return slo_content(SLO(table.pop("limits", ()), **table))


def slo_content(slo: SLO) -> dict[str, Any]:
    """Return the arguments that give an objective back, as JSON values."""
    text = {"text": ",".join(map(str, slo.figures))} if slo.figures else {}
    return {"ttft_ns": slo.ttft_ns, "tpot_ns": slo.tpot_ns, **text}


def _plots(value: object) -> tuple[dict[str, Any], ...]:
    if not isinstance(value, list):
        raise InputError("must be a list of tables", field="plots", remedy="write [[plots]]")
    for item in value:
        require_table(item, "plots", PLOT_KEYS)
        for key, name in item.items():
            if not isinstance(name, str):
                raise InputError("must be the name of a column", field=f"plots.{key}")
        if "y" not in item:
            raise InputError("is missing", field="plots.y", remedy='e.g. y = "jct_ns_mean"')
    return tuple(value)


class Settings(NamedTuple):
    """What a run is made of, beside its instance; None where nothing is said."""

    policy: str | None = None
    information: str | None = None
    parameters: dict[str, Any] = {}  # noqa: RUF012  (never written to)
    workers: Workers | None = None
    arrivals: Arrivals | None = None
    predictions: Predictor | None = None
    seed: int | None = None
    files: tuple[Path, ...] | None = None
    """Those that the workers were read from."""
    failures: Exponential | None = None
    autoscale: Autoscaling | None = None
    concurrency: int | None = None


def read_settings(path: str | os.PathLike[str]) -> Settings:
    """Return the settings in a TOML file; ``InputError`` names the key that is unknown or wrong.

    ``[policy]`` has ``name``, ``information`` and the table ``parameters``; ``[workers]`` has
    ``count``, ``split`` or ``files`` (relative to the file); ``[arrivals]``, ``[predictions]`` and
    ``[failures]`` have ``law`` and the law's parameters, ``[autoscale]`` what
    ``read_autoscaling`` takes. ``seed`` and ``concurrency`` come before the tables.
    """
    file = os.fspath(path)
    try:
        return _settings(read_toml(path), Path(path).parent)
    except InputError as error:
        raise error.located(file=file) from None


def _settings(table: dict[str, Any], base: Path) -> Settings:
    tables = ("policy", "workers", "arrivals", "predictions", "failures", "autoscale")
    require_known(table, "", ("seed", "concurrency", *tables))
    policy = require_table(table.get("policy", {}), "policy", ("name", "information", "parameters"))
    for key in ("name", "information"):
        if key in policy and not isinstance(policy[key], str):
            raise InputError("must be a text", field=f"policy.{key}")
    name = policy.get("name")
    return Settings(
        None if name is None else at_path(name, base),
        policy.get("information"),
        require_table(policy.get("parameters", {}), "policy.parameters"),
        _workers(table["workers"], base) if "workers" in table else None,
        _law(table, "arrivals"),
        _law(table, "predictions"),
        whole_number(table["seed"], "seed") if "seed" in table else None,
        worker_files(table["workers"].get("files"), base) if "workers" in table else None,
        _law(table, "failures"),
        _law(table, "autoscale"),
        read_concurrency(table["concurrency"]) if "concurrency" in table else None,
    )


def _workers(value: object, base: Path) -> Workers:
    table = require_table(value, "workers", ("count", "files", "split"))
    if len(table) != 1:
        raise InputError(
            "needs one of count, files and split",
            field="workers",
            remedy='count = N, files = [...] or split = "2P2D:ns_per_token=5243"',
        )
    if "split" in table:
        found = read_split(table["split"]) if isinstance(table["split"], str) else None
        if found is None:
            raise InputError("is not a split", field="workers.split", remedy='split = "2P2D"')
        return found
    if "count" in table:
        return read_workers(whole_number(table["count"], "workers.count", minimum=1))
    return read_workers(table["files"], base)


def _law(table: dict[str, Any], name: str) -> Any:
    """Return the law or rule in a table of the settings, None where there is none."""
    if name not in table:
        return None
    read, _ = _readers()[name]
    return read(require_table(table[name], name))
