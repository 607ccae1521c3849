"""The rule of the first token: one default, whichever way an instance is made."""

from __future__ import annotations

from inspect import signature

import pytest

import orsched
from orsched.instances.catalog import GENERATORS
from orsched.instances.datasets import convert

PROMPTS, OUTPUTS = [60, 45, 80, 70, 30, 55, 20, 90], [120, 15, 90, 20, 30, 100, 1, 60]
PAPER_RULES = {"gsm8k", "pang-case"}
"""Generators of one paper's workloads, which keep that paper's rule."""


@pytest.fixture
def ways(tmp_path):
    """The same eight requests on the same worker, by each way in."""
    requests, path = orsched.Requests(PROMPTS, OUTPUTS), tmp_path / "x.csv"
    rows = [f"{prompt},{output}" for prompt, output in zip(PROMPTS, OUTPUTS, strict=True)]
    path.write_text("\n".join(["prompt_tokens,output_tokens", *rows]) + "\n")
    made = orsched.Instance(requests, orsched.Worker(2))
    return {
        "constructor": made,
        "frame": orsched.Instance.from_pandas(made.to_pandas(), orsched.Worker(2)),
        "load": orsched.load(path, clients=2),
        "convert": convert(path, tmp_path / "x.json", orsched.Worker(2)).instance,
        "file": orsched.load(tmp_path / "x.json"),
    }


def test_every_way_in_makes_the_same_problem(ways):
    assert len({instance.sha256 for instance in ways.values()}) == 1
    assert {orsched.solve(i, "fcfs").makespan_ns for i in ways.values()} == {
        orsched.solve(ways["load"].replace(first_token="prefill"), "fcfs").makespan_ns
    }


def test_generators_have_that_default_or_their_paper_s():
    defaults = {
        name: signature(make).parameters["first_token"].default
        for name, make in GENERATORS.items()
        if "first_token" in signature(make).parameters
    }
    assert {name for name, rule in defaults.items() if rule != "prefill"} == PAPER_RULES


@pytest.mark.parametrize("rule", ["prefill", "decode"])
def test_the_rule_is_shown(ways, rule):
    instance = ways["load"].replace(first_token=rule)
    assert f"first token from {rule}" in repr(instance)
    assert instance.summary()["first_token"] == rule
