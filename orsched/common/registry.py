"""The one registry: names to attributes, resolved at first use.

The table below and the entry points of installed packages: ``orsched.methods``,
``orsched.policies`` (classes, which become methods), ``orsched.cost_models``, ``orsched.readers``.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any

from orsched.common.errors import InputError, known_names

BUILT_IN: dict[str, dict[str, str]] = {
    "cost_models": {
        "affine": "orsched.costs.affine:AffineCost",
        "levels": "orsched.costs.affine:LevelsCost",
        "bilinear": "orsched.costs.bilinear:BilinearCost",
        "pooling": "orsched.costs.pooling:PoolingCost",
        "profiled": "orsched.costs.profiled:ProfiledCost",
        "roofline": "orsched.costs.roofline:RooflineCost",
        "linear": "orsched.costs.linear:LinearCost",
    },
    # What code asks of rooms above its own: charts, tables, frames, training, first schedules.
    "attached": {
        "all_methods": "orsched.solving.method_choice:all_methods",
        "fit_proxy": "orsched.prediction.proxies.training:fit_proxy",
        "batches_chart": "orsched.views.loads:batches_chart",
        "figure_of": "orsched.views.figures:figure_of",
        "loads_chart": "orsched.views.loads:loads_chart",
        "planned_shares": "orsched.heuristics.dispatching.planned:planned_shares",
        "instance_html": "orsched.views.html_tables:instance_html",
        "request_times": "orsched.metrics.token_times:request_times",
        "requests_from_frame": "orsched.instances.readers.own_columns:requests_of_frame",
        "requests_to_frame": "orsched.files.request_columns:requests_to_frame",
        "schedule_html": "orsched.views.html_tables:schedule_html",
        "sensitivity_chart": "orsched.views.loads:sensitivity_chart",
        "slack_chart": "orsched.views.loads:slack_chart",
        "solve": "orsched.solving.solver:solve",
        "without_rejected": "orsched.planning.rejection:without_rejected",
    },
    "methods": {
        "fcfs": "orsched.heuristics.pang:FCFS",
        "offline": "orsched.heuristics.pang:OFFLINE",
        "online": "orsched.heuristics.pang:ONLINE",
        "hybrid": "orsched.heuristics.pang:HYBRID",
        "vllm": "orsched.heuristics.continuous.async_scheduling:VLLM",
        "vtc": "orsched.heuristics.vtc:VTC",
        "disaggregated": "orsched.heuristics.disaggregated:DISAGGREGATED",
        "static": "orsched.heuristics.continuous.static_batching:STATIC",
        "dynamic": "orsched.heuristics.continuous.static_batching:DYNAMIC",
        "one_at_a_time": "orsched.heuristics.continuous.static_batching:ONE_AT_A_TIME",
        "sls": "orsched.heuristics.scls.sliced:SLS",
        "ils": "orsched.heuristics.scls.continuous:ILS",
        "scls": "orsched.heuristics.scls.sliced:SCLS",
        "scls_continuous": "orsched.heuristics.scls.continuous:SCLS_CONTINUOUS",
        "ssjf": "orsched.heuristics.shortest_first:SSJF",
        "sjf": "orsched.heuristics.shortest_first:SJF",
        "fcfs_batched": "orsched.heuristics.shortest_first:FCFS_BATCHED",
        "mico": "orsched.heuristics.mico.mico:MICO",
        "gittins": "orsched.heuristics.gittins.policy:GITTINS",
        "echo": "orsched.heuristics.echo:ECHO",
        "hygen": "orsched.heuristics.colocation.hygen:HYGEN",
        "conserve": "orsched.heuristics.colocation.hygen:CONSERVE",
        "slack": "orsched.heuristics.slack:SLACK",
        "mc_sf": "orsched.heuristics.mc_sf:MC_SF",
        "robust": "orsched.heuristics.robust:ROBUST",
        "windows": "orsched.models.windows.method:WINDOWS",
        "fleet": "orsched.models.fleet.method:FLEET",
        "latency_search": "orsched.models.latency_search.method:LATENCY_SEARCH",
        "exact": "orsched.models.exact:EXACT",
        "auto": "orsched.models.exact:AUTO",
    },
}


@cache
def _entry_points(kind: str) -> dict[str, str]:
    from importlib.metadata import entry_points

    return {e.name: e.value for e in entry_points(group=f"orsched.{kind}")}


def names(kind: str) -> list[str]:
    """Return the registered names of a kind, the built-in ones first."""
    built_in = list(BUILT_IN.get(kind, {}))
    return built_in + sorted(set(_entry_points(kind)) - set(built_in))


def resolve(kind: str, name: str) -> Any:
    """Return what a name stands for, imported now; ``InputError`` lists the known ones."""
    target = BUILT_IN.get(kind, {}).get(name) or _entry_points(kind).get(name)
    if target is None:
        raise InputError(
            f"unknown {kind.replace('_', ' ').rstrip('s')} {name!r}",
            field=kind,
            remedy=known_names(name, names(kind)),
        )
    module, _, attribute = target.partition(":")
    return getattr(import_module(module), attribute)


def attached(name: str) -> Any:
    """Return a function of a room above the caller's, by its name in the table."""
    return resolve("attached", name)


def cost_model(name: str) -> Any:
    """Return the cost model class of a name."""
    return resolve("cost_models", name)


def method_information(name: str) -> tuple[str, ...] | None:
    """Return the information classes that a method may run with, or None for unknown names."""
    try:
        method = resolve("methods", name)
    except InputError:
        return None
    return tuple(str(kind) for kind in method.information)
