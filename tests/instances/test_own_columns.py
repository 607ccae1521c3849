"""Requests of one's own: names, separators, times and sheets as people have them."""

import json
import sys
import zipfile
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

import orsched
from orsched.common.errors import InputError, MissingDependencyError
from orsched.data.requests import Requests
from orsched.files import read_requests_csv, write_requests_csv
from orsched.instances.readers import detect, headings, read
from tests.refusals import place, refusal

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


@pytest.mark.parametrize("text", [
    PLAIN, PLAIN.replace(",", ";"), PLAIN.replace(",", "\t"),
    "\ufeff" + PLAIN.replace("\n", "\r\n"), "sep=;\r\n" + PLAIN.replace(",", ";"),
    PLAIN.replace("\n", ";;\n").replace(",", ";"), PLAIN.replace("40,9,2", "\n,,\n40,9,2\n\n"),
    "\n\n" + PLAIN.replace("300", '"300"'), PLAIN.replace("300,20", " 300 , 20.0"),
    '{"prompt_tokens": 300, "output_tokens": 20, "arrival_s": 0.5}\n\n'
    '{"arrival_s": 2, "text": [{}], "prompt_tokens": "40", "output_tokens": 9.0}\n',
])  # fmt: skip
def test_separators_ends_and_blanks_do_not_matter(write, text):
    path = write(text)
    assert detect(path) == "requests"
    requests, report = read(path)
    assert lengths(requests) == LENGTHS
    assert requests.arrival_ns.tolist() == [500_000_000, 2_000_000_000]
    assert (report.rows, report.kept, report.notes) == (2, 2, ())


@pytest.mark.parametrize(("prompt", "output", "arrival"), [
    ("prompt_len", "output_len", "arrival"),
    ("input_tokens", "completion_tokens", "timestamp"),
    ("num_prefill_tokens", "num_decode_tokens", "arrival_time"),
    ("ContextTokens", "GeneratedTokens", "arrived_at"),
    ("Prompt Length", "answer_tokens", "Time"), ("inputTokens", "outputTokens", "createdAt"),
    ("request tokens", "Response tokens", "TIMESTAMP"),
    ("prompt_tokens", "output_tokens", "start_time"),
])  # fmt: skip
def test_names_that_people_use_are_understood(write, prompt, output, arrival):
    requests, report = read(write(f"{arrival},{prompt},{output}\n7,300,20\n8.5,40,9\n"))
    assert lengths(requests) == LENGTHS
    assert requests.arrival_ns.tolist() == [0, 1_500_000_000]
    assert f'"{arrival}" is taken for seconds, shifted' in str(report)


@pytest.mark.parametrize(("name", "first", "second", "words"), [
    ("timestamp", "1700000000.25", "1700000001.75", "Unix times in seconds"),
    ("timestamp", "1700000000250", "1700000001750", "Unix times in milliseconds"),
    ("timestamp", "1700000000250000", "1700000001750000", "Unix times in microseconds"),
    ("timestamp", "1700000000250000000", "1700000001750000000", "Unix times in nanoseconds"),
    ("arrival_s", "1700000000.25", "1700000001.75", "Unix times"),
    ("arrival_ms", "1700000000250", "1700000001750", "Unix times"),
    ("arrived_at", "2023-11-14T22:13:20.25Z", "2023-11-14T23:13:21.75+01:00", "dates"),
    ("arrival_s", "2023-11-14 22:13:20.250", "2023-11-14 22:13:21.750", "dates"),
])  # fmt: skip
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


