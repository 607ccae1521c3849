"""When a worker is taken for hung."""

from __future__ import annotations

import os

import pytest

import orsched
from orsched.common.errors import InputError
from orsched.runner.devices.device import WorkerLostError
from orsched.runner.devices.remote import Ended, Ready, RemoteDevice
from orsched.runner.devices.settings import WorkerSettings
from orsched.runner.execution import run
from orsched.runner.worker_pool import RunSettings


class Silent(RemoteDevice):
    """Answers to its first step, which it says was slow, and to no other."""

    def _launch(self):
        self.answers = [Ready("silent", "perf_counter", {})]
        self.channel, self.writing = os.pipe()

    def _send(self, message):
        if self.steps == 1:
            self.answers.append(Ended(0, 10**10, b"\0" * 4))

    def _receive(self):
        return self.answers.pop(0) if self.answers else None

    def _channel(self):
        return self.channel

    def _kill(self):
        os.close(self.channel)
        os.close(self.writing)
        return ""


def steps(device):
    device.start()
    for _ in range(2):
        device.begin([], [0], 1, 0)
        device.end()


def test_a_worker_hangs_after_the_time_that_was_given():
    device = Silent(WorkerSettings(), hang_s=0.2)
    with pytest.raises(WorkerLostError, match=r"far too long \(limit: 0.2 s\)") as caught:
        steps(device)
    assert caught.value.reason == "hung"


def test_without_one_it_may_take_many_times_its_slowest_step():
    device = Silent(WorkerSettings())
    device.start()
    device.begin([], [0], 1, 0)
    assert device.limit_ns == 120 * 10**9
    device.end()
    device.begin([], [0], 2, 0)
    assert device.limit_ns == 2 * 20 * 10**10
    device.close()


def test_the_time_of_the_settings_is_that_of_the_devices(monkeypatch):
    pytest.importorskip("transformers", reason="the extra 'runner' is not installed")
    seen = []

    def launch(settings, hang_s):
        seen.append(hang_s)
        raise InputError("no more is to be seen")

    monkeypatch.setattr("orsched.runner.devices.processes.ProcessDevice", launch)
    for given in (None, 2.5):
        settings = RunSettings(device="cpu", place="process", worker_timeout=given)
        with pytest.raises(InputError, match="no more"):
            run(orsched.load("two-by-two"), "fcfs", settings)
    assert seen == [None, 2.5]


def test_a_worker_in_this_process_has_no_such_time():
    settings = RunSettings(device="cpu", worker_timeout=2.5)
    with pytest.raises(InputError) as caught:
        run(orsched.load("two-by-two"), "fcfs", settings)
    assert caught.value.field == "worker_timeout"
