"""What is told of methods is what they do: names, workers, information, parameters."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass

import pandas as pd
import pytest

import orsched
from orsched import InputError, Policy
from orsched.common.parameters import REQUIRED, Parameter, meanings_in, of_dataclass, of_function
from orsched.common.registry import BUILT_IN
from orsched.instances.catalog import GENERATORS
from orsched.solving.method_choice import PAPERS, all_methods, method_info, method_names

METHODS = {method.name: method for method in all_methods()}


def predicted():
    """Return a small instance whose true lengths are predicted, as numbers and as quantiles."""
    instance = orsched.load("two-by-two")
    lengths = instance.requests.output_tokens
    requests = instance.requests.replace(
        predicted_tokens=lengths,
        predicted_quantiles=[[length, length] for length in lengths.tolist()],
        quantile_levels=(0.5, 0.9),
    )
    return instance.replace(requests=requests)


def test_methods_lists_them_all_in_rows():
    found = orsched.methods()
    assert [method.name for method in found] == method_names()
    frame = pd.DataFrame(found)
    assert list(frame.columns)[:4] == ["name", "information", "workers", "searches"]
    assert {m.name for m in found if m.searches} == {
        "hybrid", "windows", "latency_search", "exact", "auto",
    }  # fmt: skip
    assert METHODS["fcfs"].information == ("none",)
    assert METHODS["fcfs"].summary


@pytest.mark.parametrize(
    "order", ["orsched.methods()", "import orsched.solving.solver; orsched.methods()"]
)
def test_methods_can_be_called_whatever_was_imported(order):
    code = (
        f"import orsched; {order}; import orsched.solving.methods as module\n"
        "from orsched.solving.methods import Progress\n"
        "assert module.Progress is Progress and module.methods()\n"
        "from orsched import methods; assert methods()\n"
    )
    assert subprocess.run([sys.executable, "-W", "error", "-c", code]).returncode == 0


@pytest.mark.parametrize("name", list(METHODS))
def test_methods_that_take_any_number_of_workers_take_two_and_others_do_not(name):
    instance = predicted()
    instance = instance.replace(workers=instance.workers * 2)
    if METHODS[name].workers == "any":
        assert orsched.solve(instance, name, iterations=1).checked
    else:
        with pytest.raises(InputError):
            orsched.solve(instance, name, iterations=1)


@pytest.mark.parametrize("name", list(METHODS))
def test_every_parameter_is_explained_and_taken_at_its_default(name):
    instance = predicted()
    parameters = METHODS[name].parameters
    assert all(each.meaning for each in parameters)
    assert len({each.name for each in parameters}) == len(parameters)
    given = {each.name: each.default for each in parameters}
    assert REQUIRED not in given.values()
    same = orsched.solve(instance, name, parameters=given, iterations=1, time_limit=600)
    alone = orsched.solve(instance, name, iterations=1, time_limit=600)
    assert same.makespan_ns == alone.makespan_ns
    with pytest.raises(InputError, match=r"no parameter|takes no parameters"):
        orsched.solve(instance, name, parameters={"no_such_parameter": 1}, iterations=1)


def test_every_built_in_method_but_the_plain_batching_modes_names_its_source():
    without = {name for name in BUILT_IN["methods"] if not METHODS[name].paper}
    assert without == {"static", "dynamic", "one_at_a_time"}
    assert set(PAPERS) <= set(BUILT_IN["methods"])


@pytest.mark.parametrize("name", list(GENERATORS))
def test_every_argument_of_a_generator_is_explained(name):
    assert all(each.meaning for each in of_function(GENERATORS[name]))


class Mine(Policy):
    """Serves nobody.

    Args:
        patience: how long it waits.
    """

    def __init__(self, patience, limit=3):
        self.patience, self.limit = patience, limit

    def decide(self, view):
        """Wait."""


def test_a_policy_of_ones_own_is_described_too(monkeypatch):
    monkeypatch.setitem(sys.modules, "mine_for_info", sys.modules[__name__])
    found = method_info("mine_for_info:Mine")
    assert found.summary == "Serves nobody."
    assert [(p.name, p.default) for p in found.parameters] == [
        ("patience", REQUIRED), ("limit", 3), ("dispatch", "soonest"), ("steal", False),
    ]  # fmt: skip
    assert found.parameters[0].meaning == "how long it waits."
    assert (found.workers, found.searches) == ("any", False)


def test_meanings_are_read_from_the_sections_of_docstrings():
    @dataclass
    class Params:
        """Some.

        Attributes:
            one, two: both of
                these: ``here``.
            three: another.

        Raises:
            InputError: never.
        """

        one: int = 1
        two: bool = True
        three: str | None = None

    assert of_dataclass(Params) == (
        Parameter("one", 1, "both of these: here."),
        Parameter("two", True, "both of these: here."),
        Parameter("three", None, "another."),
    )
    assert [each.shown for each in of_dataclass(Params)] == ["1", "true", "null"]
    assert of_dataclass(Params(one=5))[0].default == 5
    assert meanings_in(None, "Args") == meanings_in("x", "Args") == {}


def test_methods_and_machines_are_short_where_they_are_printed():
    listed = repr(orsched.methods())
    assert len(listed.splitlines()) == len(orsched.methods())
    assert max(map(len, listed.splitlines())) <= 120
    vllm = next(each for each in orsched.methods() if each.name == "vllm")
    assert repr(vllm).startswith("Method vllm: continuous batching")
    assert "max_num_batched_tokens" in repr(vllm)
    assert len(repr(vllm)) < 400
    machine = orsched.machines()[0]
    assert repr(machine) == f"Machine {machine.name}: {machine.words}"
