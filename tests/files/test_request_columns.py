"""Requests as CSV, JSON lines and data frames, and their arrivals in seconds."""

import dataclasses
import json
import math
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orsched import InputError, Instance, Prefixes, Requests, Worker
from orsched.cli.commands import run
from orsched.common.units import MAX_TIME_NS, seconds_column
from orsched.files import load_instance, read_requests_csv, read_requests_jsonl, tables
from orsched.files.cells import seconds
from orsched.files.request_columns import requests_from_frame, requests_to_frame, write_requests_csv
from tests.refusals import place, refusal


def read(tmp_path, text):
    path = tmp_path / "r.csv"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return read_requests_csv(path)


def test_seconds_are_converted_exactly(tmp_path):
    cells = ["0.1", ".5", "3", "1e-3", "4.", "0.30000000000000004", " 7.25 "]
    cells.append("2147483648.000000001")  # in floats it would lose its nanosecond
    rows = "".join(f"1,1,{cell}\n" for cell in cells)
    found = read(tmp_path, "prompt_tokens,output_tokens,arrival_s\n" + rows).arrival_ns.tolist()
    in_ms = [100, 500, 3000, 1, 4000, 300, 7250, 2147483648000]
    assert found == [10**6 * ms for ms in in_ms[:-1]] + [10**6 * in_ms[-1] + 1]


NUMBERS = r"[0-9]{0,9}\.[0-9]{1,14}|[0-9]{1,9}|[0-9]{1,4}[eE]-?[0-5]"
DECIMALS = st.decimals(0, 10**8, allow_nan=False, allow_infinity=False).map(str)


@given(st.lists(st.from_regex(NUMBERS, fullmatch=True) | DECIMALS))
def test_nanoseconds_are_the_rounded_fraction(cells):
    assert seconds(cells).tolist() == [round(Fraction(c) * 10**9) for c in cells]


HEAD = "prompt_tokens,output_tokens"


@pytest.mark.parametrize(("text", "wanted"), [
    ("service_class,output_tokens,prompt_tokens\n0,1,1\n1,1,1\nbatch,1,1\ninteractive,1,1\n",
     Requests([1] * 4, [1] * 4, service_class=[0, 1, 1, 0])),
    (f"{HEAD}\n12.0,+3\n 7 ,4.\n", Requests([12, 7], [3, 4])),
    (f"\ufeff{HEAD}\r\n\r\n1,2\r\n3,4\r\n\r\n", Requests([1, 3], [2, 4])),
    (f"{HEAD}\n", Requests([], [])),
], ids=["classes", "decimals, signs, blanks", "line ends and mark", "no rows"])  # fmt: skip
def test_what_cells_and_lines_may_look_like(tmp_path, text, wanted):
    assert read(tmp_path, text) == wanted


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
    head = "prompt_tokens,output_tokens,class,tenant,group,deadline_s"
    text = f"{head}\n1,1,bulk,b,q,0\n1,1,chat,a,q,0.5\n"
    (tmp_path / "r.csv").write_text(text)
    table = read_requests_csv(tmp_path / "r.csv", ["chat", "code", "bulk"])
    assert table.service_class.tolist() == [2, 0]
    assert (table.tenant.tolist(), table.tenants) == ([0, 1], ("b", "a"))
    assert table.deadline_ns.tolist() == [0, 5 * 10**8]
    assert (table.group.tolist(), table.groups) == ([0, 0], ("q",))
    write_requests_csv(table, tmp_path / "again.csv", ["chat", "code", "bulk"])
    assert read_requests_csv(tmp_path / "again.csv", ["chat", "code", "bulk"]) == table
    numbers = read(tmp_path, "prompt_tokens,output_tokens,tenant\n1,1,700\n1,1,3\n")
    assert (numbers.tenant.tolist(), numbers.tenants) == ([700, 3], None)


@pytest.mark.parametrize(("head", "cells", "row", "field", "says"), [
    ("class", ["chat", "fast"], 3, "class", "'fast' is not a service class"),
    ("class,service_class", ["0,0", "0,0"], None, "class", "service_class is given, too"),
    ("deadline_s,deadline_ns", ["0,0", "0,0"], None, "deadline_s", "deadline_ns is given, too"),
    ("deadline_s", ["1", "-1"], 3, "deadline_s", "-1 is negative"),
    ("tenant", ["a", "7"], 3, "tenant", "'7' is not a name of a tenant"),
    ("tenant", ["a", ""], 3, "tenant", "'' is not a name of a tenant"),
    ("group", ["a", ""], 3, "group", "'' is not a name of a group"),
])  # fmt: skip
def test_wrong_columns_of_csv_name_their_line(tmp_path, head, cells, row, field, says):
    lines = [f"prompt_tokens,output_tokens,{head}", *(f"1,1,{cell}" for cell in cells)]
    (tmp_path / "r.csv").write_text("\n".join(lines) + "\n")
    error = refusal(read_requests_csv, tmp_path / "r.csv", ["chat", "bulk"])
    assert place(error) == (row, field)
    assert says in error.problem
    assert error.remedy


