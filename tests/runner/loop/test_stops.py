"""Runs that end early: Ctrl-C, and a worker that is lost again and again."""

import os
import signal
import threading
from dataclasses import replace
from functools import partial

import pytest

import orsched
from orsched.common.errors import InfeasibleError
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
from tests.refusals import refused
from tests.runner.loop.fake_device import VOCABULARY, FormulaDevice, lost_at, played, reference
from tests.runner.loop.spec import UNSERVED, build, served
from tests.runner.loop.test_failover import faulty


@pytest.fixture
def instance():
    return orsched.load("pang-100x20")


@pytest.fixture
def both(instance):
    """The same requests on two workers."""
    return instance.replace(workers=[instance.worker, instance.worker])


def fcfs(instance):
    return build(instance, "fcfs", 0)


def press():
    os.kill(os.getpid(), signal.SIGINT)


def faults(instance, schedule):
    return orsched.check(instance, schedule, times="measured")


class Presses(FormulaDevice):
    """Somebody presses Ctrl-C while a step runs, and again while the run is put in order."""

    def __init__(self, at, later=0):
        super().__init__()
        self.at, self.later, self.released = at, later, 0

    def begin(self, *step):
        super().begin(*step)
        if self.number == self.at:
            press()

    def release(self, *slot):
        self.released += 1
        if self.released <= self.later:
            press()
        return super().release(*slot)


class PressesAhead(VirtualDevice):
    """The same on a device on which the loop looks ahead."""

    begun = 0

    def begin(self, *step):
        super().begin(*step)
        self.begun += 1
        if self.begun == 5:
            press()


def test_ctrl_c_waits_for_the_steps_that_were_begun(both):
    before = signal.getsignal(signal.SIGINT)
    devices = [Presses(7), FormulaDevice()]
    done = played(both, fcfs(both), devices)
    assert done.stopped == "interrupted"
    assert done.schedule.is_partial
    assert devices[0].number == (done.schedule.steps.worker == 0).sum() == 7
    assert faults(both, done.schedule) == []
    kinds = {each.kind.value for each in orsched.check(both, done.schedule)}
    assert kinds == {"completeness"}
    assert done.events[-1]["what"] == "stopped"
    assert signal.getsignal(signal.SIGINT) is before
    counts = yielded_tokens(both, done.schedule)
    unfinished = done.schedule.run["unfinished"]
    assert unfinished
    for request, tokens in enumerate(done.tokens):
        assert len(tokens) == counts[request]
        finished = counts[request] == both.requests.output_tokens[request]
        assert unfinished.get(str(request), []) == ([] if finished else tokens)


def test_ctrl_c_while_the_loop_looks_ahead(instance):
    device = PressesAhead()
    done = execute_policy(instance, FirstComeFirstServed(), device)
    assert done.stopped == "interrupted"
    assert len(done.schedule.steps) == device.begun == len(done.planned_ns) == 5
    assert faults(instance, done.schedule) == []


def test_a_second_ctrl_c_is_raised():
    interrupts = Interrupts()
    with interrupts.kept():
        press()
        assert interrupts.asked == 1
        refused("", press, kind=KeyboardInterrupt)


def test_when_one_was_raised_further_ones_wait():
    """So that a run that was interrupted is put in order; in the end even that can be left."""
    interrupts = Interrupts()
    with interrupts.kept():
        with pytest.raises(KeyboardInterrupt), interrupts.raised():
            press()
        interrupts.asked = 0
        for _ in range(3):
            press()
        refused("", press, kind=KeyboardInterrupt)


def test_other_threads_leave_signals_alone():
    seen = []

    def run():
        with Interrupts().kept():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert seen == [signal.getsignal(signal.SIGINT)]


def test_a_second_ctrl_c_while_the_run_is_put_in_order(instance):
    device = Presses(1, later=2)
    done = played(instance, fcfs(instance), [device])
    assert device.released >= 2
    assert done.stopped == "interrupted"
    assert faults(instance, done.schedule) == []


