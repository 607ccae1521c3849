import json

import jsonschema
import pytest

from orsched.files import load_cost, load_instance, load_schedule, read_requests_csv
from orsched.files.instance_document import instance_from_document
from orsched.files.parquet import instance_to_parquet, schedule_to_parquet
from orsched.files.request_columns import requests_from_frame
from orsched.files.schedule_document import schedule_from_document
from tests.files import malformed
from tests.refusals import place, refusal

READERS = {
    "instance": load_instance, "schedule": load_schedule, "trace": load_schedule, "cost": load_cost,
    "requests.csv": read_requests_csv, "instance.parquet": load_instance,
    "schedule.parquet": load_schedule,
}  # fmt: skip
ALL = [pytest.param(c, id=f"{c.kind}-{c.name}".replace(" ", "_")) for c in malformed.CASES]
DOCUMENTS = [p for p in ALL if p.values[0].kind in malformed.DOCUMENTS]
JSON = [p for p in DOCUMENTS if p.values[0].schema != malformed.TEXT]
FILES = [p for p in ALL if p.values[0].kind != "frame"]
FRAMES = [p for p in ALL if p.values[0].kind == "frame"]


def valid(kind):
    """Return the valid value of a kind that its cases break."""
    if kind in malformed.DOCUMENTS:
        return malformed.DOCUMENTS[kind]()
    if kind == "requests.csv":
        return malformed.CSV
    import pandas as pd
    import pyarrow.parquet as pq
    from pyarrow import BufferReader

    if kind == "frame":
        columns = {"id": list("abc"), "prompt_tokens": [5, 6, 7], "output_tokens": [1, 9, 3]}
        return pd.DataFrame({**columns, "arrival_s": [0.0, 0.5, 1.25]})
    if kind == "instance.parquet":
        raw = instance_to_parquet(instance_from_document(malformed.instance_document()))
    else:
        raw = schedule_to_parquet(schedule_from_document(malformed.schedule_document()))
    return pq.read_table(BufferReader(raw))


def write(path, value):
    """Write a document, a text, a table or bytes."""
    if isinstance(value, dict):
        value = json.dumps(value)
    if isinstance(value, str):
        value = value.encode()
    if isinstance(value, bytes):
        path.write_bytes(value)
        return
    import pyarrow.parquet as pq

    pq.write_table(value, path)


def path_of(folder, kind):
    return folder / (kind if "." in kind else f"{kind}.json")


def require(error, case):
    assert place(error) == (case.row, case.field), error
    assert case.says in error.problem, error
    assert error.remedy, error
    assert case.remedy in error.remedy, error


@pytest.mark.parametrize("kind", READERS)
def test_what_the_cases_break_is_valid(tmp_path, kind):
    path = path_of(tmp_path, kind)
    write(path, valid(kind))
    assert READERS[kind](path) is not None


def test_the_frame_that_cases_break_is_valid_and_the_table_large_with_unique_names():
    assert len(requests_from_frame(valid("frame"))) == 3
    assert len(malformed.CASES) >= 150
    assert len({(c.kind, c.name) for c in malformed.CASES}) == len(malformed.CASES)


@pytest.mark.parametrize("case", FILES)
def test_a_malformed_file_is_an_input_error_at_its_place(tmp_path, case):
    path = path_of(tmp_path, case.kind)
    write(path, case.break_it(valid(case.kind)))
    before = path.read_bytes()
    error = refusal(READERS[case.kind], path)
    require(error, case)
    assert error.file == str(path)
    assert str(error).startswith(str(path))
    assert [p.name for p in tmp_path.iterdir()] == [path.name]
    assert path.read_bytes() == before


@pytest.mark.parametrize("case", FRAMES)
def test_a_malformed_frame_is_an_input_error_at_its_place(case):
    require(refusal(requests_from_frame, case.break_it(valid("frame"))), case)


@pytest.mark.parametrize("case", JSON)
def test_the_schema_rejects_what_a_schema_can(case, repo_root):
    name = f"orsched/files/schemas/{case.kind}.schema.json"
    schema = json.loads((repo_root / name).read_text())
    broken = case.break_it(valid(case.kind))
    valid_by_schema = jsonschema.Draft202012Validator(schema).is_valid(broken)
    assert valid_by_schema is (case.schema is not True), case.schema