FULL = Requests(
    [3, 4, 5], [2, 3, 1], arrival_ns=[0, 5, 9], predicted_tokens=[1, 1, 2], ids=list("abc"),
    service_class=[0, 1, 1], prefixes=Prefixes([0, 1, 1, 3], [7, 7, 8], 4),
)  # fmt: skip


@pytest.mark.parametrize("table", [FULL, Requests([3], [2]), Requests([], [])])
def test_frames_round_trip(table):
    assert requests_from_frame(requests_to_frame(table)) == table


def test_instances_come_from_frames_and_go_to_them_as_copies():
    instance = Instance(FULL, Worker(2), name="x", first_token="prefill")
    frame = instance.to_pandas()
    assert frame["arrival_ns"].tolist() == [0, 5, 9]
    back = Instance.from_pandas(frame, Worker(2), name="x", first_token="prefill")
    assert back == instance
    frame = FULL.replace(prefixes=None)
    taken = requests_to_frame(frame)
    taken.loc[0, "prompt_tokens"] = 99
    assert frame.prompt_tokens[0] == 3


@pytest.mark.parametrize("dtype", ["int64", "Int64", "int16", "uint8", "float64", "object"])
def test_all_whole_number_types_are_read(dtype):
    frame = pd.DataFrame({"prompt_tokens": [1, 2], "output_tokens": [3, 4]}, index=[7, 7])
    assert requests_from_frame(frame.astype(dtype)) == Requests([1, 2], [3, 4])


def test_seconds_and_service_classes_by_name():
    columns = {"prompt_tokens": [1, 2], "output_tokens": [3, 4], "arrival_s": [0.1, 2]}
    frame = pd.DataFrame({**columns, "service_class": ["batch", "interactive"]})
    times = [100_000_000, 2_000_000_000]
    assert requests_from_frame(frame) == Requests(
        [1, 2], [3, 4], arrival_ns=times, service_class=[1, 0]
    )
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


@pytest.mark.parametrize(("change", "field", "says"), [
    ({"class": "fast"}, "class", "'fast' is not a service class"),
    ({"tenant": 7}, "tenant", "is among names"),
    ({"deadline_s": -1}, "deadline_s", "-1.0 s is negative"),
    ({"deadline_s": "soon"}, "deadline_s", "is not a number of seconds"),
    ({"prompt_tokens": 1.5}, "prompt_tokens", "1.5 is not a whole number"),
    ({"prompt_tokens": None}, "prompt_tokens", "missing"),
    ({"colour": 1}, "colour", "not in the first line"),
])  # fmt: skip
def test_wrong_values_name_their_line(tmp_path, change, field, says):
    lines = [json.dumps(ROWS[0]), "", json.dumps({**ROWS[1], **change})]
    error = refusal(read_requests_jsonl, write(tmp_path / "r.jsonl", lines), CLASSES)
    assert place(error) == (3, field)
    assert says in error.problem
    assert error.remedy


@pytest.mark.parametrize(("lines", "row", "field"), [
    (["[1, 2]"], 1, None), (["{"], 1, None),
    (['{"prompt_tokens": 1}'], None, "output_tokens"),
    (['{"prompt_tokens": 1, "output_tokens": 1, "colour": 1}'], None, "colour"),
    ([json.dumps(ROWS[0]), '{"prompt_tokens": 1}'], 2, "output_tokens"),
])  # fmt: skip
def test_wrong_lines_are_located(tmp_path, lines, row, field):
    error = refusal(read_requests_jsonl, write(tmp_path / "r.jsonl", lines), CLASSES)
    assert place(error) == (row, field)


def test_convert_takes_json_lines_with_classes(tmp_path, capsys):
    source = write(tmp_path / "r.jsonl", [json.dumps(row) for row in ROWS])
    target = tmp_path / "r.json"
    options = ["--clients", "2", "--class", "chat:ttft=1", "--class", "bulk"]
    assert run(["convert", str(source), str(target), *options]) == 0
    instance = load_instance(target)
    assert [kind.name for kind in instance.classes] == ["interactive", "batch", "chat", "bulk"]
    assert instance.requests.service_class.tolist() == [2, 3]


# -- arrivals in seconds: rounded exactly, in place of nanoseconds ------------------------------


def _requests(seconds, **more):
    return Requests([1] * len(seconds), [1] * len(seconds), arrival_s=seconds, **more)


