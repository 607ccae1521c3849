"""--history of solve and report."""

from __future__ import annotations


def test_pictures_of_a_search(call, tmp_path):
    files = [tmp_path / name for name in ("a.json", "b.json", "one.svg", "two.png")]
    a, b, one, two = files
    code, _, err = call("solve", "gate", "--method", "hybrid", "-o", a, "--history", one)
    assert code == 0, err
    assert "history written to" in err
    assert "value-0" in one.read_text()
    assert call("solve", "gate", "--method", "fcfs", "-o", b)[0] == 0
    assert call("report", "gate", a, b, "--history", two)[0] == 0
    assert two.read_bytes()[:4] == b"\x89PNG"
    assert call("solve", "gate", "--history", tmp_path / "x.txt")[0] == 2
