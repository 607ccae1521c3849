"""The table of exact means: rows with a proof, and bounds below what was found."""

from __future__ import annotations

from benchmarks import exact_means


def test_rows_say_what_was_proven(capsys):
    exact_means.main(["--sizes", "4x2", "--seeds", "1", "--seconds", "20"])
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| 4x2")]
    assert len(lines) == 4
    for line in lines:
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        assert cells[3] == "1 of 1"
        assert float(cells[-2]) <= 1 <= float(cells[-1])
