"""Measured machines: each says of what, and is what the committed command makes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from benchmarks.machine_presets import SOURCES, made
from orsched.calibration import cost_words, machine
from orsched.calibration.catalogue import MEASURED, PRESETS, measured
from orsched.costs import floor_faults
from orsched.files import load_fitted_cost

DATA = Path(os.environ.get("ORSCHED_DATA", "none"))


def test_every_preset_says_device_date_software_and_error():
    presets = [each for each in measured() if each.kind == MEASURED]
    assert {each.name for each in presets} == set(SOURCES)
    assert {path.stem for path in PRESETS.glob("*.json")} == set(SOURCES)
    for each in presets:
        assert {"device", "date", "software", "error"} <= set(each.facts)
        assert cost_words(each.cost) == each.words
        assert each.words.endswith("(measured)")
        assert floor_faults(each.cost, steps=100) == []
        assert machine(each.name) is each


def test_a_preset_is_near_its_data_sheet():
    """Neither is right, but a slip of a power of ten in one of them would show."""
    for name in SOURCES:
        own, sheet = machine(name).cost, machine(f"{name}-sheet").cost
        for active in (1, 64, 200):
            load = (active, 300 * active, 300)
            assert own.round_ns(*load) == pytest.approx(sheet.round_ns(*load), rel=0.3)
        assert own.prefill_ns([2000]) == pytest.approx(sheet.prefill_ns([2000]), rel=0.3)


@pytest.mark.skipif(not (DATA / "h100").is_dir(), reason="ORSCHED_DATA has no folder h100")
@pytest.mark.parametrize("name", SOURCES)
def test_the_file_is_what_the_command_makes(name):
    cost, report = made(DATA, SOURCES[name])
    assert load_fitted_cost(PRESETS / f"{name}.json") == (cost, report)
    assert all(abs(run["error"]) < 0.04 for run in report["runs"])
