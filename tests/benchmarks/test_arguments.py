"""Numbers on the command lines of benchmarks."""

from __future__ import annotations

import pytest

from benchmarks import dispatching, latency_search
from benchmarks.reproductions import disaggregation, four_workloads, scls, six_workloads, ssjf


@pytest.mark.parametrize("wrong", ["0", "-1", "1.5", "x", "", "nan"])
def test_what_is_no_number_of_something_is_said(wrong, capsys):
    for main, option in (
        (disaggregation.main, "--seeds"),
        (disaggregation.main, "--requests"),
        (six_workloads.main, "--jobs"),
        (six_workloads.main, "--tuning"),
        (dispatching.main, "--seeds"),
        (latency_search.main, "--seeds"),
        (scls.main, "--seeds"),
        (ssjf.main, "--seeds"),
        (four_workloads.main, "--seeds"),
    ):
        with pytest.raises(SystemExit) as caught:
            main([f"{option}={wrong}"])
        assert caught.value.code == 2
        assert "at least 1" in capsys.readouterr().err


@pytest.mark.parametrize("wrong", ["0", "-1", "nan", "inf", "x"])
def test_what_is_no_load_is_said(wrong, capsys):
    with pytest.raises(SystemExit):
        six_workloads.main([f"--load={wrong}"])
    assert "above 0" in capsys.readouterr().err
