"""How a bound changes with what the workers have."""

import json

import pytest
from click.testing import CliRunner

import orsched
from orsched.cli.commands import cli
from orsched.data.memory import BlockMemory
from orsched.models.bounds.sensitivity import FIELDS
from tests.in_order import in_order
from tests.refusals import refused


def by_hand(**worker):
    """Four requests of one round each on two clients: two rounds of 1 ms, and a stage each."""
    cost = in_order(orsched.AffineCost, 10**6, 0, 10**6, 0)
    requests = orsched.Requests([4, 4, 4, 4], [1, 1, 1, 1])
    return orsched.Instance(requests, orsched.Worker(2, cost, **worker), "decode")


def test_each_row_is_the_bound_of_the_changed_instance():
    instance = by_hand(prefill_cap_tokens=8, memory=BlockMemory(8, 4, "whole"))
    found = orsched.sensitivity(instance, factors=[1, 2, 0.5])
    assert found.bound_ns == orsched.bound(instance).value_ns
    assert [(row.field, row.factor) for row in found.rows] == [
        (name, factor) for name in FIELDS for factor in (0.5, 1, 2)
    ]
    rows = {(row.field, row.factor): row for row in found.rows}
    assert rows["clients", 0.5].value == 1
    assert rows["clients", 0.5].bound_ns == 8 * 10**6  # four stages and four rounds
    assert rows["clients", 2].bound_ns < found.bound_ns < rows["clients", 0.5].bound_ns
    assert rows["prefill_cap_tokens", 0.5].bound_ns >= found.bound_ns
    assert all(rows[name, 1].change == 0 for name in FIELDS)
    assert list(found.to_pandas()["value"]) == [row.value for row in found.rows]


def test_where_a_request_fits_no_more_there_is_no_bound():
    rows = orsched.sensitivity(by_hand(memory=BlockMemory(2, 4, "whole")), factors=[0.5, 1]).rows
    assert [row.field for row in rows] == ["clients"] * 2 + ["memory_blocks"] * 2
    assert [row.bound_ns is None for row in rows] == [False, False, True, False]
    assert (rows[2].bound, rows[2].change) == ("", None)


@pytest.mark.parametrize(("options", "said"), [
    ({"factors": []}, "0 factors"), ({"factors": [0]}, "factors"), ({"factors": ["x"]}, "factors"),
    ({"factors": [float("nan")]}, "factors"), ({"factors": [1] * 101}, "101 factors"),
    ({"objective": "beauty"}, "no bound on"), ({"time_limit": -1}, "time_limit"),
    ({"allows": ["magic"]}, "magic"),
])  # fmt: skip
def test_wrong_arguments_are_named(options, said):
    refused(said, orsched.sensitivity, by_hand(), **options)


def test_the_picture_has_a_line_for_each_field():
    ax = orsched.sensitivity(by_hand(prefill_cap_tokens=8), factors=[0.5, 2]).plot()
    assert [line.get_label() for line in ax.lines] == ["clients", "prefill cap tokens"]
    assert list(ax.lines[0].get_xdata()) == [0.5, 2]


def test_the_command_prints_the_rows():
    line = ["bound", "with-arrivals", "--sensitivity", "--format", "json"]
    done = CliRunner().invoke(cli, line)
    assert done.exit_code == 0
    found = orsched.sensitivity(orsched.load("with-arrivals"))
    rows = json.loads(done.stdout)
    assert [row["bound_s"] for row in rows] == [row.bound_ns / 1e9 for row in found.rows]
