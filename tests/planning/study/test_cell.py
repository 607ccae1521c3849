"""What goes wrong in a cell becomes a record that a file can hold."""

from __future__ import annotations

import re

import pytest

from orsched.planning.study.cell import execute
from orsched.planning.study.plan import key_of
from orsched.planning.study.store import Store


class Wordless(Exception):
    """An error whose text cannot be had."""

    def __str__(self):
        raise RuntimeError("no words today")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ValueError("half \udc80 a character"), r"ValueError: half \udc80 a character"),
        (ValueError("a\0b\r\nc"), r"ValueError: a\0b c"),
        (Wordless(), "Wordless: no words"),
        (SystemExit(0), "SystemExit: 0"),
        (MemoryError(), "MemoryError: "),
        (ValueError("x" * 10**6), f"ValueError: {'x' * 10_000} ..."),
    ],
)
def test_every_error_of_a_policy_can_be_recorded(tmp_path, monkeypatch, error, said):
    def fail(task):
        raise error

    monkeypatch.setattr("orsched.planning.study.cell._run", fail)
    content = {"x": 1}
    record = execute({"key": key_of(content), "content": content})
    error = re.sub(r" \(test_cell\.py, line \d+\)$", "", record["error"])
    assert (record["status"], error) == ("failed", said)
    with Store(tmp_path) as store:
        store.add(record)
        assert store.load([record["key"]]) == {record["key"]: record}