@pytest.mark.parametrize(("name", "like", "read_as"), [
    *((name, "a time of arrival", "timestamp")
      for name in ("ts", "time_local", "start", "requestTs", "sent", "t", "begin")),
    *((f"queued_{unit}", "a time of arrival", f"arrival_{unit}") for unit in ("s", "ms", "ns")),
    *((name, "a priority", "priority")
      for name in ("prio", "priority_level", "urgency", "importance")),
    *((name, "a predicted length", "predicted_tokens")
      for name in ("pred_len", "predicted", "expected output", "estimatedTokens")),
])  # fmt: skip
@pytest.mark.parametrize("kind", ["csv", "jsonl", "xlsx", "frame", "pairs"])
def test_a_column_that_looks_like_one_that_is_read_stops_with_the_renaming(
    write, tmp_path, name, like, read_as, kind
):
    names = [name, "prompt_tokens", "answer_tokens" if kind == "pairs" else "completion_tokens"]
    if kind == "pairs":  # a format without times would lose them
        names.append("id")
    if kind == "frame":
        frame = pytest.importorskip("pandas").DataFrame({each: [1] for each in names})
        error = refusal(orsched.load, frame, clients=1)
        assert (*place(error), f"looks like {like}" in str(error)) == (None, name, True)
        return
    if kind == "jsonl":
        path = write(json.dumps(dict.fromkeys(names, 1)) + "\n", "mine.jsonl")
    elif kind == "xlsx":
        path = sheet(tmp_path / "mine.xlsx", [names, [1] * len(names)])
    else:
        path = write(",".join(names) + "\n" + ",".join("1" * len(names)) + "\n")
    if kind == "pairs" and like != "a time of arrival":
        return
    error = refusal(read, path)
    assert f"looks like {like}" in str(error)
    assert place(error) == (1, name)
    assert error.remedy == f'rename the column "{name}" to "{read_as}", or remove it'


@pytest.mark.parametrize("name", ["inter_arrival_s", "interarrival", "IAT", "iat_ms"])
def test_times_between_arrivals_come_with_what_makes_arrivals_of_them(write, name):
    error = refusal(read, write(f"{name},prompt_len,output_len\n1,1,2\n"))
    assert "looks like times between arrivals" in str(error)
    assert place(error) == (1, name)
    assert "running sum" in error.remedy
    beside = read(write(f"arrival_s,{name},prompt_len,output_len\n1,1,1,2\n"))
    assert f"columns not used: {name}" in str(beside.report)


@pytest.mark.parametrize(
    "name", ["end_time", "first_token_s", "generation_time", "latency_ms", "ttft", "max_tokens",
             "total_tokens", "time_per_output_token", "e2e_time", "cached_tokens", "finished_at"],
)  # fmt: skip
def test_times_and_lengths_that_are_no_arrivals_are_named_in_the_report(write, name):
    report = read(write(f"{name},prompt_len,output_len\n1,2,3\n"), "requests").report
    assert f"columns not used: {name}" in str(report)


@pytest.mark.parametrize("head", ["TIMESTAMP,ContextTokens,GeneratedTokens", "time,in_len,out_len"])
def test_priorities_are_classes_in_the_order_of_vllm(write, head):
    at = "2024-01-01 00:00:0"
    rows = f"{at}0,5,6,10\n{at}1,5,6,-2\n{at}2,5,6,10\n{at}3,5,6,3\n"
    requests, report = read(write(f"{head},priority\n{rows}"))
    assert report.priorities == (-2, 3, 10)
    assert requests.service_class.tolist() == [2, 0, 2, 1]
    path = write(f"{head},priority\n{rows}")
    instance = orsched.load(path, clients=1, classes=["priority-3:ttft=1"])
    assert [kind.name for kind in instance.classes] == ["priority--2", "priority-3", "priority-10"]
    assert instance.classes[1].ttft_ns == 10**9
    assert not instance.bulk.any()


def test_a_frame_is_read_as_its_file(write):
    """Names, dates, priorities, further columns and prefixes; the index plays no part."""
    pandas = pytest.importorskip("pandas")
    path = write(
        "Created At,prompt_len,gen_len,priority,model\n"
        "2024-05-10 09:00:00.25,300,20,1,a\n2024-05-10 09:00:01.75,40,9,0,b\n"
    )
    frame = pandas.read_csv(path, parse_dates=["Created At"]).set_index("model", drop=False)
    read_in, of_file = orsched.load(frame, clients=2), orsched.load(path, clients=2)
    assert read_in.requests == of_file.requests
    assert read_in.classes == of_file.classes
    assert orsched.load(frame.astype(object), clients=2).requests == of_file.requests
    with pytest.raises(InputError, match=r"DataFrame is not an Instance.*orsched\.load\("):
        orsched.solve(frame, "fcfs")
    requests = Requests([4, 4], [1, 1], prefixes=orsched.Prefixes([0, 1, 2], [7, 7], 4))
    written = orsched.Instance(requests, orsched.Worker(1)).to_pandas()
    assert orsched.load(written, clients=1).requests.prefixes == requests.prefixes


