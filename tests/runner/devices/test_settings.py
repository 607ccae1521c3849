"""Devices are waited for together; settings say what is wrong with them."""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager
from multiprocessing import Pipe as connections
from time import perf_counter

import pytest

from orsched.common.errors import InputError
from orsched.runner.devices import settings as load
from orsched.runner.devices import settings as module
from orsched.runner.devices.device import VirtualDevice, start_together, wait
from orsched.runner.devices.settings import WorkerSettings, contention, one_each, visible_gpu


class Waiting(VirtualDevice):
    """Is done when a connection says so, or ready after some questions."""

    def __init__(self, asked: int = 0) -> None:
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

    with pytest.raises(KeyboardInterrupt):
        wait([device], sleeping=raising)
    wait([device], sleeping=raising)  # it is done: nobody sleeps
    assert device.here.recv() == "over"


def test_a_device_that_gets_ready_ends_the_wait_of_one_that_works():
    working, coming = Waiting(), Waiting(asked=4)
    coming.there.send("something")
    coming.done = lambda: False
    wait([working, coming])
    assert coming.ready()
    assert not working.done()


def test_devices_start_together_when_all_are_ready():
    devices = [Waiting(), Waiting(asked=5)]
    devices[1].done = lambda: False
    devices[1].there.send("something")
    start_together(devices)
    assert devices[0].zero_ns == devices[1].zero_ns is not None


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


@pytest.mark.parametrize(
    "wrong",
    [
        {"slots": 0},
        {"length": 0},
        {"device": "gpu"},
        {"device": "cuda:x"},
        {"dtype": "int8"},
        {"threads": 0},
        {"seed": -1},
    ],
)
def test_wrong_settings_name_their_field(wrong):
    with pytest.raises(InputError) as caught:
        WorkerSettings(**wrong)
    assert caught.value.field == next(iter(wrong))


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
    with pytest.raises(InputError, match="2 GPUs"):
        one_each(gpu, 3)


def test_a_process_sees_its_gpu_alone(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert visible_gpu("cpu") == ({}, "cpu")
    assert visible_gpu("cuda") == ({}, "cuda")
    assert visible_gpu("cuda:1") == ({"CUDA_VISIBLE_DEVICES": "1"}, "cuda:0")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-a, GPU-b")
    assert visible_gpu("cuda:1") == ({"CUDA_VISIBLE_DEVICES": "GPU-b"}, "cuda:0")
    with pytest.raises(InputError, match="no GPU 2"):
        visible_gpu("cuda:2")


@pytest.fixture
def machine(monkeypatch):
    """Set the cores and the load of the machine."""

    def have(cores, busy):
        monkeypatch.setattr(load, "cores", lambda: cores)
        monkeypatch.setattr(os, "getloadavg", lambda: (busy, 0.0, 0.0))

    return have


@pytest.mark.parametrize(
    ("cores", "busy", "threads", "said"),
    [
        (4, 0.0, 4, None),
        (4, 0.2, None, None),
        (4, 2.0, 2, None),
        (4, 2.0, 3, "--threads 2"),
        (4, 0.9, None, "--threads 3"),
        (4, 9.0, 1, "wait for a calmer moment"),
        (4, 0.0, 5, "5 threads share 4 cores"),
        (1, 0.0, 2, "2 threads share 1 core:"),
    ],
)
def test_too_many_threads_and_a_high_load_are_told(machine, cores, busy, threads, said):
    machine(cores, busy)
    found = contention(WorkerSettings(threads=threads))
    assert (said is None) == (found == [])
    assert said is None or said in found[0]


def test_a_worker_on_a_gpu_wants_one_core(machine):
    machine(4, 2.5)
    assert contention(WorkerSettings(device="cuda", threads=8)) == []
    machine(4, 4.0)
    assert "wait for" in contention(WorkerSettings(device="cuda"))[0]


def test_a_machine_that_says_nothing_of_its_load_is_taken_as_idle(machine, monkeypatch):
    machine(2, 0.0)
    monkeypatch.delattr(os, "getloadavg")
    assert contention(WorkerSettings(threads=2)) == []
