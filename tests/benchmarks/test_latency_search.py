"""The table of ``latency_search`` with all requests at 0, on a small instance."""

from benchmarks import latency_search


def test_a_row_a_class_and_seed_with_gaps_from_0(capsys):
    latency_search.main(
        ["--instances", "two-by-two", "--seconds", "0.5", "--seeds", "2", "--steps", "stages"]
    )
    head, line, *rows = capsys.readouterr().out.splitlines()
    assert head.count("|") == line.count("|") == 9
    assert len(rows) == 2
    for seed, row in enumerate(rows):
        cells = [cell.strip() for cell in row.split("|")]
        assert cells[3:5] == ["stages, rounds", str(seed)]
        assert int(cells[5]) > 0
        assert float(cells[8].removesuffix("%")) >= 0
