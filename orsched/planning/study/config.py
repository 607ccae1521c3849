"""Settings of ``orsched simulate`` in a TOML file: [policy], [workers], [arrivals] and so on."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from orsched.common.columns import whole_number
from orsched.common.errors import InputError
from orsched.common.own_code import at_path
from orsched.data.autoscaling import Autoscaling, read_autoscaling
from orsched.data.splits import read_split
from orsched.files.text import read_toml, require_known, require_table
from orsched.solving.scenario import Workers, read_workers, worker_files

if TYPE_CHECKING:
    from orsched.instances.arrivals import Arrivals
    from orsched.instances.failures import Exponential
    from orsched.instances.predictions import Predictor


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


def read_settings(path: str | os.PathLike[str]) -> Settings:
    """Return the settings in a TOML file; every key is checked.

    ``[policy]`` has ``name``, ``information`` and the table ``parameters``; ``[workers]`` has
    ``count`` or ``files`` (relative to the file); ``[arrivals]``, ``[predictions]`` and
    ``[failures]`` have ``law`` and the law's parameters, ``[autoscale]`` what
    ``read_autoscaling`` takes. ``seed`` stands before the tables.

    Raises:
        InputError: the file is no TOML, or a key or value is unknown or wrong.
    """
    file = os.fspath(path)
    try:
        return _settings(read_toml(path), Path(path).parent)
    except InputError as error:
        raise error.located(file=file) from None


def _settings(table: dict[str, Any], base: Path) -> Settings:
    tables = ("policy", "workers", "arrivals", "predictions", "failures", "autoscale")
    require_known(table, "", ("seed", *tables))
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
        _arrivals(table["arrivals"]) if "arrivals" in table else None,
        _predictions(table["predictions"]) if "predictions" in table else None,
        whole_number(table["seed"], "seed") if "seed" in table else None,
        worker_files(table["workers"].get("files"), base) if "workers" in table else None,
        _failures(table["failures"]) if "failures" in table else None,
        read_autoscaling(require_table(table["autoscale"], "autoscale"))
        if "autoscale" in table
        else None,
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


def _arrivals(value: object) -> Arrivals:
    from orsched.instances.arrivals import read_arrivals

    return read_arrivals(require_table(value, "arrivals"))


def _predictions(value: object) -> Predictor:
    from orsched.instances.predictions import read_predictor

    return read_predictor(require_table(value, "predictions"))


def _failures(value: object) -> Exponential:
    from orsched.instances.failures import read_failures

    return read_failures(require_table(value, "failures"))
