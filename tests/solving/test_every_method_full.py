"""Every method of Pang, with each information, on every shipped instance under both rules."""

from __future__ import annotations

import pytest

import orsched
from orsched.heuristics.pang import FCFS, HYBRID, OFFLINE, ONLINE
from orsched.instances.catalog import names

pytestmark = pytest.mark.full

SPECS = [f"{m.name}@{i}" for m in (FCFS, OFFLINE, ONLINE, HYBRID) for i in m.information]


@pytest.mark.parametrize("rule", ["decode", "prefill"])
@pytest.mark.parametrize("name", names())
def test_every_method_on_every_shipped_instance(name, rule):
    """Checked, at least the bound, and with predictions that are all wrong still valid."""
    instance = orsched.load(name).replace(first_token=rule)
    requests = instance.requests
    if requests.predicted_tokens is None:
        wrong = requests.output_tokens[::-1]
        instance = instance.replace(requests=requests.replace(predicted_tokens=wrong))
    for spec in SPECS:
        result = orsched.solve(instance, spec, iterations=3)
        assert result.checked
        assert result.makespan_ns >= result.bound_ns > 0 or len(instance) == 0
        assert result.schedule.information == spec.partition("@")[2]