def test_seconds_are_read_as_nanoseconds():
    found = _requests([0, 0.5, 1.25, 3])
    assert found.arrival_ns.tolist() == [0, 500_000_000, 1_250_000_000, 3_000_000_000]
    assert found.arrival_s.tolist() == [0, 0.5, 1.25, 3]
    assert found == Requests([1] * 4, [1] * 4, arrival_ns=found.arrival_ns)
    assert found.service_class.tolist() == [0] * 4  # as with nanoseconds
    assert len(_requests([])) == 0


SECONDS = (
    st.floats(0, MAX_TIME_NS / 1e9, allow_nan=False)
    | st.integers(0, 2**61).map(lambda ns: ns / 1e9).filter(lambda s: s * 1e9 <= MAX_TIME_NS)
    | st.integers(0, 10**12).map(lambda half: (2 * half + 1) / 2e9)  # close to a half
    | st.integers(0, 4_000_000_000)
)


@given(st.lists(SECONDS, max_size=8))
def test_every_number_is_rounded_as_its_fraction_is(seconds):
    wanted = [round(Fraction(s) * 10**9) for s in seconds]
    if max(wanted, default=0) > MAX_TIME_NS:
        return
    assert seconds_column(seconds, "x").tolist() == wanted
    assert seconds_column(np.array(seconds, dtype=float), "x").tolist() == wanted


def test_a_plain_product_would_be_wrong_where_this_is_right():
    close = [(2 * half + 1) / 2e9 for half in range(100_000, 200_000)]
    exact = [round(Fraction(s) * 10**9) for s in close]
    assert seconds_column(close, "x").tolist() == exact
    assert np.rint(np.array(close) * 1e9).astype(int).tolist() != exact


@pytest.mark.parametrize("kind", [np.float32, np.int64, np.uint8, np.float64])
def test_arrays_of_any_numbers_and_series(kind):
    column = np.array([0, 1, 2], dtype=kind)
    wanted = [0, 10**9, 2 * 10**9]
    assert _requests(column).arrival_ns.tolist() == wanted
    assert _requests(pd.Series(column, index=[5, 6, 7])).arrival_ns.tolist() == wanted
    assert _requests(list(column)).arrival_ns.tolist() == wanted


@pytest.mark.parametrize(("values", "row", "text"), [
    ([0, math.nan], 1, "nan is not a finite time"), ([math.inf, 0], 0, "inf is not a finite time"),
    ([0, -1.5], 1, "is negative"), ([0, 5e9], 1, "is too large"),
    ([0, "1.5"], 1, "'1.5' is not a number of seconds"),
    ([0.5, None], 1, "None is not a number of seconds"),
    ([0.5, True], 1, "True is not a number of seconds"),
    (["a", "b"], 0, "'a' is not a number of seconds"),
])  # fmt: skip
def test_what_is_no_time_is_named_with_its_row(values, row, text):
    error = refusal(_requests, values)
    assert (*place(error), text in str(error)) == (row, "arrival_s", True)


def test_shape_and_length_are_checked_and_nanoseconds_are_not_given_too():
    with pytest.raises(InputError, match="3 values where 2 are expected"):
        Requests([1, 1], [1, 1], arrival_s=[0, 1, 2])
    assert "expected one dimension" in str(refusal(Requests, [1, 1], [1, 1], arrival_s=[[0], [1]]))
    error = refusal(_requests, [0, 1], arrival_ns=[0, 5])
    assert (error.field, "arrivals are given twice" in str(error)) == ("arrival_s", True)


def test_replacing_either_and_neither():
    found = _requests([0.25, 1])
    assert found.replace(ids=("a", "b")).arrival_ns.tolist() == [250_000_000, 10**9]
    assert found.replace(arrival_s=[1, 2]).arrival_ns.tolist() == [10**9, 2 * 10**9]
    assert found.replace(arrival_ns=[3, 4]).arrival_ns.tolist() == [3, 4]
    assert dataclasses.replace(found, ids=("a", "b")).arrival_s.tolist() == [0.25, 1]
    assert dataclasses.replace(found, arrival_ns=[7, 8]).arrival_ns.tolist() == [7, 8]
    assert _requests(found.arrival_s).arrival_ns.tolist() == [250_000_000, 10**9]
    assert found.take([1]).arrival_s.tolist() == [1]


def test_requests_of_a_data_frame():
    frame = pd.DataFrame(
        {"id": ["x", "y"], "prompt_tokens": [3, 4], "output_tokens": [5, 6], "arrival_s": [0, 0.1]}
    )
    found = Requests.from_pandas(frame)
    assert found == Requests([3, 4], [5, 6], arrival_s=[0, 0.1], ids=("x", "y"))
    assert Requests.from_pandas(frame.rename(columns={"arrival_s": "arrivals"})) == found
