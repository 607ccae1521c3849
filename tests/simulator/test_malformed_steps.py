"""Answers of policies that are no steps: named, never a failure deep in the simulator."""

from __future__ import annotations

import numpy as np
import pytest

import orsched
from orsched.common.errors import PolicyError
from orsched.data.step import Step, decode_rounds, prefill_stage
from orsched.instances.catalog import generate
from orsched.simulator import simulate_policy
from orsched.simulator.policy import Policy


class Answers(Policy):
    """Serve one request at a time, but give ``bad`` once a request runs (or at once)."""

    name = "answers"

    def __init__(self, first=None, running=None):
        self.first, self.running, self.queue = first, running, []

    def on_arrival(self, view, request):
        self.queue.append(request)

    def decide(self, view):
        if view.running and self.running is not None:
            return self.running
        if not view.running and self.first is not None:
            return self.first
        if self.queue and view.free_clients:
            return prefill_stage([self.queue.pop(0)])
        return decode_rounds()


@pytest.fixture
def instance():
    return orsched.load("two-by-two")


@pytest.mark.parametrize(
    ("answer", "named"),
    [
        ("abc", "'abc' (str), which is no Step"),
        (7, "7 (int), which is no Step"),
        ((1, 2), "no Step"),
        (prefill_stage("ab"), "prefill is 'ab' (str)"),
        (prefill_stage(3), "prefill is 3 (int)"),
        (prefill_stage([0.0]), "prefill holds 0.0 (float)"),
        (prefill_stage(["0"]), "prefill holds '0' (str)"),
        (prefill_stage(np.array([0])), "(ndarray)"),
        (prefill_stage(np.array([0, 1])), "(ndarray)"),
        (prefill_stage([0], "a"), "clients is 'a' (str)"),
        (prefill_stage([0], 1), "clients is 1 (int)"),
        (prefill_stage([]), "without a request"),
        (prefill_stage([-1]), "request -1 does not exist"),
        (prefill_stage([10**30]), "does not exist"),
        (prefill_stage([0, 0]), "prefilled before"),
    ],
)
def test_what_is_no_prefill_stage_is_named(instance, answer, named):
    with pytest.raises(PolicyError, match="policy answers, step 0 at 0 ns") as raised:
        simulate_policy(instance, Answers(first=answer))
    assert named in str(raised.value)


@pytest.mark.parametrize(
    ("answer", "named"),
    [
        (decode_rounds(1.5), "rounds is 1.5 (float)"),
        (decode_rounds("x"), "rounds is 'x' (str)"),
        (decode_rounds(-1), "a decode stage of -1 rounds"),
        (Step(until="x"), "until is 'x' (str)"),
    ],
)
def test_what_is_no_decode_stage_is_named(instance, answer, named):
    with pytest.raises(PolicyError, match="policy answers, step 1 at") as raised:
        simulate_policy(instance, Answers(running=answer))
    assert named in str(raised.value)


def test_a_policy_s_own_errors_are_left_as_they_are(instance):
    class Own(Answers):
        def decide(self, view):
            raise TypeError("mine")

    class Hook(Answers):
        def on_finish(self, view, request, client):
            raise ValueError("mine")

    for policy, kind in ((Own(), TypeError), (Hook(), ValueError)):
        with pytest.raises(kind, match="mine"):
            simulate_policy(instance, policy)


@pytest.mark.parametrize("kind", [np.int64, np.int32, np.uint8])
def test_numpy_numbers_in_lists_count_as_whole_numbers(instance, kind):
    class Numbers(Answers):
        def __init__(self, kind):
            super().__init__()
            self.kind = kind

        def decide(self, view):
            step = super().decide(view)
            if step.prefill:
                return prefill_stage([self.kind(request) for request in step.prefill])
            return decode_rounds(self.kind(3))

    plain = simulate_policy(instance, Numbers(int)).schedule
    assert simulate_policy(instance, Numbers(kind)).schedule == plain


def test_the_deadline_is_asked_while_requests_arrive():
    instance = generate("gsm8k", requests=5000, clients=2)
    asked = []

    def stop():
        asked.append(True)
        raise orsched.TimeLimitError("over")

    class Late(Answers):
        def decide(self, view):
            raise AssertionError("the time was over before")

    with pytest.raises(orsched.TimeLimitError):
        simulate_policy(instance, Late(), deadline=stop)
    assert asked == [True]
