"""Requests as JSON lines: the same as in CSV, and mistakes at their line."""

from __future__ import annotations

import json

import pytest

from orsched.cli.commands import run
from orsched.common.errors import InputError
from orsched.files import load_instance, read_requests_csv, read_requests_jsonl

ROWS = [
    {"prompt_tokens": 5, "output_tokens": 1, "arrival_s": 0, "class": "chat", "tenant": "a",
     "deadline_s": 0.5, "id": "x"},
    {"prompt_tokens": 6, "output_tokens": 9, "arrival_s": 0.1, "class": "bulk", "tenant": "b",
     "deadline_s": 0, "id": "y"},
]  # fmt: skip
CLASSES = ["chat", "bulk"]


def write(path, lines):
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def test_lines_hold_what_csv_holds(tmp_path):
    lines = [json.dumps(row) for row in ROWS]
    found = read_requests_jsonl(write(tmp_path / "r.jsonl", [lines[0], "", lines[1]]), CLASSES)
    cells = [",".join(str(value) for value in row.values()) for row in ROWS]
    table = write(tmp_path / "r.csv", [",".join(ROWS[0]), *cells])
    assert found == read_requests_csv(table, CLASSES)
    assert found.deadline_ns.tolist() == [5 * 10**8, 0]
    assert found.tenants == ("a", "b")


@pytest.mark.parametrize(
    ("change", "field", "says"),
    [
        ({"class": "fast"}, "class", "'fast' is not a service class"),
        ({"tenant": 7}, "tenant", "stands among names"),
        ({"deadline_s": -1}, "deadline_s", "-1.0 s is negative"),
        ({"deadline_s": "soon"}, "deadline_s", "is not a number of seconds"),
        ({"prompt_tokens": 1.5}, "prompt_tokens", "1.5 is not a whole number"),
        ({"prompt_tokens": None}, "prompt_tokens", "missing"),
        ({"colour": 1}, "colour", "not in the first line"),
    ],
)
def test_wrong_values_name_their_line(tmp_path, change, field, says):
    lines = [json.dumps(ROWS[0]), "", json.dumps({**ROWS[1], **change})]
    with pytest.raises(InputError) as caught:
        read_requests_jsonl(write(tmp_path / "r.jsonl", lines), CLASSES)
    assert (caught.value.row, caught.value.field) == (3, field)
    assert says in caught.value.problem
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("line", "row", "field"),
    [
        ("[1, 2]", 1, None),
        ("{", 1, None),
        ('{"prompt_tokens": 1}', None, "output_tokens"),
        ('{"prompt_tokens": 1, "output_tokens": 1, "colour": 1}', None, "colour"),
    ],
)
def test_wrong_first_lines_are_located(tmp_path, line, row, field):
    with pytest.raises(InputError) as caught:
        read_requests_jsonl(write(tmp_path / "r.jsonl", [line]))
    assert (caught.value.row, caught.value.field) == (row, field)


def test_a_missing_value_names_its_line(tmp_path):
    lines = [json.dumps(ROWS[0]), '{"prompt_tokens": 1}']
    with pytest.raises(InputError) as caught:
        read_requests_jsonl(write(tmp_path / "r.jsonl", lines), CLASSES)
    assert (caught.value.row, caught.value.field) == (2, "output_tokens")


def test_convert_takes_json_lines_with_classes(tmp_path, capsys):
    source = write(tmp_path / "r.jsonl", [json.dumps(row) for row in ROWS])
    target = tmp_path / "r.json"
    options = ["--clients", "2", "--class", "chat:ttft=1", "--class", "bulk"]
    assert run(["convert", str(source), str(target), *options]) == 0
    instance = load_instance(target)
    assert [kind.name for kind in instance.classes] == ["interactive", "batch", "chat", "bulk"]
    assert instance.requests.service_class.tolist() == [2, 3]
