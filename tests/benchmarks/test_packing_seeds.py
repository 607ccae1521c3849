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
    assert "over 1 s: 1" in text
    assert "slowest: 8 (1.50 s), 7" in text
    assert "not proven: seed 8, makespan 11, bound 10" in text
    assert "not proven: seed 9" in text


def test_an_instance_of_a_family_is_packed_and_checked(capsys):
    assert measure("E4", 3, 5.0).proven
    assert main(["E4", "--first", "3", "--count", "2"]) == 0
    assert "E4, seeds 3 to 4: 2 of 2 proven" in capsys.readouterr().out
