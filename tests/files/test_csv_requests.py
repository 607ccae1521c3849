from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orsched.common.errors import InputError
from orsched.data.requests import Requests
from orsched.files import read_requests_csv, tables, write_requests_csv
from orsched.files.cells import seconds


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
