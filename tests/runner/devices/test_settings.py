"""Devices are waited for together, or taken for hung; settings say what is wrong with them."""

import os
import threading
from contextlib import contextmanager
from multiprocessing import Pipe as connections
from time import perf_counter

import pytest

import orsched
from orsched.common.errors import InputError
from orsched.runner.devices import settings as module
from orsched.runner.devices.device import VirtualDevice, WorkerLostError, start_together, wait
from orsched.runner.devices.remote import Ended, Ready, RemoteDevice
from orsched.runner.devices.settings import WorkerSettings, contention, one_each, visible_gpu
from orsched.runner.execution import run
from orsched.runner.worker_pool import RunSettings
from tests.refusals import refused


class Waiting(VirtualDevice):
    """Is done when a connection says so, or ready after some questions."""

    def __init__(self, asked=0):
        super().__init__()
        self.here, self.there = connections()
        self.asked, self.zero_ns = asked, None

    def start(self, zero_ns=None):
        assert self.asked == 0
        self.zero_ns = zero_ns

    def ready(self):
        self.asked = max(0, self.asked - 1)
        return self.asked == 0

    def done(self):
        return self.here.poll()

    def handles(self):
        return [self.here]


def test_the_first_device_that_is_done_ends_the_wait():
    devices = [Waiting(), Waiting()]
    threading.Timer(0.05, devices[1].there.send, ["over"]).start()
    wait(devices)
    assert [device.done() for device in devices] == [False, True]


def test_a_wait_ends_at_its_moment():
    before = perf_counter()
    wait([Waiting()], until_ns=70_000_000, now_ns=20_000_000)
    assert perf_counter() - before >= 0.05
    wait([Waiting()], until_ns=0, now_ns=1)
    wait([], until_ns=1_000_000, now_ns=0)


def test_what_ends_a_sleep_disturbs_no_answer():
    device = Waiting()

    @contextmanager
    def raising():
        device.there.send("over")
        raise KeyboardInterrupt
        yield

    refused("", wait, [device], sleeping=raising, kind=KeyboardInterrupt)
    wait([device], sleeping=raising)  # it is done: nobody sleeps
    assert device.here.recv() == "over"


def test_a_device_that_gets_ready_ends_the_wait_of_one_that_works_and_all_start_together():
    working, coming = Waiting(), Waiting(asked=4)
    coming.there.send("something")
    coming.done = lambda: False
    wait([working, coming])
    assert coming.ready()
    assert not working.done()
    coming.asked = 5
    start_together([working, coming])
    assert working.zero_ns == coming.zero_ns is not None


def test_a_virtual_device_is_done_when_a_step_was_begun():
    device = VirtualDevice()
    start_together([device])
    assert not device.done()
    device.begin([], [0], 1, 5)
    assert device.done()
    assert device.end() == (0, 5)
    device.restart()
    device.close()
    assert device.ready()


@pytest.mark.parametrize("wrong", [
    {"slots": 0}, {"length": 0}, {"device": "gpu"}, {"device": "cuda:x"}, {"dtype": "int8"},
    {"threads": 0}, {"seed": -1},
])  # fmt: skip
def test_wrong_settings_name_their_field(wrong):
    assert refused("", WorkerSettings, **wrong).field == next(iter(wrong))


def test_each_worker_gets_a_gpu_or_its_share_of_the_cores(monkeypatch):
    monkeypatch.setattr(module, "cores", lambda: 8)
    monkeypatch.setattr(module, "_gpus", lambda: 2)
    plain, gpu = WorkerSettings(), WorkerSettings(device="cuda")
    assert one_each(plain, 1) == [plain]
    assert [one.threads for one in one_each(plain, 3)] == [2, 2, 2]
    assert [one.threads for one in one_each(plain, 20)] == [1] * 20
    assert [one.threads for one in one_each(WorkerSettings(threads=5), 2)] == [5, 5]
    assert [one.device for one in one_each(gpu, 2)] == ["cuda:0", "cuda:1"]
    assert [one.device for one in one_each(WorkerSettings(device="cuda:1"), 2)] == ["cuda:1"] * 2
    refused("2 GPUs", one_each, gpu, 3)


def test_a_process_sees_its_gpu_alone(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert visible_gpu("cpu") == ({}, "cpu")
    assert visible_gpu("cuda") == ({}, "cuda")
    assert visible_gpu("cuda:1") == ({"CUDA_VISIBLE_DEVICES": "1"}, "cuda:0")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-a, GPU-b")
    assert visible_gpu("cuda:1") == ({"CUDA_VISIBLE_DEVICES": "GPU-b"}, "cuda:0")
    refused("no GPU 2", visible_gpu, "cuda:2")


@pytest.fixture
def machine(monkeypatch):
    def have(cores, busy):
        monkeypatch.setattr(module, "cores", lambda: cores)
        monkeypatch.setattr(os, "getloadavg", lambda: (busy, 0.0, 0.0))

    return have


@pytest.mark.parametrize(("cores", "busy", "threads", "device", "said"), [
    (4, 0.0, 4, "cpu", None), (4, 0.2, None, "cpu", None), (4, 2.0, 2, "cpu", None),
    (4, 2.0, 3, "cpu", "--threads 2"), (4, 0.9, None, "cpu", "--threads 3"),
    (4, 9.0, 1, "cpu", "wait for a calmer moment"),
    (1, 0.0, 2, "cpu", "2 threads share 1 core:"), (4, 0.0, 5, "cpu", "5 threads share 4"),
    (4, 2.5, 8, "cuda", None), (4, 4.0, None, "cuda", "wait for"),  # a GPU wants one core
])  # fmt: skip
def test_too_many_threads_and_a_high_load_are_told(machine, cores, busy, threads, device, said):
    machine(cores, busy)
    found = contention(WorkerSettings(device=device, threads=threads))
    assert (said is None) == (found == [])
    assert said is None or said in found[0]


def test_a_machine_that_says_nothing_of_its_load_is_taken_as_idle(machine, monkeypatch):
    machine(2, 0.0)
    monkeypatch.delattr(os, "getloadavg")
    assert contention(WorkerSettings(threads=2)) == []


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


def test_a_worker_hangs_after_the_time_that_was_given():
    device = Silent(WorkerSettings(), hang_s=0.2)
    device.start()
    device.begin([], [0], 1, 0)
    device.end()
    device.begin([], [0], 1, 0)
    wrong = refused(r"far too long \(limit: 0.2 s\)", device.end, kind=WorkerLostError)
    assert wrong.reason == "hung"


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
        refused("no more", run, orsched.load("two-by-two"), "fcfs", settings)
    assert seen == [None, 2.5]


def test_a_worker_in_this_process_has_no_such_time():
    settings = RunSettings(device="cpu", worker_timeout=2.5)
    assert refused("", run, orsched.load("two-by-two"), "fcfs", settings).field == "worker_timeout"
