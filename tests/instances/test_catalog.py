"""Names of instances and generators."""

from __future__ import annotations

import pytest

from orsched.common.errors import InputError
from orsched.instances.catalog import GENERATORS, generate, load_named, names


@pytest.mark.parametrize("name", names())
def test_every_named_instance_loads_feasible_and_explains_itself(name):
    instance = load_named(name)
    instance.require_feasible()
    assert instance.name == name
    assert instance.description
    assert instance.source
    assert instance.licence
    assert instance.requests.predicted_tokens is not None


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(InputError, match="did you mean pang-100x20") as caught:
        load_named("pang-100x200")
    assert "gsm8k-llama65b" in str(caught.value)
    with pytest.raises(InputError, match="generator"):
        generate("nothing")


def test_generators_take_the_arguments_of_their_functions():
    assert len(generate("gsm8k", seed=3, requests=10)) == 10
    assert generate("pang-case", seed=1).name == "pang-case-1"
    assert len(generate("peers", requests=5)) == 5
    assert len(generate("uniform", requests=5, clients=2)) == 5
    assert set(GENERATORS) == {"gsm8k", "pang-case", "peers", "sources", "uniform"}
    with pytest.raises(InputError, match="generator gsm8k has no argument 'sedd'") as caught:
        generate("gsm8k", sedd=3)
    assert str(caught.value.remedy).startswith("did you mean seed? known arguments: seed, ")
    with pytest.raises(InputError, match="clients"):
        generate("uniform")
