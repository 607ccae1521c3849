"""Predicted tokens in an instance."""

from __future__ import annotations

import pytest

from orsched.common.errors import InputError
from orsched.instances.catalog import load_named
from orsched.prediction import predict_instance


@pytest.fixture
def instance():
    return load_named("two-by-two").replace(output_limit_tokens=2000)


def named(instance, ids):
    return instance.replace(requests=instance.requests.replace(ids=tuple(ids)))


def test_the_column_has_the_points_of_the_distribution(instance, fitted):
    prompts = [f"Write about tides in {n} words." for n in range(20, 20 + len(instance))]
    found = predict_instance(instance, fitted["lexical"], prompts, point=0.75)
    wanted = fitted["lexical"].predict(prompts).tokens(0.75).clip(1, instance.output_limit_tokens)
    assert found.requests.predicted_tokens.tolist() == wanted.tolist()
    values = fitted["lexical"].predict(prompts).values
    quantiles = found.requests.predicted_quantiles
    assert quantiles.tolist() == values.round().clip(1, instance.output_limit_tokens).tolist()
    assert found.requests.quantile_levels == tuple(fitted["lexical"].predict(prompts).levels)
    assert found.requests.output_tokens.tolist() == instance.requests.output_tokens.tolist()


def test_names_decide_the_order_where_both_have_them(instance, fitted):
    n = len(instance)
    ids = [f"r{i}" for i in range(n)]
    prompts = ["Is it true?", "Write a story of 5 paragraphs about tea.", *["What?"] * (n - 2)]
    straight = predict_instance(named(instance, ids), fitted["lexical"], prompts, ids=ids)
    back = predict_instance(
        named(instance, ids), fitted["lexical"], prompts[::-1], ids=ids[::-1], point="median"
    )
    tokens = straight.requests.predicted_tokens.tolist()
    assert back.requests.predicted_tokens.tolist() == tokens
    assert tokens[0] != tokens[1]


def test_prompts_that_do_not_fit_are_refused(instance, fitted):
    n = len(instance)
    ids = [f"r{i}" for i in range(n)]
    model, asked = fitted["constant"], ["a"] * n
    with pytest.raises(InputError, match="prompts for"):
        predict_instance(instance, model, asked[1:])
    for wrong, problem in (
        (["r0"] * n, "twice"),
        ([*ids[1:], "x"], "no prompt for request 'r0'"),
    ):
        with pytest.raises(InputError, match=problem):
            predict_instance(named(instance, ids), model, asked, ids=wrong)
    with pytest.raises(InputError, match="no request for prompt 'x'"):
        predict_instance(named(instance, ids), model, [*asked, "a"], ids=[*ids, "x"])
