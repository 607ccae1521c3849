"""Requests as CSV, JSON lines and data frames."""

from __future__ import annotations

import json
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orsched.cli.commands import run
from orsched.common.errors import InputError
from orsched.data.instance import Instance
from orsched.data.requests import Prefixes, Requests
from orsched.data.workers import Worker
from orsched.files import (
    load_instance,
    read_requests_csv,
    read_requests_jsonl,
    tables,
    write_requests_csv,
)
from orsched.files.cells import seconds
from orsched.files.request_columns import requests_from_frame, requests_to_frame


def read(tmp_path, text):
    path = tmp_path / "r.csv"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return read_requests_csv(path)


def test_seconds_are_converted_exactly(tmp_path):
    table = read(
        tmp_path,
        "prompt_tokens,output_tokens,arrival_s\n"
        "1,1,0.1\n1,1,.5\n1,1,3\n1,1,1e-3\n1,1,4.\n1,1,0.30000000000000004\n1,1, 7.25 \n",
    )
    assert table.arrival_ns.tolist() == [
        10**8,
        5 * 10**8,
        3 * 10**9,
        10**6,
        4 * 10**9,
        3 * 10**8,
        7_250_000_000,
    ]
    # In floats 2147483648.000000001 s would lose its nanosecond.
    large = read(tmp_path, "prompt_tokens,output_tokens,arrival_s\n1,1,2147483648.000000001\n")
    assert large.arrival_ns.tolist() == [2147483648 * 10**9 + 1]


@given(
    st.lists(
        st.from_regex(r"[0-9]{0,9}\.[0-9]{1,14}|[0-9]{1,9}|[0-9]{1,4}[eE]-?[0-5]", fullmatch=True)
    )
)
def test_nanoseconds_are_the_rounded_fraction(cells):
    assert seconds(cells).tolist() == [round(Fraction(c) * 10**9) for c in cells]


def test_names_and_codes_of_service_classes_are_read(tmp_path):
    text = "service_class,output_tokens,prompt_tokens\n0,1,1\n1,1,1\nbatch,1,1\ninteractive,1,1\n"
    assert read(tmp_path, text).service_class.tolist() == [0, 1, 1, 0]


def test_whole_decimals_signs_and_blanks_are_read(tmp_path):
    table = read(tmp_path, "prompt_tokens,output_tokens\n12.0,+3\n 7 ,4.\n")
    assert table.prompt_tokens.tolist() == [12, 7]
    assert table.output_tokens.tolist() == [3, 4]


def test_line_ends_empty_lines_and_byte_order_mark(tmp_path):
    text = b"\xef\xbb\xbfprompt_tokens,output_tokens\r\n\r\n1,2\r\n3,4\r\n\r\n"
    assert read(tmp_path, text) == Requests([1, 3], [2, 4])
    assert read(tmp_path, "prompt_tokens,output_tokens\n") == Requests([], [])


@pytest.mark.parametrize("chunk", [1, 2, 3, 100])
def test_chunks_change_neither_values_nor_lines(tmp_path, monkeypatch, chunk):
    monkeypatch.setattr(tables, "CHUNK_ROWS", chunk)
    table = Requests([1, 2, 3, 4, 5], [1] * 5, ids=["a", "b\nb", "c", "d", "e"])
    path = tmp_path / "r.csv"
    write_requests_csv(table, path)
    assert read_requests_csv(path) == table
    text = path.read_text()
    for broken, row in [("e,0,", 7), ("e,x,", 7), ("e,", 7)]:
        with pytest.raises(ValueError, match=f"row {row}"):
            read(tmp_path, text.replace("e,5,", broken))
    with pytest.raises(ValueError, match="row 3"):
        read(tmp_path, text.replace('b",2,', 'b",x,'))


def test_classes_tenants_and_deadlines_are_read_by_name(tmp_path):
    text = "prompt_tokens,output_tokens,class,tenant,deadline_s\n1,1,bulk,b,0\n1,1,chat,a,0.5\n"
    (tmp_path / "r.csv").write_text(text)
    table = read_requests_csv(tmp_path / "r.csv", ["chat", "code", "bulk"])
    assert table.service_class.tolist() == [2, 0]
    assert (table.tenant.tolist(), table.tenants) == ([0, 1], ("b", "a"))
    assert table.deadline_ns.tolist() == [0, 5 * 10**8]
    write_requests_csv(table, tmp_path / "again.csv", ["chat", "code", "bulk"])
    assert read_requests_csv(tmp_path / "again.csv", ["chat", "code", "bulk"]) == table
    numbers = read(tmp_path, "prompt_tokens,output_tokens,tenant\n1,1,700\n1,1,3\n")
    assert (numbers.tenant.tolist(), numbers.tenants) == ([700, 3], None)


