"""The cases of the routing benchmark, and a row of its table."""

from benchmarks import routing


def test_a_popular_prefix_needs_a_load_weight(monkeypatch, tmp_path):
    """With pure affinity one worker serves all: four times the mean."""
    monkeypatch.setattr(routing, "WEIGHTS", (0, 4000))
    monkeypatch.setattr(routing, "PLAIN", ("latency",))
    monkeypatch.setitem(routing.CASES, "one prefix", lambda cases: routing.one_prefix(cases, 40))
    rows = routing.rows_of("one prefix", tmp_path)
    assert [row["dispatch"] for row in rows] == [
        "latency", "latency, limits known", "prefix, 0", "prefix, 4000"
    ]  # fmt: skip
    found = {row["dispatch"]: row for row in rows}
    assert found["prefix, 0"]["imbalance"] == 4
    assert all(row["imbalance"] < 2 for name, row in found.items() if name != "prefix, 0")
    assert all(row["TTFT p99 s"] >= row["TTFT s"] > 0 for row in rows)
