"""Answer lengths: what is still to come at a quantile."""

from __future__ import annotations

from orsched.heuristics.forecast import KEPT
from orsched.heuristics.slack import AnswerLengths


def test_before_any_answer_the_limit_holds():
    lengths = AnswerLengths(500)
    assert lengths.rest(100, 0.9) == 400
    assert lengths.rest(500, 0.9) == 1
    assert lengths.mean == 1.0


def test_rest_is_a_quantile_of_the_longer_ones():
    lengths = AnswerLengths(500)
    for tokens in range(1, 101):
        lengths.add(tokens)
    assert lengths.rest(0, 0.9) == 91
    assert lengths.rest(50, 0.5) == 26  # the 51 .. 100 that are longer: place 25
    assert lengths.rest(99, 1.0) == 1
    assert lengths.rest(100, 0.9) == 400  # none was longer: up to the limit
    assert lengths.mean == 50.5


def test_old_answers_are_forgotten():
    lengths = AnswerLengths(500)
    for _ in range(KEPT):
        lengths.add(400)
    for _ in range(KEPT):
        lengths.add(10)
    assert lengths.mean == 10
    assert lengths.rest(0, 1.0) == 10
