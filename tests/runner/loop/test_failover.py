"""While a worker is away another serves what waits; requests that end when they say so."""

from itertools import islice

import numpy as np
import pytest

import orsched
from orsched.heuristics.pang import FirstComeFirstServed
from orsched.runner.devices.device import VirtualDevice
from orsched.runner.loop.following import FollowSchedule
from orsched.simulator import simulate_policy
from orsched.simulator.policy import ClairvoyantView
from orsched.simulator.run_state import overridden
from tests.product.policies import METHODS, POLICIES, SHARING, is_dispatched
from tests.refusals import refused
from tests.runner.loop.fake_device import VOCABULARY, FormulaDevice, lost_at, played, reference
from tests.runner.loop.spec import build, merged, served
from tests.seeds import in_turn

LONG_NS = 10**13
STEAL = {"dispatch": "round_robin", "steal": True}


@pytest.fixture
def instance():
    one = orsched.load("pang-100x20")
    return one.replace(workers=[orsched.Worker(5, one.worker.cost)] * 2)


def execute(instance, policy, **more):
    """Run a policy on two workers of which the second is lost in its ninth step, for long."""
    done = played(instance, policy, [FormulaDevice(), lost_at(9, LONG_NS)], **more)
    assert done.tokens == reference(instance)
    assert orsched.check(instance, done.schedule) == []
    return done


def last_place(instance, schedule):
    work, steps = schedule.work, schedule.steps
    ends = np.zeros(len(instance), np.int64)
    np.maximum.at(ends, work.request, steps.end_ns[work.last_step])
    worker = np.full(len(instance), -1)
    last = steps.end_ns[work.last_step] == ends[work.request]
    worker[work.request[last]] = steps.worker[work.last_step[last]]
    return worker, ends


@pytest.mark.parametrize("parameters", [{}, STEAL])
@pytest.mark.parametrize("name", ["vllm", "fcfs_batched"])
def test_all_is_served_elsewhere_by_policies_that_hear_of_evictions(instance, name, parameters):
    done = execute(instance, build(instance, f"{name}@none", 0, parameters))
    lost, *_ = done.events
    worker, ends = last_place(instance, done.schedule)
    assert lost["requests"]
    assert not worker[lost["requests"]].any()
    assert ends.max() < LONG_NS


def test_all_is_served_elsewhere_of_a_schedule(instance):
    plan = orsched.solve(instance, "fcfs").schedule
    done = execute(instance, FollowSchedule(instance, plan))
    worker, ends = last_place(instance, done.schedule)
    assert done.events[0]["requests"]
    assert not worker[done.events[0]["requests"]].any()
    assert ends.max() < LONG_NS
    homes, planned = last_place(instance, plan)
    assert ends[homes == 0].tolist() == planned[homes == 0].tolist()  # its own part comes first


@pytest.mark.parametrize("name", ["fcfs", "dynamic", "static"])
def test_what_has_not_started_is_served_elsewhere_under_the_others(instance, name):
    done = execute(instance, build(instance, f"{name}@none"))
    lost, back = done.events
    worker, ends = last_place(instance, done.schedule)
    were_there = np.zeros(len(instance), bool)
    were_there[lost["requests"]] = True
    assert were_there.any()
    assert worker[were_there].all()  # the policy does not know that they have left
    assert ends[were_there].min() > back["time_ns"] > LONG_NS
    waited = ~were_there & (ends > lost["time_ns"])
    assert waited.sum() > 30
    assert not worker[waited].any()
    assert ends[waited].max() < LONG_NS


def test_as_many_as_there_are_free_clients_and_none_where_nobody_dispatches(instance):
    steps = []
    watch = lambda view, step: steps.append((view.index, len(step.prefill)))  # noqa: E731
    execute(instance, build(instance, "fcfs@none"), observer=watch)
    taken = [count for worker, count in steps if not worker and count]
    assert max(taken[-4:-1]) == 5
    alone = instance.replace(workers=instance.workers[:1])
    assert not build(alone, "fcfs@none").take_over(None, [0])


def test_any_policy_is_asked_to_move_what_waits_for_a_lost_worker(instance):
    policy, asked = build(instance, "fcfs@none"), []
    policy.take_over = lambda view, away: bool(asked.append((view.index, list(away))))
    execute(instance, policy)
    assert asked
    assert {worker for worker, _ in asked} <= {0, 1}
    assert (0, [1]) in asked


def faulty(instance, rng, share):
    unit = 1 + instance.workers[0].cost.round_ns(1, 2, 2)
    left = [100]

    def fails(_):
        if not left[0] or rng.random() >= share:
            return None
        left[0] -= 1
        return rng.choice(("begin", "end", "end"))

    restarts = [rng.choice((0, 1, 30)) * unit for _ in instance.workers]
    return [FormulaDevice(fails, restart_ns) for restart_ns in restarts]


