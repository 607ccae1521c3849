"""Runs that end early: Ctrl-C, and a worker that is lost again and again."""

from __future__ import annotations

import os
import signal
import threading
from dataclasses import replace

import pytest

import orsched
from orsched.common.errors import InfeasibleError, InputError, PolicyError
from orsched.heuristics.pang import FirstComeFirstServed
from orsched.runner.devices.device import Times, VirtualDevice
from orsched.runner.loop.live import MOST_LOSSES, execute_policy
from orsched.runner.loop.live_loop import Interrupts
from orsched.runner.loop.resume import (
    merge,
    prompts_of_rest,
    residual,
    with_lengths,
    yielded_tokens,
)
from tests.in_order import in_order
from tests.product.policies import METHODS
from tests.runner.loop.fake_device import VOCABULARY, FormulaDevice, reference
from tests.runner.loop.spec import build
from tests.runner.loop.test_failover import faulty, served


@pytest.fixture
def instance():
    return orsched.load("pang-100x20")


def two(instance):
    return instance.replace(workers=[instance.worker, instance.worker])


def fcfs(instance):
    return orsched.common.registry.resolve("methods", "fcfs").build(instance, "none", {}, 0)[0]


class Presses(FormulaDevice):
    """Somebody presses Ctrl-C while a step runs."""

    def __init__(self, at):
        super().__init__()
        self.at = at

    def begin(self, *step):
        super().begin(*step)
        if self.number == self.at:
            os.kill(os.getpid(), signal.SIGINT)


class PressesAhead(VirtualDevice):
    """The same on a device on which the loop looks ahead."""

    begun = 0

    def begin(self, *step):
        super().begin(*step)
        self.begun += 1
        if self.begun == 5:
            os.kill(os.getpid(), signal.SIGINT)


def test_ctrl_c_waits_for_the_steps_that_were_begun(instance):
    before = signal.getsignal(signal.SIGINT)
    devices = [Presses(7), FormulaDevice()]
    done = execute_policy(two(instance), fcfs(two(instance)), devices, vocabulary=VOCABULARY)
    assert done.stopped == "interrupted"
    assert done.schedule.is_partial
    assert devices[0].number == 7
    assert (done.schedule.steps.worker == 0).sum() == 7
    assert orsched.check(two(instance), done.schedule, times="measured") == []
    kinds = {each.kind.value for each in orsched.check(two(instance), done.schedule)}
    assert kinds == {"completeness"}
    assert done.events[-1]["what"] == "stopped"
    assert signal.getsignal(signal.SIGINT) is before


def test_what_was_yielded_stands_in_the_trace(instance):
    done = execute_policy(
        two(instance), fcfs(two(instance)), [Presses(7), FormulaDevice()], vocabulary=VOCABULARY
    )
    counts = yielded_tokens(two(instance), done.schedule)
    unfinished = done.schedule.run["unfinished"]
    assert unfinished
    for request, tokens in enumerate(done.tokens):
        assert len(tokens) == counts[request]
        finished = counts[request] == instance.requests.output_tokens[request]
        assert unfinished.get(str(request), []) == ([] if finished else tokens)


def test_ctrl_c_while_the_loop_looks_ahead(instance):
    device = PressesAhead()
    done = execute_policy(instance, FirstComeFirstServed(), device)
    assert done.stopped == "interrupted"
    assert len(done.schedule.steps) == device.begun == len(done.planned_ns) == 5
    assert orsched.check(instance, done.schedule, times="measured") == []


def test_a_second_ctrl_c_is_raised():
    interrupts = Interrupts()
    with interrupts.kept():
        os.kill(os.getpid(), signal.SIGINT)
        assert interrupts.asked == 1
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_other_threads_leave_signals_alone():
    seen = []

    def run():
        with Interrupts().kept():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert seen == [signal.getsignal(signal.SIGINT)]