@pytest.mark.parametrize(("column", "value", "says"), [
    ("prompt_len", None, "the value is missing"),
    ("prompt_len", 1.5, "'1.5' is not a whole number"),
    ("gen_len", True, "true is not a number or a text"),
    ("time", float("inf"), "not a finite time"),
])  # fmt: skip
def test_a_wrong_cell_of_a_frame_is_named_by_its_row_from_0(column, value, says):
    pandas = pytest.importorskip("pandas")
    columns = {"time": [0, 1], "prompt_len": [5, 6], "gen_len": [1, 2]}
    columns[column][1] = value
    frame = pandas.DataFrame(columns, dtype=object)
    error = refusal(orsched.load, frame, clients=1)
    assert (error.file, *place(error)) == ("the data frame", 1, column)
    assert says in str(error)


@pytest.mark.parametrize(("text", "says"), [
    ("prompt_len,output_len,priority\n1,2,high\n", "'high' is not a whole number"),
    ("prompt_len,output_len,priority\n1,2,1.5\n", "'1.5' is not a whole number"),
    ("prompt_len,output_len,priority\n1,2," + "9" * 30 + "\n", "does not fit into 64 bits"),
    ("prompt_len,output_len,priority,class\n1,2,1,batch\n", "both"),
    ("prompt_len,output_len,priority\n" + "".join(f"1,2,{k}\n" for k in range(1001)),
     "1,001 different priorities"),
])  # fmt: skip
def test_what_is_no_priority_is_refused(write, text, says):
    error = refusal(read, write(text))
    assert (says in str(error), bool(error.remedy)) == (True, True)


def test_an_urgent_request_of_a_file_goes_first_under_vllm_s_priority(write):
    """A public case (vllm #24365): it waits for a seat, and no longer."""
    rows = "".join(f"0,100,{40 + k},10\n" for k in range(6)) + "0.001,100,9,0\n"
    path = write("arrival_s,prompt_tokens,output_tokens,priority\n" + rows)
    instance = orsched.load(path, clients=2)

    def first_token_ns(**parameters):
        schedule = orsched.simulate(instance, "vllm", parameters=parameters).schedule
        return schedule.request_times(instance)["first_token_ns"][-1]

    assert first_token_ns(policy="priority") < first_token_ns()


@pytest.mark.parametrize(("cell", "column", "remedy"), [
    ("10,5", "prompt_tokens", "give a whole number, 0 or more"),
    ("1,234,567", "prompt_tokens", "write 1234567 without commas"),
    ("1,234,567", "arrival_s", "write 1234567 without commas"),
    ("12,34,5", "arrival_s", "write a number without commas"),
    ("1,250", "arrival_s", "write 1.250 with a decimal point, or 1250 without commas if the "
                           "comma separates thousands"),
])  # fmt: skip
def test_the_remedy_for_a_comma_keeps_the_number(write, cell, column, remedy):
    values = {"prompt_tokens": "1", "output_tokens": "2", "arrival_s": "0", column: cell}
    error = refusal(read, write(";".join(values) + "\n" + ";".join(values.values()) + "\n"))
    assert (error.field, error.remedy) == (column, remedy)
    assert "it has a comma" in str(error)