def finishes_of(policy):
    """Return the list to which a policy's hook will add who finishes; without one, none."""
    if "on_finish" not in overridden(policy):
        return None
    found, told = [], policy.on_finish
    policy.on_finish = lambda *what: (found.append(what[1]), told(*what))
    return found


def losses_of(spec, text, count, most, parameters=None):
    """Run instances with losses, check all that comes of it, and return how many losses were."""
    losses = 0
    cases = served(f"{text} {spec}", spec, count, parameters)
    for runs, (seed, rng, instance, _) in enumerate(cases):
        policy = build(instance, spec, seed, parameters)
        finishes = finishes_of(policy)
        devices = faulty(instance, rng, rng.choice((0.02, 0.1, 0.3)))
        done = played(instance, policy, devices, most_losses=1000)
        if done.stopped:  # a prompt with what it has yielded is too long for a whole prefill
            assert "can never be admitted" in done.stopped
            assert "prefill_first" in spec or "chunked_prefill=false" in spec
            assert orsched.check(instance, done.schedule, times="measured") == []
            continue
        assert done.tokens == reference(instance)
        assert orsched.check(instance, done.schedule) == []
        assert finishes is None or sorted(finishes) == list(range(len(instance)))
        losses += sum(event["what"] == "lost" for event in done.events)
        if runs == most:
            break
    return losses


@pytest.mark.parametrize("spec", POLICIES)
@pytest.mark.parametrize(
    ("count", "most"), [(30, 12), pytest.param(600, 300, marks=pytest.mark.full)]
)
def test_every_request_finishes_once_with_its_tokens(spec, count, most):
    assert losses_of(spec, "faults", count, most)


SHARED = [(s, name) for s in METHODS for name in SHARING if is_dispatched(f"{s}@")]


@pytest.mark.parametrize(("name", "sharing"), in_turn(SHARED))
def test_every_request_finishes_once_under_each_dispatcher(name, sharing):
    assert losses_of(name, sharing, 60, 6, SHARING[sharing])


SPECS = [spec for spec in POLICIES if "@clairvoyant" not in spec]
ENDS = frozenset(range(0, VOCABULARY, 5))


def ended(spec, most, devices):
    """Run a policy until requests say that they are done; yield what came of it."""
    cases = served(f"ends {spec}", spec, 40, change=as_long_as_can_be)
    for seed, rng, longest, _ in islice(cases, most):
        shortest = with_outputs(longest, 1)  # what it says of lengths is nothing
        policy, lose = build(shortest, spec, seed), devices(shortest, rng)
        done = played(shortest, policy, lose, end_of_sequence=ENDS, most_losses=1000)
        yield seed, longest, done


def with_outputs(instance, tokens):
    outputs = [tokens] * len(instance)
    return instance.replace(requests=instance.requests.replace(output_tokens=outputs))


def as_long_as_can_be(instance):
    return with_outputs(instance, instance.output_limit_tokens)


@pytest.mark.parametrize("spec", SPECS)
def test_requests_end_where_they_say_so_on_workers_that_are_lost_as_well(spec):
    early = False
    for seed, longest, done in ended(spec, 5, lambda *_: None):
        assert done.tokens == reference(longest, ends=ENDS)
        came = done.instance
        assert came.requests.output_tokens.tolist() == [len(each) for each in done.tokens]
        assert orsched.check(came, done.schedule) == []
        early |= came.requests != longest.requests
        if len(came.workers) == 1:  # rounds one by one show more of other workers
            there = simulate_policy(came, build(came, spec, seed)).schedule
            assert merged(there) == merged(done.schedule)
    assert early

    # on workers that are lost as well
    for _, longest, done in ended(spec, 5, lambda it, rng: faulty(it, rng, 0.1)):
        if not done.stopped:
            assert done.tokens == reference(longest, ends=ENDS)
            assert orsched.check(done.instance, done.schedule) == []


def test_nothing_tells_a_policy_of_lengths():
    class Looks(FirstComeFirstServed):
        def decide(self, view):
            assert not isinstance(view, ClairvoyantView)
            return super().decide(view)

    done = played(orsched.load("pang-100x20"), Looks(), end_of_sequence=3)
    assert all(3 not in tokens[:-1] for tokens in done.tokens)
    assert any(tokens[-1] == 3 for tokens in done.tokens)


def test_clairvoyance_and_devices_without_tokens_are_refused():
    instance = orsched.load("pang-100x20")
    knows = build(instance, "offline")
    refused("cannot be known before", played, instance, knows, end_of_sequence=[3])
    silent = FirstComeFirstServed(), VirtualDevice()
    refused("yields no tokens", played, instance, *silent, end_of_sequence=3)
