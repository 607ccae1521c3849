"""Prefixes that no worker caches are not used; that is said once, not never and not every time."""

from __future__ import annotations

import logging

import pytest

import orsched
from orsched.cli.commands import run
from orsched.data import instance as instance_module
from orsched.data.requests import Prefixes
from orsched.files import save_instance
from orsched.planning.study import read_study
from orsched.runner import RunSettings
from orsched.runner import run as run_live


@pytest.fixture
def prefixed():
    instance = orsched.load("two-by-two")
    count = len(instance)
    prefixes = Prefixes(list(range(count + 1)), [7] * count, 16)
    return instance.replace(requests=instance.requests.replace(prefixes=prefixes))


@pytest.fixture(autouse=True)
def _anew():
    instance_module._say_prefixes.cache_clear()


@pytest.mark.parametrize(
    "use",
    [
        lambda instance: orsched.solve(instance, "fcfs"),
        lambda instance: orsched.simulate(instance, "orsched.heuristics.pang:FirstComeFirstServed"),
        lambda instance: orsched.compare(instance, ["fcfs", "online"]),
        lambda instance: run_live(instance, "fcfs", RunSettings("virtual")),
    ],
    ids=["solve", "simulate", "compare", "run"],
)
def test_it_is_said_once(prefixed, caplog, use):
    with caplog.at_level(logging.WARNING, "orsched"):
        use(orsched.load("two-by-two"))
        assert caplog.messages == []
        use(prefixed)
        use(prefixed)
    (message,) = caplog.messages
    assert "prefix_ids of the requests are not used, for no worker" in message


def test_the_command_line_says_it_on_stderr(prefixed, tmp_path, caplog):
    path = tmp_path / "prefixed.json"
    save_instance(prefixed, path)
    assert run(["solve", str(path), "--method", "fcfs"]) == 0
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    instance_module._say_prefixes.cache_clear()
    read_study({"instances": [str(path)], "policies": ["fcfs"]})
    assert len(caplog.messages) == 2
