"""The grid of a profile, and that it measures what it says."""

from types import SimpleNamespace

import pytest

from orsched.calibration.fit import fit
from orsched.runner import profiling
from orsched.runner.profiling import LEAST_NS, SEVERAL, Point, Reference, Speed, grid, profile
from tests.refusals import refused


def test_the_grid_holds_the_extremes_and_fits_the_worker():
    points = grid(slots=20, length=300, most_tokens=2048)
    assert len(set(points)) == len(points)
    for point in points:
        assert 1 <= point.count <= 20
        assert point.length + point.context >= 1
        assert max(point.length, point.context) <= 300
        if point.phase == "prefill":
            assert point.count * point.length <= 2048
    assert {point.count for point in points if point.phase == "decode"} >= {1, 20}
    assert {point.phase for point in points} == {"prefill", "decode", "mixed"}
    assert {point.phase for point in grid(1, 40, 100)} == {"prefill", "decode"}


def test_small_stages_are_denser():
    points = grid(slots=20, length=3000, most_tokens=2048)
    single = {p.length for p in points if p.phase == "prefill" and p.count == 1}
    assert {8, 16, 32, 64, 128, 256, 512, 2048} <= single
    pairs = {p.length for p in points if p.phase == "prefill" and p.count == 2}
    assert {8, 32, 128, 512} <= pairs
    assert not {16, 64, 256} & pairs


@pytest.mark.parametrize(("length", "cap"), [(1, 2048), (4, 2048), (35, 2048), (64, 35)])
def test_what_is_too_short_for_a_grid_is_refused(length, cap):
    refused("too few sizes", grid, 4, length, cap)


SIZES = [(36, 36), (100, 64), (515, 2048), (4000, 2048), (4000, 36)]


@pytest.mark.parametrize("slots", [1, 2, 3, 200])
@pytest.mark.parametrize(("length", "cap"), SIZES)
def test_every_grid_has_points_to_hold_out(slots, length, cap):
    points = grid(slots, length, cap)
    for phase in ("prefill", "decode"):
        assert sum(point.phase == phase for point in points) >= 5


def torch_device(**settings):
    pytest.importorskip("torch", reason="the extra 'runner' is not installed")
    from orsched.runner.devices.device import TorchDevice
    from tests.runner.torch_workers import torch_worker

    return TorchDevice(torch_worker("tiny", **settings))


def test_profiles_become_measurements_that_can_be_fitted():
    device = torch_device(slots=4, length=64)
    points = [point for point in grid(4, 64, 128) if point.phase != "mixed"]
    told, walks = [], []
    hear = {"report": lambda *of: told.append(of),
            "between": lambda walk: walks.append((walk, len(told)))}  # fmt: skip
    found = profile(device, points, repeats=2, **hear)
    assert told[-1] == (3 * len(points), 3 * len(points))
    assert walks == [(walk, walk * len(points)) for walk in (1, 2, 3)]
    assert len(found) == len(points)
    assert found.column("duration_ns").min() > 0
    assert fit("affine", found, holdout=0.2).report["phases"]["decode"]["held_out"] > 0
    passes = device.worker.forward_passes
    assert passes == 3 * sum(4 if p.phase == "decode" else 1 for p in points)
    cached = sorted(p.cached for p in points if p.cached)
    assert {(p.phase, p.count) for p in points if p.cached} == {("prefill", 1)}
    assert sorted(found.column("cached").tolist())[-len(cached) :] == cached
    refused("does not fit", profile, device, [Point("prefill", 5, 8, 0)])
    refused("does not fit", profile, device, [Point("prefill", 1, 8, 0, cached=57)])


def test_mixed_steps_of_a_grid_have_one_prompt_or_several():
    slots = SEVERAL + 2
    mixed = [point for point in grid(slots, 64, 128) if point.phase == "mixed"]
    assert {point.beside for point in mixed} == {1, SEVERAL}
    assert all(point.count + point.beside <= slots for point in mixed)
    points = [next(p for p in mixed if p.beside == beside) for beside in (1, SEVERAL)]
    found = profile(torch_device(slots=slots, length=64), points, repeats=1)
    for point in points:
        row = found.column("tokens").tolist().index(point.length * point.beside)
        assert found.prompts(row) == [point.length] * point.beside
        assert int(found.column("count")[row]) == point.count


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
    slots = SimpleNamespace(count=3, length=40)
    watch = Reference(SimpleNamespace(worker=SimpleNamespace(slots=slots)))
    times[:] = [1_000_000]
    watch.look()
    assert len(seen) == 1 + -(-LEAST_NS // (profiling.ROUNDS * 1_000_000))
    times[:] = [LEAST_NS]
    watch.look()
    assert len(set(seen)) == 1  # one and the same step
    assert seen[0].contexts() == [20, 20, 20]
    assert watch.speed().reference_ns == (1_000_000, LEAST_NS)


@pytest.mark.parametrize(("times", "moved", "told"), [
    ((100, 100), 0.0, False), ((100, 109, 104), 0.09, False), ((100, 140, 100), 0.4, True),
    ((300, 150), 1.0, True),
])  # fmt: skip
def test_a_machine_that_does_not_keep_its_speed_is_told(times, moved, told):
    speed = Speed(times)
    assert speed.moved == pytest.approx(moved)
    found = speed.warnings()
    assert len(found) == told
    assert not told or f"moved by {100 * moved:.0f} %" in found[0]
    assert speed.to_dict() == {"reference_ns": list(times), "moved": pytest.approx(moved)}
