"""The table of the slowest requests: what it says of a run that is worked out by hand."""

from __future__ import annotations

import pytest

from benchmarks.reproductions import tail_requests
from orsched import AffineCost, Instance, Requests, Worker
from tests.in_order import in_order


def test_the_slowest_hundredth_of_a_run_is_told(monkeypatch, capsys):
    """Both prefills are one stage of 30 ms; then the long one goes on alone, 20 ms a round."""
    worker = Worker(2, in_order(AffineCost, 10_000_000, 1_000_000, 18_000_000, 2_000_000))
    instance = Instance(Requests([5, 15], [1, 101]), (worker,), "prefill")
    found = tail_requests.slowest(instance)
    assert found["p99 s"] == pytest.approx(0.030 + 100 * 0.020)
    assert found["waits, %"] == pytest.approx(100 * 30 / 2030)
    assert (found["pace, ms"], found["pace alone, ms"]) == (20.0, 20.0)
    assert found["prompt over median"] == 1.5
    assert found["answer over median"] == pytest.approx(101 / 51)
    monkeypatch.setattr(tail_requests, "workload", lambda *_: instance)
    tail_requests.main(["--seeds", "2"])
    assert "| ShareGPT, gamma | 2.0 | 1.5 | 1.5 | 2.0 | 20.0 | 20.0 |" in capsys.readouterr().out
