"""Predictors: what they learn, and one that learns as it serves."""

import re
import sys

import numpy as np
import pytest

from orsched.common.errors import MissingDependencyError
from orsched.prediction import KINDS, ConstantPredictor, LexicalPredictor, OnlinePredictor, train
from orsched.prediction.data import LabelledPrompts, Prompt, make_corpus
from orsched.prediction.evaluation import evaluate, measured_latency
from orsched.prediction.lexical import _NAMED, _REQUESTED, _UNITS, FEATURES, WINDOW, features_of
from orsched.prediction.predictor import LEVELS, shifts
from tests.refusals import refusal


@pytest.mark.parametrize("kind", KINDS)
def test_quantiles_cover_their_share_of_what_was_held_out(kind, fitted, corpus):
    test = corpus.part("test", 2)
    found = fitted[kind].predict(test.prompts)
    share = (test.output_tokens[:, None] <= found.values).mean(axis=0)
    assert np.abs(share - LEVELS).max() < 0.05  # three deviations of about 600 rows, with ties


def test_calibration_makes_a_wrong_fit_cover(corpus):
    """What the fit is wrong by, the shift takes away."""
    train_part, held = corpus.part("train", 2), corpus.part("calibrate", 2)
    halved = LabelledPrompts(
        train_part.prompts, np.maximum(train_part.output_tokens // 4, 1), train_part.conversations
    )
    test = corpus.part("test", 2)
    found = LexicalPredictor.fit(halved, held, trees=20).predict(test.prompts)
    share = (test.output_tokens[:, None] <= found.values).mean(axis=0)
    assert np.abs(share - LEVELS).max() < 0.06


def test_shifts_are_conformal_quantiles():
    truth = np.array([1.0, 2, 3, 4])
    predicted = np.zeros((4, 3))
    assert shifts(predicted, truth, np.array([0.2, 0.5, 0.9])).tolist() == [1, 3, 4]


@pytest.mark.parametrize("domain", ["chat", "code", "math"])
def test_the_default_orders_requests_better_than_their_length_does(domain):
    data = make_corpus(domain, 2000, 5)
    taus = {
        kind: evaluate(train(data, kind, trees=20), data.part("test", 0), latency=False)["tau"]
        for kind in ("prompt_length", "lexical")
    }
    assert taus["lexical"] > taus["prompt_length"] + 0.1


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_seed_gives_the_same_predictor(kind, fitted, corpus):
    again = train(corpus, kind, seed=2, trees=20)
    assert again.document() == fitted[kind].document()
    assert train(corpus, kind, seed=3, trees=20).document() != fitted[kind].document()


@pytest.mark.parametrize("kind", KINDS)
def test_one_prompt_is_what_it_is_among_many(kind, fitted, corpus):
    many = fitted[kind].predict(corpus.prompts[:400])
    for row in (0, 1, 399):
        one = fitted[kind].predict(corpus.prompts[row])
        assert np.array_equal(one.values[0], many.values[row])
    assert len(fitted[kind].predict([])) == 0


@pytest.mark.parametrize("kind", KINDS)
def test_strange_texts_have_a_prediction(kind, fitted):
    texts = ["", " ", "\0", "9" * 5000, "?" * 100_000, "日本語" * 500, "١٢٣", "\udc80"]
    texts += ["a\n" * 9999, Prompt("", ("",) * 50, ("",) * 50)]
    found = fitted[kind].predict(texts)
    assert np.isfinite(found.values).all()
    assert (found.tokens() >= 1).all()


@pytest.mark.parametrize("wrong", [3, None, [3], [b"text"], ["a", None]])
def test_what_is_no_prompt_is_refused(wrong, fitted):
    assert refusal(fitted["lexical"].predict, wrong).field == "prompts"


def test_the_features_have_their_names_and_see_windows_only():
    text = "Explain briefly, in 50 words, why tides rise.\n- one\n```python\nx = [1]\n```"
    found = dict(zip(FEATURES, features_of(Prompt(text, ("q",), ("abc",))), strict=True))
    assert found["characters"] == pytest.approx(np.log1p(len(text)))
    assert found["task_brief"] == found["code_words"] == found["list_marks"] == 1
    assert found["requested_tokens"] == pytest.approx(np.log1p(50 * 1.3))
    assert found["largest_number"] == pytest.approx(np.log(51))
    assert found["turn"] == 2
    assert found["last_reply"] == found["replies_mean"] == pytest.approx(np.log(4))
    assert found["explains"] == 2  # explain, why
    assert features_of(Prompt("好"))[FEATURES.index("wide_script")] == 1
    middle = "x" * WINDOW
    first = features_of(Prompt("a" * WINDOW + middle + "b" * WINDOW))
    second = features_of(Prompt("a" * WINDOW + middle.replace("x", "?") + "b" * WINDOW))
    assert first == second


PIECES = (
    "a", "an", "two", "12", "123456", "word", "words", "lines", "page", "s", "long", "write",
    "-", "- ", "* ", "1. ", "2)", " ", "\n", "\n\n", "\r\n", "'", "''", "_", ".", "?", "{", "X",
    "é", "日本", "١٢", "•", "İ", "\u212a", "\udc80", "\u2028",
)  # fmt: skip


def test_tables_of_bytes_find_what_regular_expressions_find():
    """The features that are found without regular expressions, for speed, are those with them."""
    random = np.random.default_rng(0)
    named = 0
    for _ in range(3000):
        between = ("", " ")[random.integers(2)]
        text = between.join(random.choice(PIECES, random.integers(1, 25)).tolist())
        found = dict(zip(FEATURES, features_of(Prompt(text)), strict=True))
        words = re.findall(r"[a-z']+", text.lower())
        assert found["digits"] == len(re.findall(r"[0-9]", text))
        assert found["capitals"] == len(re.findall(r"[A-Z]", text))
        assert found["code_marks"] == len(re.findall(r"[{}();=<>\[\]_]", text))
        assert found["list_marks"] == len(re.findall(r"(?m)^\s*(?:[-*•]|\d+[.)])\s", text))
        assert found["not_ascii"] == len(re.findall(r"[^\x00-\x7f]", text)) / len(text)
        assert found["task"] == (11 if "write" in words else 0)
        asked = 0.0
        if {"word", "words", "lines", "page"} & set(words):
            pairs = _REQUESTED.findall(text.lower())
            asked = max((float(_NAMED.get(n) or n) * _UNITS[unit] for n, unit in pairs), default=0)
        assert found["requested_tokens"] == pytest.approx(np.log1p(asked))
        named += asked > 0
    assert named > 50


def test_latency_is_measured_for_so_many_seconds_at_most(fitted, corpus):
    found = measured_latency(fitted["constant"], corpus, 1, calls=10**6, seconds=0.05)
    assert 1 <= found.calls < 10**6
    assert found.seconds > 0
    assert measured_latency(fitted["constant"], corpus, 1, calls=3).calls == 3
    assert measured_latency(fitted["constant"], corpus, 1, seconds=0.0).calls == 1


def test_too_few_rows_an_unknown_kind_and_wrong_trees_are_refused(corpus):
    assert "no rows" in str(refusal(train, corpus.rows(np.array([0])), seed=0))
    assert "lexical" in str(refusal(train, corpus, "lexicla"))
    assert "1 to 1,000" in str(refusal(train, corpus, trees=0))


def test_training_without_scikit_learn_names_the_extra(corpus, monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.ensemble", None)
    with pytest.raises(MissingDependencyError, match=r"orsched\[predict\]"):
        train(corpus)
    assert train(corpus, "prompt_length").kind == "prompt_length"


def shares(predictor, prompts, lengths):
    """Return the share of replies below each quantile, where each is told after its prediction."""
    below = []
    for prompt, length in zip(prompts, lengths, strict=True):
        below.append(length <= predictor.predict(prompt).values[0] + 1e-9)
        predictor.observe(prompt, [length])
    return np.mean(below, axis=0)


def test_a_step_is_as_stated_and_changes_neither_base_nor_copies(fitted, corpus):
    base = ConstantPredictor(np.array([0.25, 0.5]), np.log([10.0, 20.0]), 99.0)
    online = OnlinePredictor(base, 0.1)
    online.observe("a", 15)
    assert online.shift.tolist() == pytest.approx([0.1 * 0.25, -0.1 * 0.5])
    online.observe(["a", "b"], [150, 1])
    assert online.longest == 150
    assert base.longest == 99
    base = fitted["lexical"]
    before = base.predict(corpus.prompts[:3]).values
    first, second = OnlinePredictor(base), OnlinePredictor(base)
    first.observe(corpus.prompts[:3], [4000] * 3)
    assert np.array_equal(base.predict(corpus.prompts[:3]).values, before)
    assert not second.shift.any()


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


def test_what_cannot_be_wrapped_and_lengths_that_do_not_fit_are_refused(fitted, corpus):
    for lengths in ([1], [1, 0], [1, 1.5], ["a", "b"]):
        refusal(OnlinePredictor(fitted["constant"]).observe, ["a", "b"], lengths)
    for base in (None, fitted["online"]):
        refusal(OnlinePredictor, base)
    refusal(OnlinePredictor, fitted["constant"], rate=0)
    assert isinstance(train(corpus, "online", trees=2), OnlinePredictor)
