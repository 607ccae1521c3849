"""Metrics by tenant, and how far the service of tenants that wait differs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.metrics.distributions import ratio
from orsched.metrics.tenant_service import OUTPUT_WEIGHT, PROMPT_WEIGHT, TenantService

if TYPE_CHECKING:
    from orsched.common.columns import IntColumn
    from orsched.metrics.timeline import Timeline


def tenant_figures(line: Timeline, first: IntColumn, finish: IntColumn) -> dict[str, Any]:
    """Return the numbers of each tenant under ``tenants``, and ``fairness``; nothing without them.

    ``service_difference`` is the largest difference between the service that two tenants get while
    requests of both wait (Sheng et al., OSDI 2024, definition 1): prompt tokens count
    ``prompt_weight``, output tokens ``output_weight``. ``between`` names the two, ``compared`` is
    how many tenants, those with most tokens, were compared.
    """
    requests = line.instance.requests
    if requests.tenant is None:
        return {}
    numbers, place, count = np.unique(requests.tenant, return_inverse=True, return_counts=True)
    columns = {
        "prompt_tokens": requests.prompt_tokens,
        "output_tokens": requests.output_tokens,
        "ttft": first - requests.arrival_ns,
        "jct": finish - requests.arrival_ns,
    }
    sums = {name: _by_tenant(place, column, len(numbers)) for name, column in columns.items()}
    tenants = {}
    for i, number in enumerate(numbers.tolist()):
        many = int(count[i])
        tenants[requests.tenant_name(number)] = {
            "requests": many,
            "prompt_tokens": sums["prompt_tokens"][i],
            "output_tokens": sums["output_tokens"][i],
            "ttft_mean_ns": ratio(sums["ttft"][i], many),
            "jct_mean_ns": ratio(sums["jct"][i], many),
        }
    return {"tenants": tenants, "fairness": _fairness(line)}


def _by_tenant(place: IntColumn, column: IntColumn, tenants: int) -> list[int]:
    """Exact sums by tenant: halves of the numbers are added apart."""
    high, low = np.zeros(tenants, np.int64), np.zeros(tenants, np.int64)
    np.add.at(high, place, column >> 32)
    np.add.at(low, place, column & 0xFFFFFFFF)
    return [(h << 32) + rest for h, rest in zip(high.tolist(), low.tolist(), strict=True)]


def _fairness(line: Timeline) -> dict[str, Any]:
    service = TenantService(line)
    difference, pair = service.largest_difference()
    name = line.instance.requests.tenant_name
    return {
        "prompt_weight": PROMPT_WEIGHT,
        "output_weight": OUTPUT_WEIGHT,
        "compared": len(service.tenants),
        "service_difference": difference,
        "between": None if pair is None else [name(each) for each in pair],
    }
