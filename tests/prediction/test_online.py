"""The online predictor keeps its promise on any sequence."""

from __future__ import annotations

import numpy as np
import pytest

from orsched.common.errors import InputError
from orsched.prediction import ConstantPredictor, OnlinePredictor, make_corpus, train


def shares(predictor, prompts, lengths):
    """Return the share of replies below each quantile, where each is told after its prediction."""
    below = []
    for prompt, length in zip(prompts, lengths, strict=True):
        below.append(length <= predictor.predict(prompt).values[0] + 1e-9)
        predictor.observe(prompt, [length])
    return np.mean(below, axis=0)


def test_a_step_is_as_stated():
    base = ConstantPredictor(np.array([0.25, 0.5]), np.log([10.0, 20.0]), 99.0)
    online = OnlinePredictor(base, 0.1)
    online.observe("a", 15)
    assert online.shift.tolist() == pytest.approx([0.1 * 0.25, -0.1 * 0.5])
    online.observe(["a", "b"], [150, 1])
    assert online.longest == 150
    assert base.longest == 99


def test_replies_that_become_four_times_as_long_are_covered_again(fitted):
    data = make_corpus("chat", 1500, 9)
    lengths = data.output_tokens * 4
    before = (lengths[:, None] <= fitted["lexical"].predict(data.prompts).values).mean(axis=0)
    assert before[3] < 0.1  # the median covers next to nothing
    online = OnlinePredictor(fitted["lexical"], 0.05)
    found = shares(online, data.prompts, lengths)
    errors = np.log(lengths)[:, None] - fitted["lexical"].log_quantiles(data.prompts)
    promise = (np.abs(errors).max() + 0.05) / (0.05 * len(data))
    assert np.abs(found - online.levels).max() <= promise
    assert found[3] == pytest.approx(0.5, abs=0.05)


def test_adversarial_lengths_keep_the_promise():
    """Each length is the worst for the median: just above it, or 1."""
    online = OnlinePredictor(ConstantPredictor(np.array([0.5]), np.log([50.0]), 99.0), 0.05)
    below = 0
    for _ in range(2000):
        median = online.predict("a").values[0, 0]
        length = int(median) + 1 if median < 1000 else 1
        below += length <= median
        online.observe("a", length)
    assert below / 2000 == pytest.approx(0.5, abs=(np.log(1001) + 0.05) / (0.05 * 2000) + 0.01)


def test_the_base_is_not_changed_and_copies_are_apart(fitted, corpus):
    base = fitted["lexical"]
    before = base.predict(corpus.prompts[:3]).values
    first, second = OnlinePredictor(base), OnlinePredictor(base)
    first.observe(corpus.prompts[:3], [4000] * 3)
    assert np.array_equal(base.predict(corpus.prompts[:3]).values, before)
    assert not second.shift.any()


@pytest.mark.parametrize("lengths", [[1], [1, 0], [1, 1.5], ["a", "b"]])
def test_lengths_that_do_not_fit_are_refused(lengths, fitted):
    with pytest.raises(InputError):
        OnlinePredictor(fitted["constant"]).observe(["a", "b"], lengths)


def test_what_cannot_be_wrapped_is_refused(fitted, corpus):
    for base in (None, fitted["online"]):
        with pytest.raises(InputError):
            OnlinePredictor(base)
    with pytest.raises(InputError):
        OnlinePredictor(fitted["constant"], rate=0)
    assert isinstance(train(corpus, "online", trees=2), OnlinePredictor)