@pytest.mark.parametrize(("text", "notes"), [
    ("arrival_s,ts,start,prompt_len,output_len\n0,1,2,3,4\n", ["columns not used: ts, start"]),
    # Predictors read prompts: with --predict the note would be wrong.
    ("prompt_len,output_len,Prompt,model\n1,2,hello,a\n",
     ["Prompt: read by --predict alone", "columns not used: model"]),
    ("timestamp,arrival_s,prompt_tokens,input_tokens,output_tokens\n9,1,2,7,2\n",
     ["columns not used: timestamp, input_tokens"]),
])  # fmt: skip
def test_columns_beside_those_that_are_read_are_no_question(write, text, notes):
    """Of two names for one thing that of orsched goes before the other."""
    requests, report = read(write(text))
    assert all(note in str(report) for note in notes)
    if "timestamp" in text:
        assert (requests.prompt_tokens[0], requests.arrival_ns[0]) == (2, 10**9)


def test_times_are_not_lost_where_a_known_format_lacks_them(write):
    path = write("timestamp,num_prefill_tokens,num_decode_tokens\n0,1,2\n9,3,4\n")
    assert detect(path) == "requests"
    assert read(path).requests.arrival_ns.tolist() == [0, 9 * 10**9]
    assert detect(write("num_prefill_tokens,num_decode_tokens\n1,2\n")) == "vidur"
    assert detect(write("id,prompt_tokens,answer_tokens,time\n0,1,2,3\n")) == "requests"


def test_classes_tenants_deadlines_and_predictions_are_read(write):
    head = "prompt_len,output_len,class,tenant,prompt_id,deadline_s,predicted_tokens,id"
    text = f"{head}\n1,2,bulk,x,9,0.5,7,a\n"
    requests = read(write(text), "requests", classes=["interactive", "bulk"]).requests
    assert requests.service_class.tolist() == [1]
    assert (requests.tenants, requests.ids) == (("x",), ("a",))
    assert requests.group.tolist() == [9]
    assert (requests.deadline_ns[0], requests.predicted_tokens[0]) == (500_000_000, 7)


OWN_ROWS = st.tuples(st.integers(1, 2**31 - 1), st.integers(1, 10**6), st.integers(0, 10**16))


@given(st.lists(OWN_ROWS, min_size=1, max_size=20))
def test_what_orsched_writes_is_read_alike(tmp_path_factory, rows):
    prompts, outputs, arrivals = zip(*rows, strict=True)
    path = tmp_path_factory.mktemp("own") / "r.csv"
    requests = Requests(prompts, outputs, arrival_ns=arrivals)
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


def inflated(path, rows=b"", texts=b""):
    """Put rows, and a part with texts that cells share, into the file of a sheet."""
    sheet(path, [["prompt_tokens", "output_tokens"], [3, 2]])
    with zipfile.ZipFile(path) as book:
        parts = {name: book.read(name) for name in book.namelist()}
    name = "xl/worksheets/sheet1.xml"
    parts[name] = parts[name].replace(b"</sheetData>", rows + b"</sheetData>")
    parts["xl/sharedStrings.xml"] = b"<sst>" + texts + b"</sst>"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as book:
        for name, content in parts.items():
            book.writestr(name, content)
    return path


@pytest.mark.parametrize(("rows", "texts", "words"), [
    (b'<row r="99999999"><c r="A99999999"><v>1</v></c></row>', b"", "a row beyond the last"),
    (b'<row r="3"><c r="XFD3"><v>1</v></c></row>', b"", "16,388 cells are more than the 9,999"),
    (b"", b"<si><t>x</t></si>" * 10_000, "10,000 texts that cells share are more than"),
    (b"", b"<x:si/>" * 10_000, "10,000 texts that cells share are more than"),
], ids=["row number", "last column", "shared texts", "texts with a prefix"])  # fmt: skip
def test_a_small_spreadsheet_that_stands_for_much(tmp_path, monkeypatch, rows, texts, words):
    path = inflated(tmp_path / "small.xlsx", rows, texts)
    assert path.stat().st_size < 10_000
    monkeypatch.setenv("ORSCHED_MAX_ROWS", "9999")
    monkeypatch.setattr("orsched.files.sheets._LAST_ROW", 5_000)
    error = refusal(orsched.load, path, clients=2)
    assert (error.file, words in str(error)) == (str(path), True)


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
    assert "row 3, field 'Output tokens': 'many' is not a whole" in str(refusal(read, wrong))


