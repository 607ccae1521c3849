"""What does not go together is refused before the run, at what the user set."""

from __future__ import annotations

import pytest

import orsched
from orsched import Instance, Requests, Worker
from orsched.common.errors import InputError
from orsched.models.bounds import bounds
from orsched.planning.capacity import capacity

LONG = Instance(Requests([10, 3000, 20], [3, 2, 4], arrival_ns=[0, 10**9, 2 * 10**9]), Worker(2))
TWO = LONG.replace(workers=(Worker(2), Worker(2, name="b")))
PADS = LONG.replace(workers=(Worker(2, padding=True),))
HUGE = LONG.replace(requests=Requests([2**31 - 1] * 41, [1] * 41))

WRONG = (
    (LONG, "vtc", {"mode": "prefill_first"}, "mode", "does not split prompts, and request 1"),
    (LONG, "vllm", {"mode": "prefill_first"}, "mode", "raise max_num_batched_tokens to 3000"),
    (LONG, "vllm", {"chunked_prefill": False}, "chunked_prefill", "has 3,000 tokens"),
    (LONG, "disaggregated", {"mode": "prefill_first"}, "mode", "does not split prompts"),
    (LONG, "disaggregated", {"dispatch": "soonest"}, "dispatch", "chooses workers itself"),
    (LONG, "vllm", {"moed": "mixed"}, "parameters", "there is no parameter 'moed'"),
    (LONG, "windows", {"threads": 0}, "threads", "0 is below 1"),
    (TWO, "windows", {}, "workers", "is for one worker"),
    (TWO, "offline", {}, "workers", "is for one worker"),
    (PADS, "vllm", {}, "padding", "does not pad"),
    (PADS, "gittins", {}, "padding", "does not pad"),
    *(
        (HUGE, method, {}, "max_num_batched_tokens", "--max-steps 42991615")
        for method in ("vllm", "vtc", "gittins", "disaggregated", "conserve")
    ),
    (
        LONG.replace(requests=Requests([2**28], [1])),
        "vllm",
        {"max_num_batched_tokens": 1},
        "max_num_batched_tokens",
        "268,435,456 prefill steps",
    ),
    (LONG, "mico", {}, "predicted_tokens", "no predicted lengths"),
    (LONG, "offline@predicted", {}, "predicted_tokens", "no predicted lengths"),
)


@pytest.mark.parametrize(("instance", "method", "parameters", "field", "said"), WRONG)
def test_it_is_refused_before_any_bound(instance, method, parameters, field, said, monkeypatch):
    def never(*_, **__):
        raise AssertionError("something ran")

    monkeypatch.setattr(bounds, "bound", never)
    with pytest.raises(InputError) as caught:
        orsched.solve(instance, method, parameters=parameters)
    assert caught.value.field == field
    assert said in str(caught.value)


@pytest.mark.parametrize("method", ["online", "fcfs", "offline", "hybrid", "auto", "vllm", "sjf"])
def test_without_predictions_the_others_run(method):
    assert orsched.solve(LONG, method, iterations=1).checked


@pytest.mark.parametrize("dispatch", [{}, {"max_num_batched_tokens": 4096}])
def test_what_fits_runs(dispatch):
    given = {"mode": "prefill_first", "max_num_batched_tokens": 3000} | dispatch
    assert orsched.solve(LONG, "vtc", parameters=given).checked


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        ("disaggregated", "is for workers of different roles"),
        ("hybrid", "serves one worker"),
        ("windows", "serves one worker"),
        ("mico", "no predicted lengths"),
    ],
)
def test_capacity_refuses_policies_that_do_not_serve_such_fleets(policy, said):
    with pytest.raises(InputError, match=said):
        capacity(LONG, policy, slo_ttft=5)