@pytest.mark.parametrize("where", ["begin", "end"])
def test_a_worker_that_is_lost_again_and_again_ends_the_run(both, where):
    devices = [FormulaDevice(), FormulaDevice(lambda number: where if number > 9 else None)]
    done = played(both, fcfs(both), devices)
    assert sum(event["what"] == "lost" for event in done.events) == MOST_LOSSES + 1
    assert "was lost 4 times without a step done in between" in done.stopped
    assert done.schedule.is_partial
    assert faults(both, done.schedule) == []


def test_other_workers_go_on_while_one_is_away(both):
    done = execute_policy(both, fcfs(both), [FormulaDevice(), lost_at(5, 10**12)])
    lost, back = done.events
    assert (lost["what"], back["what"], lost["worker"]) == ("lost", "restarted", 1)
    assert back["time_ns"] - lost["time_ns"] == 10**12
    assert lost["requests"]
    steps = done.schedule.steps
    meanwhile = (steps.start_ns > lost["time_ns"]) & (steps.start_ns < back["time_ns"])
    assert meanwhile.sum() > 20
    assert not steps.worker[meanwhile].any()
    assert orsched.check(both, done.schedule) == []


class Slow(VirtualDevice):
    """Takes twice as long as planned."""

    def begin(self, chunks, active, rounds, planned_ns):
        super().begin(chunks, active, rounds, 2 * planned_ns)

    def restart(self):
        """Be there again."""


def test_times_come_from_the_devices(both):
    done = execute_policy(both, fcfs(both), [Slow(), Slow()])
    steps = done.schedule.steps
    assert (steps.end_ns - steps.start_ns).tolist() == (2 * done.planned_ns).tolist()
    assert faults(both, done.schedule) == []


def test_residual_and_merge_refuse_what_does_not_belong_together(instance, both):
    done = execute_policy(instance, FirstComeFirstServed(), VirtualDevice())
    refused("nothing to resume", residual, instance, done.schedule)
    stopped = execute_policy(instance, FirstComeFirstServed(), Presses(30)).schedule
    refused("another instance", residual, both, stopped)
    refused("not the rest", merge, instance, stopped, done.schedule)
    rest = residual(instance, stopped)
    assert rest.yielded.any()
    bare = stopped.replace(run={"complete": False})
    refused("tokens; 0 are noted", prompts_of_rest, rest, bare, 0, VOCABULARY)


def test_prompts_have_the_lengths_of_the_instance(instance):
    given = instance, FirstComeFirstServed(), VirtualDevice()
    refused("not as long", execute_policy, *given, prompts=[[1]] * 100)
    assert Times(1, 2).end_ns == 2


def stopping(after):
    """Return an observer that presses Ctrl-C before a step."""
    left = [after]

    def observe(view, step):
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt

    return observe


def measured(done):
    return done.schedule.replace(
        run={**done.schedule.run, "device": "formula", "clock": "cost model"}
    )


def in_parts(instance, policy_of, devices_of, stops):
    """Run an instance with stops; return the whole trace and what each request has yielded.

    ``policy_of(problem, rest)`` and ``devices_of(problem)`` make what runs each part.
    """
    tokens, rest, trace = [[] for _ in range(len(instance))], None, None
    problem, prompts, rows = instance, None, range(len(instance))
    for stop in (*stops, 10**9):
        if trace is not None:
            rest = residual(instance, trace)
            problem, rows = rest.instance, rest.rows.tolist()
            prompts = prompts_of_rest(rest, trace, 0, VOCABULARY)
        done = played(
            problem, policy_of(problem, rest), devices_of(problem), observer=stopping(stop),
            prompts=prompts, most_losses=1000,
        )  # fmt: skip
        add(tokens, rows, done)
        trace = measured(done) if trace is None else merge(instance, trace, measured(done))
        assert faults(instance, trace) == []
        if not trace.is_partial:
            break
    return trace, tokens


def add(tokens, rows, done):
    for row, found in zip(rows, done.tokens, strict=True):
        tokens[row] += found


def resumed(trace):
    return sum(event["what"] == "resumed" for event in trace.run.get("events", []))


