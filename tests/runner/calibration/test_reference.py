"""The step that is repeated to see whether a machine keeps its speed."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from orsched.runner import profiling
from orsched.runner.profiling import LEAST_NS, Reference, Speed


@pytest.fixture
def machine(monkeypatch):
    """Return the times that steps take from now on, and the points that were measured."""
    times, seen = [], []

    def measure(device, point, rng):
        seen.append(point)
        return times[0]

    monkeypatch.setattr(profiling, "measured_ns", measure)
    return times, seen


def test_a_look_takes_its_time_and_keeps_the_mean(machine):
    times, seen = machine
    watch = Reference(
        SimpleNamespace(worker=SimpleNamespace(slots=SimpleNamespace(count=3, length=40)))
    )
    times[:] = [1_000_000]
    watch.look()
    assert len(seen) == 1 + -(-LEAST_NS // (profiling.ROUNDS * 1_000_000))
    times[:] = [LEAST_NS]
    watch.look()
    assert len(set(seen)) == 1  # one and the same step
    assert seen[0].contexts() == [20, 20, 20]
    assert watch.speed().reference_ns == (1_000_000, LEAST_NS)


@pytest.mark.parametrize(
    ("times", "moved", "told"),
    [
        ((100, 100), 0.0, False),
        ((100, 109, 104), 0.09, False),
        ((100, 140, 100), 0.4, True),
        ((300, 150), 1.0, True),
    ],
)
def test_a_machine_that_does_not_keep_its_speed_is_told(times, moved, told):
    speed = Speed(times)
    assert speed.moved == pytest.approx(moved)
    found = speed.warnings()
    assert len(found) == told
    assert not told or f"moved by {100 * moved:.0f} %" in found[0]
    assert speed.to_dict() == {"reference_ns": list(times), "moved": pytest.approx(moved)}
