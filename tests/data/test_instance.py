"""Instances: their rule of the first token, and which have a schedule at all."""

from inspect import signature

import pytest

import orsched
from orsched import BlockMemory, InfeasibleError, Instance, Requests, Worker
from orsched.instances.catalog import GENERATORS
from orsched.instances.datasets import convert
from tests.decoding import decoding

PROMPTS, OUTPUTS = [60, 45, 80, 70, 30, 55, 20, 90], [120, 15, 90, 20, 30, 100, 1, 60]
PAPER_RULES = {"gsm8k", "pang-case"}
"""Generators of one paper's workloads, which keep that paper's rule."""


@pytest.fixture
def ways(tmp_path):
    """The same eight requests on the same worker, by each way in."""
    requests, path = Requests(PROMPTS, OUTPUTS), tmp_path / "x.csv"
    rows = [f"{prompt},{output}" for prompt, output in zip(PROMPTS, OUTPUTS, strict=True)]
    path.write_text("\n".join(["prompt_tokens,output_tokens", *rows]) + "\n")
    made = Instance(requests, Worker(2))
    return {
        "constructor": made,
        "frame": Instance.from_pandas(made.to_pandas(), Worker(2)),
        "load": orsched.load(path, clients=2),
        "convert": convert(path, tmp_path / "x.json", Worker(2)).instance,
        "file": orsched.load(tmp_path / "x.json"),
    }


def test_every_way_in_makes_the_same_problem(ways):
    assert len({instance.sha256 for instance in ways.values()}) == 1
    assert {orsched.solve(i, "fcfs").makespan_ns for i in ways.values()} == {
        orsched.solve(ways["load"].replace(first_token="prefill"), "fcfs").makespan_ns
    }
    for rule in ("prefill", "decode"):  # and says so
        instance = ways["load"].replace(first_token=rule)
        assert f"first token from {rule}" in repr(instance)
        assert instance.summary()["first_token"] == rule


def test_generators_have_that_default_or_their_paper_s():
    defaults = {
        name: signature(make).parameters["first_token"].default
        for name, make in GENERATORS.items()
        if "first_token" in signature(make).parameters
    }
    assert {name for name, rule in defaults.items() if rule != "prefill"} == PAPER_RULES


def test_each_request_needs_one_worker_that_fits_it():
    """The long prompt fits onto one worker, the long answer onto the other, both onto neither."""
    capped = Worker(1, prefill_cap_tokens=4, name="capped")
    small = Worker(1, memory=BlockMemory(2, 4, "whole"), name="small")
    decoding([4, 7], [9, 1], (capped, small)).require_feasible()
    both = decoding([4, 7], [9, 2], (capped, small))
    with pytest.raises(InfeasibleError, match=r"request 1 \(row 1\).*4 .*capped.*3 .* 2 of small"):
        both.require_feasible()
    with pytest.raises(InfeasibleError, match=r"row 0\) needs 4 memory blocks.*the 2 of small"):
        decoding([4], [9], small).require_feasible()


def test_chunks_lift_the_limit_on_prefills_only():
    worker = Worker(1, prefill_cap_tokens=4, memory=BlockMemory(2, 4, "whole"))
    decoding([7], [1], worker).require_feasible(chunks=True)
    with pytest.raises(InfeasibleError, match="prefill_cap_tokens"):
        decoding([7], [1], worker).require_feasible()
    with pytest.raises(InfeasibleError, match="memory blocks"):
        decoding([7], [2], worker).require_feasible(chunks=True)


@pytest.mark.parametrize(("rule", "longest"), [("decode", 4), ("prefill", 5)])
def test_paged_memory_holds_the_whole_cache_at_the_end(rule, longest):
    """The token that a prefill yields is in the cache only once a round follows it."""
    worker = Worker(3, memory=BlockMemory(2, 4, "paged"))
    Instance(Requests([4], [longest]), worker, first_token=rule).require_feasible()
    with pytest.raises(InfeasibleError, match="memory blocks"):
        Instance(Requests([4], [longest + 1]), worker, first_token=rule).require_feasible()
