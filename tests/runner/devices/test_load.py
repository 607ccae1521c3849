"""Warnings of a machine that is busy."""

from __future__ import annotations

import os

import pytest

from orsched.runner.devices import settings as load
from orsched.runner.devices.settings import WorkerSettings, contention


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
