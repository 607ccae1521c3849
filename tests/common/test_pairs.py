"""Pairs of names and values, as specifications hold them."""

import pytest

from orsched.common.parameters import read_list_of_pairs
from orsched.instances.arrivals import read_arrivals
from tests.refusals import refusal


def test_values_are_json_where_they_can_be_and_spaces_say_nothing():
    found = read_list_of_pairs("rate=2,cv=0.5,bulk=true,rule=policy", "arrivals")
    assert found == {"rate": 2, "cv": 0.5, "bulk": True, "rule": "policy"}
    assert read_list_of_pairs(" rate=2, cv=0.5,", "arrivals") == {"rate": 2, "cv": 0.5}
    assert read_arrivals("gamma:rate=2, cv=0.5") == read_arrivals("gamma:rate=2,cv=0.5")


@pytest.mark.parametrize("text", ["rate", "=2", "rate=2,rate=3"])
def test_what_is_no_list_of_pairs_is_refused_at_its_field(text):
    assert refusal(read_list_of_pairs, text, "arrivals").field == "arrivals"
