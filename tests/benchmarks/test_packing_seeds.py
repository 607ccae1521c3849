"""The figures of many packings: what counts as proven, and what is named."""

from __future__ import annotations

from benchmarks.speed.packing_seeds import Answer, main, measure, summary


def test_a_proof_that_the_checker_refuses_is_none():
    answers = [
        Answer(7, 0.5, 0.4, 10, 10, 0),
        Answer(8, 1.5, 1.4, 11, 10, 0),
        Answer(9, 0.1, 0.1, 10, 10, 1),
    ]
    text = summary("H", answers)
    assert "seeds 7 to 9: 1 of 3 proven, 1 refused" in text
    assert text.count("over 1 s: 1") == 2
    assert "slowest: 8 (CPU 1.40 s, wall 1.50 s), 7" in text
    assert "not proven: seed 8, makespan 11, bound 10" in text
    assert "not proven: seed 9" in text


def test_an_instance_of_a_family_is_packed_and_checked(capsys, tmp_path):
    assert measure("E4", 3, 5.0).proven
    log = tmp_path / "answers.csv"
    assert main(["E4", "--first", "3", "--count", "2", "--cpu", "--log", str(log)]) == 0
    assert "E4, seeds 3 to 4: 2 of 2 proven" in capsys.readouterr().out
    lines = log.read_text(encoding="utf-8").splitlines()
    assert lines[0] == ",".join(Answer._fields)
    assert [line.split(",")[0] for line in lines[1:]] == ["3", "4"]


def test_a_limit_in_seconds_of_cpu_ends_a_packing(capsys):
    assert main(["H", "--first", "20009", "--count", "1", "--cpu", "--limit", "0.2"]) == 0
    assert "not proven: seed 20009" in capsys.readouterr().out
