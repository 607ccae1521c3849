"""A run that is stopped and resumed, again and again, is one valid run in the end."""

from __future__ import annotations

from dataclasses import replace

import pytest

import orsched
from orsched.common.errors import InfeasibleError, InputError, PolicyError
from orsched.heuristics.pang import FirstComeFirstServed
from orsched.runner.loop.live import execute_policy
from orsched.runner.loop.resume import merge, prompts_of_rest, residual, with_lengths
from tests.in_order import in_order
from tests.product.policies import METHODS
from tests.runner.loop.fake_device import VOCABULARY, FormulaDevice, reference
from tests.runner.loop.spec import build
from tests.runner.loop.test_faults_virtual import faulty, served


def stopping(after):
    """Return an observer that presses Ctrl-C before a step."""
    left = [after]

    def observe(view, step):
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt

    return observe


def measured(done):
    """Return the trace as the runner writes it."""
    return done.schedule.replace(
        run={**done.schedule.run, "device": "formula", "clock": "cost model"}
    )


def in_parts(instance, name, seed, rng, most=8):
    """Run an instance with stops; return the whole trace and what each request has yielded."""

    def devices():
        return faulty(instance, rng, 0.05)

    stops = [rng.randint(0, 12) for _ in range(rng.randint(1, most))]
    tokens = [[] for _ in range(len(instance))]
    done = execute_policy(
        instance,
        build(instance, name, seed),
        devices(),
        vocabulary=VOCABULARY,
        observer=stopping(stops[0]),
        most_losses=1000,
    )
    trace, rows = measured(done), range(len(instance))
    _add(tokens, rows, done)
    for stop in [*stops[1:], 10**9]:
        assert orsched.check(instance, trace, times="measured") == []
        if not trace.is_partial:
            break
        rest = residual(instance, trace)
        prompts = prompts_of_rest(rest, trace, 0, VOCABULARY)
        done = execute_policy(
            rest.instance,
            build(rest.instance, name, seed),
            devices(),
            vocabulary=VOCABULARY,
            observer=stopping(stop),
            prompts=prompts,
            most_losses=1000,
        )
        _add(tokens, rest.rows.tolist(), done)
        trace = merge(instance, trace, done.schedule)
    return trace, tokens


def test_a_policy_that_splits_prompts_goes_on_where_another_cannot():
    instance = orsched.load("pang-100x20")
    instance = instance.replace(
        workers=replace(instance.worker, prefill_cap_tokens=instance.requests.prompt_tokens.max())
    )
    lost = FormulaDevice(lambda number: "end" if number == 30 else None)
    policy = build(instance, "vllm@none+chunked_prefill=false", 0)
    done = execute_policy(instance, policy, lost, vocabulary=VOCABULARY)
    assert "can never be admitted" in done.stopped
    assert "splits no prompts" in done.stopped
    trace, tokens = measured(done), [list(each) for each in done.tokens]
    assert orsched.check(instance, trace, times="measured") == []
    rest = residual(instance, trace)
    prompts = prompts_of_rest(rest, trace, 0, VOCABULARY)
    with pytest.raises(InfeasibleError):
        execute_policy(rest.instance, FirstComeFirstServed(), FormulaDevice(), prompts=prompts)
    policy = build(rest.instance, "vllm", 0)
    done = execute_policy(
        rest.instance, policy, FormulaDevice(), vocabulary=VOCABULARY, prompts=prompts
    )
    _add(tokens, rest.rows.tolist(), done)
    assert tokens == reference(instance)
    assert orsched.check(instance, merge(instance, trace, done.schedule), times="measured") == []


def test_lengths_that_turn_out_in_parts():
    instance = orsched.load("pang-100x20").replace(output_limit_tokens=512)
    ends = {"vocabulary": VOCABULARY, "end_of_sequence": 3}
    done = execute_policy(
        instance, FirstComeFirstServed(), FormulaDevice(), observer=stopping(60), **ends
    )
    whole, trace, tokens = done.instance, measured(done), [list(each) for each in done.tokens]
    for stop in (80, 10**9):
        assert orsched.check(whole, trace, times="measured") == []
        rest = residual(whole, trace)
        done = execute_policy(
            rest.instance,
            FirstComeFirstServed(),
            FormulaDevice(),
            observer=stopping(stop),
            prompts=prompts_of_rest(rest, trace, 0, VOCABULARY),
            most_tokens=rest.instance.requests.output_tokens,
            **ends,
        )
        _add(tokens, rest.rows.tolist(), done)
        trace = merge(whole, trace, done.schedule, came_out=done.instance)
        whole = with_lengths(whole, rest, done.instance)
    longest = instance.replace(requests=instance.requests.replace(output_tokens=[512] * 100))
    assert tokens == reference(longest, ends={3})
    assert whole.requests.output_tokens.tolist() == [len(each) for each in tokens]
    assert orsched.check(whole, trace, times="measured") == []
    assert not trace.is_partial


def _add(tokens, rows, done):
    for row, found in zip(rows, done.tokens, strict=True):
        tokens[row] += found


@pytest.mark.parametrize("name", METHODS)
def test_the_whole_is_one_valid_run(name):
    parts = 0
    for seed, rng, instance in served(name, "resume", 30):
        try:
            trace, tokens = in_parts(instance, name, seed, rng)
        except (InfeasibleError, InputError, PolicyError):
            continue  # prompts with what was yielded are too long for a stage, or for memory
        assert tokens == reference(instance)
        assert not trace.is_partial
        assert orsched.check(instance, trace, times="measured") == []
        parts += sum(event["what"] == "resumed" for event in trace.run.get("events", []))
    assert parts


def test_what_is_predicted_of_the_rest_is_the_rest_of_its_distribution():
    rows = [[6, 6, 6], [9, 9, 9], [5, 8, 12]]
    requests = orsched.Requests(
        [4, 4, 4], [6, 9, 9], predicted_quantiles=rows, quantile_levels=[0.1, 0.5, 0.9]
    )
    worker = orsched.Worker(3, in_order(orsched.AffineCost, 5, 1, 5, 1))
    instance = orsched.Instance(requests, worker, output_limit_tokens=12, first_token="decode")
    done = execute_policy(
        instance,
        FirstComeFirstServed(),
        FormulaDevice(),
        vocabulary=VOCABULARY,
        observer=stopping(2),
    )
    rest = residual(instance, measured(done))
    assert rest.rows.tolist() == [1, 2]
    assert rest.yielded.tolist() == [6, 6]
    left = rest.instance.requests
    assert left.predicted_quantiles[0].tolist() == [3, 3, 3]
    first, middle, last = left.predicted_quantiles[1].tolist()
    assert 1 <= first <= middle <= last
    assert middle > 8 - 6  # that it is above 6 makes it longer
    assert last >= 12 - 6
    assert left.quantile_levels == (0.1, 0.5, 0.9)