@pytest.mark.parametrize("where", ["begin", "end"])
def test_a_worker_that_is_lost_again_and_again_ends_the_run(instance, where):
    devices = [FormulaDevice(), FormulaDevice(lambda number: where if number > 9 else None)]
    done = execute_policy(two(instance), fcfs(two(instance)), devices, vocabulary=VOCABULARY)
    losses = [event for event in done.events if event["what"] == "lost"]
    assert len(losses) == MOST_LOSSES + 1
    assert "was lost 4 times without a step done in between" in done.stopped
    assert done.schedule.is_partial
    assert orsched.check(two(instance), done.schedule, times="measured") == []


def test_other_workers_go_on_while_one_is_away(instance):
    once = FormulaDevice(lambda number: "end" if number == 5 else None, restart_ns=10**12)
    done = execute_policy(two(instance), fcfs(two(instance)), [FormulaDevice(), once])
    lost, back = done.events
    assert (lost["what"], back["what"], lost["worker"]) == ("lost", "restarted", 1)
    assert back["time_ns"] - lost["time_ns"] == 10**12
    assert lost["requests"]
    steps = done.schedule.steps
    meanwhile = (steps.start_ns > lost["time_ns"]) & (steps.start_ns < back["time_ns"])
    assert meanwhile.sum() > 20
    assert not steps.worker[meanwhile].any()
    assert orsched.check(two(instance), done.schedule) == []


class Slow(VirtualDevice):
    """Takes twice as long as planned."""

    def begin(self, chunks, active, rounds, planned_ns):
        super().begin(chunks, active, rounds, 2 * planned_ns)

    def restart(self):
        """Be there again."""


def test_times_come_from_the_devices(instance):
    both = two(instance)
    done = execute_policy(both, fcfs(both), [Slow(), Slow()])
    steps = done.schedule.steps
    assert (steps.end_ns - steps.start_ns).tolist() == (2 * done.planned_ns).tolist()
    assert orsched.check(both, done.schedule, times="measured") == []


def test_residual_and_merge_refuse_what_does_not_belong_together(instance):
    done = execute_policy(instance, FirstComeFirstServed(), VirtualDevice())
    with pytest.raises(InputError, match="nothing to resume"):
        residual(instance, done.schedule)
    stopped = execute_policy(instance, FirstComeFirstServed(), Presses(30)).schedule
    with pytest.raises(InputError, match="another instance"):
        residual(two(instance), stopped)
    with pytest.raises(InputError, match="not the rest"):
        merge(instance, stopped, done.schedule)
    rest = residual(instance, stopped)
    assert rest.yielded.any()
    with pytest.raises(InputError, match="tokens; 0 are noted"):
        prompts_of_rest(rest, stopped.replace(run={"complete": False}), 0, VOCABULARY)


def test_prompts_have_the_lengths_of_the_instance(instance):
    with pytest.raises(InputError, match="not as long"):
        execute_policy(instance, FirstComeFirstServed(), VirtualDevice(), prompts=[[1]] * 100)
    assert Times(1, 2).end_ns == 2


def test_when_one_was_raised_further_ones_wait():
    """So that a run that was interrupted is put in order; in the end even that can be left."""
    interrupts = Interrupts()
    with interrupts.kept():
        with pytest.raises(KeyboardInterrupt), interrupts.raised():
            os.kill(os.getpid(), signal.SIGINT)
        interrupts.asked = 0
        for _ in range(3):
            os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


class PressesTwice(FormulaDevice):
    """Ctrl-C in a step, and another one while the run is put in order."""

    released = 0

    def begin(self, *step):
        super().begin(*step)
        os.kill(os.getpid(), signal.SIGINT)

    def release(self, *slot):
        self.released += 1
        if self.released <= 2:
            os.kill(os.getpid(), signal.SIGINT)
        return super().release(*slot)


def test_a_second_ctrl_c_while_the_run_is_put_in_order(instance):
    device = PressesTwice()
    done = execute_policy(instance, fcfs(instance), [device], vocabulary=VOCABULARY)
    assert device.released >= 2
    assert done.stopped == "interrupted"
    assert orsched.check(instance, done.schedule, times="measured") == []


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