def test_a_spreadsheet_has_limits(tmp_path, monkeypatch):
    rows = [["prompt_len", "output_len"]] + [[1, 2]] * 30
    path = sheet(tmp_path / "mine.xlsx", rows)
    monkeypatch.setenv("ORSCHED_MAX_ROWS", "20")
    assert "ORSCHED_MAX_ROWS" in str(refusal(read, path))
    monkeypatch.setattr("orsched.files.sheets._MOST_BYTES", 100)
    assert "unpacks to" in str(refusal(read, path))


def test_a_spreadsheet_without_openpyxl_names_the_extra(tmp_path, monkeypatch):
    path = tmp_path / "mine.xlsx"
    with zipfile.ZipFile(path, "w") as parts:
        parts.writestr("xl/workbook.xml", "<x/>")
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with pytest.raises(MissingDependencyError, match=r"orsched\[excel\].*or save the sheet as CSV"):
        read(path)


@pytest.mark.parametrize(("name", "says"), [
    ("old.xls", "kind .xls are not read (save it as .xlsx"),
    ("mine.ods", "kind .ods"),
    ("no.xlsx", "is not a spreadsheet that can be read"),
    ("missing.xlsx", "the file does not exist"),
])  # fmt: skip
def test_what_is_no_spreadsheet_is_refused(tmp_path, name, says):
    if name != "missing.xlsx":
        (tmp_path / name).write_bytes(b"PK\x03\x04 no more")
    error = refusal(read, tmp_path / name)
    assert (error.file, says in str(error)) == (str(tmp_path / name), True)


@pytest.mark.parametrize(("heading", "missing"), [
    ("arrival_s,prompt_tokens", "output_tokens"), ("id,arrival_s,output_tokens", "prompt_tokens"),
])  # fmt: skip
def test_a_column_that_is_left_out_is_named_and_no_other_format_guessed(tmp_path, heading, missing):
    path = tmp_path / "r.csv"
    path.write_text(f"{heading}\n" + ",".join("1" for _ in heading.split(",")) + "\n")
    error = refusal(detect, path)
    assert missing in str(error)
    assert error.remedy == f'add "{missing}": tokens, in whole numbers'
    assert "looks like" not in str(error)


@pytest.mark.parametrize(("columns", "said"), [
    ({}, None),
    ({"prompt_tokens": [5, -1, 7]}, "row 1, field 'prompt_tokens': "),
    ({"prompt_tokens": [5, 6, None]}, "row 2, field 'prompt_tokens': "),
    ({"completion_tokens": ["1", "many", "3"]}, "row 1, field 'completion_tokens': "),
    ({"prio": [1, 2, 3]}, "field 'prio': "),
])  # fmt: skip
def test_a_parquet_table_holds_requests_as_a_csv_file_does(tmp_path, columns, said):
    pandas, _ = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    times = pandas.to_datetime(
        ["2026-01-01T00:00:00", "2026-01-01T00:00:01", "2026-01-01T00:01"], format="ISO8601"
    )
    own = {"id": ["a", "b", "c"], "prompt_tokens": [5, 6, 7], "completion_tokens": [1, 2, 3]}
    frame = pandas.DataFrame({**own, "created_at": times, **columns})
    table, text = tmp_path / "mine.parquet", tmp_path / "mine.csv"
    frame.to_parquet(table)
    frame.to_csv(text, index=False)
    if said is not None:
        assert str(refusal(orsched.load, table, clients=2)).startswith(f"{table}, {said}")
        return
    instance = orsched.load(table, clients=2)
    assert instance.requests == orsched.load(text, clients=2).requests
    assert instance.requests.arrival_ns.tolist() == [0, 10**9, 60 * 10**9]
    orsched.save_instance(instance, tmp_path / "native.parquet")
    assert orsched.load(tmp_path / "native.parquet") == instance
    (tmp_path / "cut.parquet").write_bytes(table.read_bytes()[:40])
    assert "not a Parquet file" in str(refusal(orsched.load, tmp_path / "cut.parquet", clients=2))
