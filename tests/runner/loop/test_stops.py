"""Runs that end early: Ctrl-C, and a worker that is lost again and again."""

from __future__ import annotations

import os
import signal
import threading

import pytest

import orsched
from orsched.common.errors import InputError
from orsched.heuristics.pang import FirstComeFirstServed
from orsched.runner.devices.device import Times, VirtualDevice
from orsched.runner.loop.live import MOST_LOSSES, execute_policy
from orsched.runner.loop.live_loop import Interrupts
from orsched.runner.loop.resume import merge, prompts_of_rest, residual, yielded_tokens
from tests.runner.loop.fake_device import VOCABULARY, FormulaDevice


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
