"""Requests of one's own: names, separators, times and sheets as people have them."""

from __future__ import annotations

import sys
import zipfile
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orsched.errors import InputError, MissingDependencyError
from orsched.files import read_requests_csv, write_requests_csv
from orsched.instances.readers import detect, headings, read
from orsched.requests import Requests

PLAIN = "prompt_tokens,output_tokens,arrival_s\n300,20,0.5\n40,9,2\n"
LENGTHS = ([300, 40], [20, 9])


@pytest.fixture
def write(tmp_path):
    def put(text, name="mine.csv"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return put


def lengths(requests):
    return requests.prompt_tokens.tolist(), requests.output_tokens.tolist()


@pytest.mark.parametrize(
    "text",
    [
        PLAIN,
        PLAIN.replace(",", ";"),
        PLAIN.replace(",", "\t"),
        "\ufeff" + PLAIN.replace("\n", "\r\n"),
        "sep=;\r\n" + PLAIN.replace(",", ";"),
        PLAIN.replace("\n", ";;\n").replace(",", ";"),
        PLAIN.replace("40,9,2", "\n,,\n40,9,2\n\n"),
        "\n\n" + PLAIN.replace("300", '"300"'),
        PLAIN.replace("300,20", " 300 , 20.0"),
        '{"prompt_tokens": 300, "output_tokens": 20, "arrival_s": 0.5}\n\n'
        '{"arrival_s": 2, "text": [{}], "prompt_tokens": "40", "output_tokens": 9.0}\n',
    ],
)
def test_separators_ends_and_blanks_do_not_matter(write, text):
    path = write(text)
    assert detect(path) == "requests"
    requests, report = read(path)
    assert lengths(requests) == LENGTHS
    assert requests.arrival_ns.tolist() == [500_000_000, 2_000_000_000]
    assert (report.rows, report.kept, report.notes) == (2, 2, ())


@pytest.mark.parametrize(
    ("prompt", "output", "arrival"),
    [
        ("prompt_len", "output_len", "arrival"),
        ("input_tokens", "completion_tokens", "timestamp"),
        ("num_prefill_tokens", "num_decode_tokens", "arrival_time"),
        ("ContextTokens", "GeneratedTokens", "arrived_at"),
        ("Prompt Length", "answer_tokens", "Time"),
        ("inputTokens", "outputTokens", "createdAt"),
        ("request tokens", "Response tokens", "TIMESTAMP"),
        ("prompt_tokens", "output_tokens", "start_time"),
    ],
)
def test_names_that_people_use_are_understood(write, prompt, output, arrival):
    requests, report = read(write(f"{arrival},{prompt},{output}\n7,300,20\n8.5,40,9\n"))
    assert lengths(requests) == LENGTHS
    assert requests.arrival_ns.tolist() == [0, 1_500_000_000]
    assert f'"{arrival}" is taken for seconds, shifted' in str(report)


@pytest.mark.parametrize(
    ("name", "first", "second", "words"),
    [
        ("timestamp", "1700000000.25", "1700000001.75", "Unix times in seconds"),
        ("timestamp", "1700000000250", "1700000001750", "Unix times in milliseconds"),
        ("timestamp", "1700000000250000", "1700000001750000", "Unix times in microseconds"),
        ("timestamp", "1700000000250000000", "1700000001750000000", "Unix times in nanoseconds"),
        ("arrival_s", "1700000000.25", "1700000001.75", "Unix times"),
        ("arrival_ms", "1700000000250", "1700000001750", "Unix times"),
        ("arrived_at", "2023-11-14T22:13:20.25Z", "2023-11-14T23:13:21.75+01:00", "dates"),
        ("arrival_s", "2023-11-14 22:13:20.250", "2023-11-14 22:13:21.750", "dates"),
    ],
)
def test_times_since_1970_are_shifted_with_a_note(write, name, first, second, words):
    requests, report = read(write(f"{name},prompt_len,output_len\n{first},300,20\n{second},40,9\n"))
    assert requests.arrival_ns.tolist() == [0, 1_500_000_000]
    note = f'"{name}" holds {words}: shifted so that the first, 2023-11-14 22:13:20 UTC, is 0'
    assert report.notes == (note,)


@pytest.mark.parametrize(("unit", "ns"), [("s", 10**9), ("ms", 10**6), ("us", 1_000), ("ns", 1)])
def test_a_unit_in_the_name_is_taken(write, unit, ns):
    requests, report = read(write(f"arrival_time_{unit},prompt_len,output_len\n5,1,2\n7,3,4\n"))
    assert requests.arrival_ns.tolist() == [5 * ns, 7 * ns]
    assert report.notes == ()


def test_what_is_left_out_and_out_of_order_is_said(write):
    path = write("prompt_len,model,output_len,arrival_s\n1,a,2,5\n3,b,0,4\n5,c,6,1\n")
    requests, report = read(path, drop_empty=True)
    assert requests.prompt_tokens.tolist() == [1, 5]
    assert report.dropped == {"has no output tokens": 1}
    assert "not in order of arrival" in str(report)
    assert "columns not used: model" in str(report)
    with pytest.raises(InputError, match="no request is left: all 1 are empty or failed"):
        read(write("prompt_len,output_len\n1,0\n"), drop_empty=True)
    assert "no arrival times" in str(read(write("prompt_len,output_len\n1,2\n")).report)


def test_prompts_are_not_said_to_be_unused(write):
    """Predictors read them: with --predict the note would be wrong."""
    report = read(write("prompt_len,output_len,Prompt,model\n1,2,hello,a\n")).report
    assert "Prompt: read by --predict alone" in str(report)
    assert "columns not used: model" in str(report)


def test_names_of_orsched_go_before_others(write):
    path = write("timestamp,arrival_s,prompt_tokens,input_tokens,output_tokens\n9,1,2,7,3\n")
    requests, report = read(path)
    assert (requests.prompt_tokens[0], requests.arrival_ns[0]) == (2, 10**9)
    assert "columns not used: timestamp, input_tokens" in str(report)


def test_times_are_not_lost_where_a_known_format_lacks_them(write):
    path = write("timestamp,num_prefill_tokens,num_decode_tokens\n0,1,2\n9,3,4\n")
    assert detect(path) == "requests"
    assert read(path).requests.arrival_ns.tolist() == [0, 9 * 10**9]
    assert detect(write("num_prefill_tokens,num_decode_tokens\n1,2\n")) == "vidur"
    assert detect(write("id,prompt_tokens,answer_tokens,time\n0,1,2,3\n")) == "requests"


def test_classes_tenants_deadlines_and_predictions_are_read(write):
    text = "prompt_len,output_len,class,tenant,deadline_s,predicted_tokens,id\n1,2,bulk,x,0.5,7,a\n"
    requests = read(write(text), "requests", classes=["interactive", "bulk"]).requests
    assert requests.service_class.tolist() == [1]
    assert (requests.tenants, requests.ids) == (("x",), ("a",))
    assert (requests.deadline_ns[0], requests.predicted_tokens[0]) == (500_000_000, 7)


@given(
    st.lists(
        st.tuples(st.integers(1, 2**31 - 1), st.integers(1, 10**6), st.integers(0, 10**16)),
        min_size=1,
        max_size=20,
    )
)
def test_what_orsched_writes_is_read_alike(tmp_path_factory, rows):
    prompts, outputs, arrivals = zip(*rows, strict=True)
    path = tmp_path_factory.mktemp("own") / "r.csv"
    requests = Requests(prompts, outputs, arrivals)
    write_requests_csv(requests, path)
    assert read(path).requests == requests == read_requests_csv(path)


def test_every_name_stands_for_one_column():
    owners = {}
    for target, aliases in headings.ALIASES.items():
        for alias in aliases:
            assert owners.setdefault(alias, target) == target
            assert headings.snake(alias) == alias
            assert headings.match([alias]).found[target].name == alias


def sheet(path, rows):
    openpyxl = pytest.importorskip("openpyxl", reason="spreadsheets need openpyxl")
    book = openpyxl.Workbook()
    for row in rows:
        book.active.append(row)
    book.save(path)
    return path


def test_a_spreadsheet_is_read_with_its_own_row_numbers(tmp_path):
    head = ["Prompt Tokens", "Output tokens", "Time", None]
    at = datetime(2024, 5, 10, 9, 0, 0, 250_000)
    path = sheet(
        tmp_path / "mine.xlsx",
        [head, [300, 20.0, at], [], [40, "9", at.replace(second=1, microsecond=750_000)]],
    )
    requests, report = read(path)
    assert lengths(requests) == LENGTHS
    assert requests.arrival_ns.tolist() == [0, 1_500_000_000]
    assert "dates: shifted" in str(report)
    wrong = sheet(tmp_path / "wrong.xlsx", [head, [], [300, "many", 0]])
    with pytest.raises(InputError, match="row 3, field 'Output tokens': 'many' is not a whole"):
        read(wrong)


def test_a_spreadsheet_has_limits(tmp_path, monkeypatch):
    rows = [["prompt_len", "output_len"]] + [[1, 2]] * 30
    path = sheet(tmp_path / "mine.xlsx", rows)
    monkeypatch.setenv("ORSCHED_MAX_ROWS", "20")
    with pytest.raises(InputError, match="ORSCHED_MAX_ROWS"):
        read(path)
    monkeypatch.setattr("orsched.instances.readers.spreadsheet._MOST_BYTES", 100)
    with pytest.raises(InputError, match="unpacks to"):
        read(path)


def test_a_spreadsheet_without_openpyxl_names_the_extra(tmp_path, monkeypatch):
    path = tmp_path / "mine.xlsx"
    with zipfile.ZipFile(path, "w") as parts:
        parts.writestr("xl/workbook.xml", "<x/>")
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with pytest.raises(MissingDependencyError, match=r"orsched\[excel\].*or save the sheet as CSV"):
        read(path)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("old.xls", "kind .xls are not read (save it as .xlsx"),
        ("mine.ods", "kind .ods"),
        ("no.xlsx", "is no spreadsheet that can be read"),
        ("missing.xlsx", "there is no such file"),
    ],
)
def test_what_is_no_spreadsheet_is_refused(tmp_path, name, says):
    if name != "missing.xlsx":
        (tmp_path / name).write_bytes(b"PK\x03\x04 no more")
    with pytest.raises(InputError) as caught:
        read(tmp_path / name)
    assert says in str(caught.value)
    assert caught.value.file == str(tmp_path / name)


@pytest.mark.parametrize(
    ("heading", "missing"),
    [
        ("arrival_s,prompt_tokens", "output_tokens"),
        ("id,arrival_s,output_tokens", "prompt_tokens"),
    ],
)
def test_a_column_that_is_left_out_is_named_and_no_other_format_guessed(tmp_path, heading, missing):
    path = tmp_path / "r.csv"
    path.write_text(f"{heading}\n" + ",".join("1" for _ in heading.split(",")) + "\n")
    with pytest.raises(InputError, match=missing) as caught:
        detect(path)
    assert caught.value.remedy == f'add "{missing}": tokens, in whole numbers'
    assert "looks like" not in str(caught.value)
