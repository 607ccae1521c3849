"""Parents, delays and concurrency in files: round trips, and what is wrong with a row."""

from __future__ import annotations

import json

import pytest

import orsched
from orsched import InputError, Instance, Requests, Worker
from orsched.files.request_columns import (
    read_requests_csv,
    read_requests_jsonl,
    requests_from_frame,
    requests_to_frame,
    write_requests_csv,
)

COLUMNS = {"parent": [-1, 0, -1, 1], "delay_ns": [-1, 10**9, -1, -1]}
PLAIN = Requests([5, 9, 5, 12], [2, 2, 2, 2], **COLUMNS)
NAMED = PLAIN.replace(ids=("a", "b", "c", "d"))


@pytest.mark.parametrize("requests", [PLAIN, NAMED])
def test_every_format_gives_turns_back(requests, tmp_path):
    case = Instance(requests, (Worker(2, orsched.load("gate").worker.cost),), concurrency=2)
    for suffix in ("json", "parquet"):
        path = tmp_path / f"case.{suffix}"
        orsched.save_instance(case, path)
        assert orsched.load(path) == case
        assert orsched.load(path).sha256 == case.sha256
    write_requests_csv(requests, tmp_path / "r.csv")
    assert read_requests_csv(tmp_path / "r.csv") == requests
    assert requests_from_frame(requests_to_frame(requests)) == requests
    assert orsched.load(tmp_path / "r.csv", clients=2).requests == requests


def test_csv_may_leave_cells_empty_and_say_seconds(tmp_path):
    path = tmp_path / "r.csv"
    path.write_text(
        "id,prompt_tokens,output_tokens,parent,delay_s\na,5,2,,\nb,9,2,a,1\nc,5,2,,\nd,12,2,b,\n"
    )
    assert read_requests_csv(path) == NAMED
    path.write_text("prompt_tokens,output_tokens,parent,think_time_s\n5,2,,\n9,2,0,0.5\n")
    assert orsched.load(path, clients=1).requests.delay_ns.tolist() == [-1, 5 * 10**8]


def test_json_lines_hold_seconds_or_null(tmp_path):
    rows = [
        {"id": "a", "prompt_tokens": 5, "output_tokens": 2, "parent": None, "delay_s": None},
        {"id": "b", "prompt_tokens": 9, "output_tokens": 2, "parent": "a", "delay_s": 0.25},
    ]
    path = tmp_path / "r.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = read_requests_jsonl(path)
    assert found.parent.tolist() == [-1, 0]
    assert found.delay_ns.tolist() == [-1, 250_000_000]


@pytest.mark.parametrize(
    ("rows", "line", "field", "words"),
    [
        ("a,5,2,b,\n", 2, "parent", "'b' does not exist"),
        ("a,5,2,a,\n", 2, "parent", "circle"),
        ("a,5,2,,\nb,5,2,a,-3\n", 3, "delay_s", "negative|not|-3"),
        ("a,5,2,,\nb,5,2,a,soon\n", 3, "delay_s", "soon"),
        ("a,5,2,,\nb,5,2,,4\n", 3, "delay_s", "without a parent"),
        ("a,5,2,,\na,5,2,,\n", 3, "id", "twice"),
    ],
)
def test_a_wrong_row_is_named(rows, line, field, words, tmp_path):
    path = tmp_path / "r.csv"
    path.write_text("id,prompt_tokens,output_tokens,parent,delay_s\n" + rows)
    with pytest.raises(InputError, match=words) as caught:
        read_requests_csv(path)
    assert (caught.value.row, caught.value.field) == (line, field)


@pytest.mark.parametrize("value", [0, -1, None, "8", 1.5])
def test_a_wrong_concurrency_in_a_file_is_named(value, tmp_path):
    case = Instance(PLAIN, (Worker(2, orsched.load("gate").worker.cost),), concurrency=2)
    path = tmp_path / "case.json"
    orsched.save_instance(case, path)
    path.write_text(json.dumps(json.loads(path.read_text()) | {"concurrency": value}))
    with pytest.raises(InputError, match="concurrency"):
        orsched.load(path)