@pytest.mark.parametrize(
    ("head", "cells", "row", "field", "says"),
    [
        ("class", ["chat", "fast"], 3, "class", "'fast' is not a service class"),
        ("class,service_class", ["0,0", "0,0"], None, "class", "service_class is given, too"),
        ("deadline_s,deadline_ns", ["0,0", "0,0"], None, "deadline_s", "deadline_ns is given, too"),
        ("deadline_s", ["1", "-1"], 3, "deadline_s", "-1 is negative"),
        ("tenant", ["a", "7"], 3, "tenant", "'7' is not a name of a tenant"),
        ("tenant", ["a", ""], 3, "tenant", "'' is not a name of a tenant"),
    ],
)
def test_wrong_classes_tenants_and_deadlines_name_their_line(
    tmp_path, head, cells, row, field, says
):
    lines = [f"prompt_tokens,output_tokens,{head}", *(f"1,1,{cell}" for cell in cells)]
    (tmp_path / "r.csv").write_text("\n".join(lines) + "\n")
    with pytest.raises(InputError) as caught:
        read_requests_csv(tmp_path / "r.csv", ["chat", "bulk"])
    assert (caught.value.row, caught.value.field) == (row, field)
    assert says in caught.value.problem
    assert caught.value.remedy


FULL = Requests(
    [3, 4, 5],
    [2, 3, 1],
    arrival_ns=[0, 5, 9],
    predicted_tokens=[1, 1, 2],
    service_class=[0, 1, 1],
    ids=list("abc"),
    prefixes=Prefixes([0, 1, 1, 3], [7, 7, 8], 4),
)


@pytest.mark.parametrize("table", [FULL, Requests([3], [2]), Requests([], [])])
def test_frames_round_trip(table):
    assert requests_from_frame(requests_to_frame(table)) == table


def test_instances_come_from_frames_and_go_to_them():
    instance = Instance(FULL, Worker(2), name="x", first_token="prefill")
    frame = instance.to_pandas()
    assert frame["arrival_ns"].tolist() == [0, 5, 9]
    back = Instance.from_pandas(frame, Worker(2), name="x", first_token="prefill")
    assert back == instance


def test_a_frame_is_a_copy():
    frame = FULL.replace(prefixes=None)
    taken = requests_to_frame(frame)
    taken.loc[0, "prompt_tokens"] = 99
    assert frame.prompt_tokens[0] == 3


@pytest.mark.parametrize("dtype", ["int64", "Int64", "int16", "uint8", "float64", "object"])
def test_all_whole_number_types_are_read(dtype):
    frame = pd.DataFrame({"prompt_tokens": [1, 2], "output_tokens": [3, 4]}, index=[7, 7])
    assert requests_from_frame(frame.astype(dtype)) == Requests([1, 2], [3, 4])


def test_seconds_and_service_classes_by_name():
    frame = pd.DataFrame(
        {
            "prompt_tokens": [1, 2],
            "output_tokens": [3, 4],
            "arrival_s": [0.1, 2],
            "service_class": ["batch", "interactive"],
        }
    )
    expected = Requests(
        [1, 2], [3, 4], arrival_ns=[100_000_000, 2_000_000_000], service_class=[1, 0]
    )
    assert requests_from_frame(frame) == expected
    whole = frame.assign(arrival_s=np.array([1, 2]))
    assert requests_from_frame(whole).arrival_ns.tolist() == [10**9, 2 * 10**9]


def test_nullable_columns_name_the_missing_row():
    frame = pd.DataFrame({"prompt_tokens": [1, 2], "output_tokens": [3, 4]})
    frame["output_tokens"] = pd.array([3, None], dtype="Int64")
    with pytest.raises(InputError, match="row 1, field 'output_tokens': the value is missing"):
        requests_from_frame(frame)


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