def test_a_policy_that_splits_prompts_goes_on_where_another_cannot(instance):
    cap = instance.requests.prompt_tokens.max()
    instance = instance.replace(workers=replace(instance.worker, prefill_cap_tokens=cap))
    policy = build(instance, "vllm@none+chunked_prefill=false", 0)
    done = played(instance, policy, lost_at(30))
    assert "can never be admitted" in done.stopped
    assert "splits no prompts" in done.stopped
    trace, tokens = measured(done), [list(each) for each in done.tokens]
    assert faults(instance, trace) == []
    rest = residual(instance, trace)
    prompts = prompts_of_rest(rest, trace, 0, VOCABULARY)
    with pytest.raises(InfeasibleError):
        execute_policy(rest.instance, FirstComeFirstServed(), FormulaDevice(), prompts=prompts)
    done = played(rest.instance, build(rest.instance, "vllm", 0), prompts=prompts)
    add(tokens, rest.rows.tolist(), done)
    assert tokens == reference(instance)
    assert faults(instance, merge(instance, trace, done.schedule)) == []


def test_lengths_that_turn_out_in_parts(instance):
    instance = instance.replace(output_limit_tokens=512)
    done = played(instance, FirstComeFirstServed(), observer=stopping(60), end_of_sequence=3)
    whole, trace, tokens = done.instance, measured(done), [list(each) for each in done.tokens]
    for stop in (80, 10**9):
        assert faults(whole, trace) == []
        rest = residual(whole, trace)
        done = played(
            rest.instance, FirstComeFirstServed(), observer=stopping(stop), end_of_sequence=3,
            prompts=prompts_of_rest(rest, trace, 0, VOCABULARY),
            most_tokens=rest.instance.requests.output_tokens,
        )  # fmt: skip
        add(tokens, rest.rows.tolist(), done)
        trace = merge(whole, trace, done.schedule, came_out=done.instance)
        whole = with_lengths(whole, rest, done.instance)
    longest = instance.replace(requests=instance.requests.replace(output_tokens=[512] * 100))
    assert tokens == reference(longest, ends={3})
    assert whole.requests.output_tokens.tolist() == [len(each) for each in tokens]
    assert faults(whole, trace) == []
    assert not trace.is_partial


@pytest.mark.parametrize("name", METHODS)
def test_the_whole_is_one_valid_run(name):
    parts = 0
    for seed, rng, instance, _ in served(f"resume {name}", name, 30):
        stops = [rng.randint(0, 12) for _ in range(rng.randint(1, 8))]
        try:
            trace, tokens = in_parts(
                instance, lambda it, _, seed=seed: build(it, name, seed),
                partial(faulty, rng=rng, share=0.05), stops,
            )  # fmt: skip
        except UNSERVED:
            continue  # prompts with what was yielded are too long for a stage, or for memory
        assert tokens == reference(instance)
        assert not trace.is_partial
        parts += resumed(trace)
    assert parts


def test_what_is_predicted_of_the_rest_is_the_rest_of_its_distribution():
    rows = [[6, 6, 6], [9, 9, 9], [5, 8, 12]]
    requests = orsched.Requests(
        [4, 4, 4], [6, 9, 9], predicted_quantiles=rows, quantile_levels=[0.1, 0.5, 0.9]
    )
    worker = orsched.Worker(3, in_order(orsched.AffineCost, 5, 1, 5, 1))
    instance = orsched.Instance(requests, worker, output_limit_tokens=12, first_token="decode")
    done = played(instance, FirstComeFirstServed(), observer=stopping(2))
    rest = residual(instance, measured(done))
    assert (rest.rows.tolist(), rest.yielded.tolist()) == ([1, 2], [6, 6])
    left = rest.instance.requests
    assert left.predicted_quantiles[0].tolist() == [3, 3, 3]
    first, middle, last = left.predicted_quantiles[1].tolist()
    assert 1 <= first <= middle <= last
    assert middle > 8 - 6  # that it is above 6 makes it longer
    assert last >= 12 - 6
    assert left.quantile_levels == (0.1, 0.5, 0.9)
