"""Pairs of names and values, as specifications hold them."""

from __future__ import annotations

import pytest

from orsched.common.errors import InputError
from orsched.common.parameters import read_list_of_pairs
from orsched.instances.arrivals import read_arrivals


def test_values_are_json_where_they_can_be():
    found = read_list_of_pairs("rate=2,cv=0.5,bulk=true,rule=policy", "arrivals")
    assert found == {"rate": 2, "cv": 0.5, "bulk": True, "rule": "policy"}


def test_spaces_and_commas_at_the_ends_say_nothing():
    assert read_list_of_pairs(" rate=2, cv=0.5,", "arrivals") == {"rate": 2, "cv": 0.5}
    assert read_arrivals("gamma:rate=2, cv=0.5") == read_arrivals("gamma:rate=2,cv=0.5")


@pytest.mark.parametrize("text", ["rate", "=2", "rate=2,rate=3"])
def test_what_is_no_list_of_pairs_is_refused_at_its_field(text):
    with pytest.raises(InputError) as caught:
        read_list_of_pairs(text, "arrivals")
    assert caught.value.field == "arrivals"
