"""The benchmark of the report: its pages keep the limit on size."""

from __future__ import annotations

import re

from benchmarks.report_page import main


def test_pages_stay_below_eight_megabytes(capsys):
    assert main(["--quick", "--no-browser"]) == 0
    sizes = [
        float(size) for size in re.findall(r"\| ([0-9.]+) \| [0-9.]+ \| –", capsys.readouterr().out)
    ]
    assert len(sizes) == 3
    assert max(sizes) < 8
