"""Small files that stand for much: counted before they are unpacked, with a way to allow more."""

import subprocess
import sys
from io import BytesIO

import numpy as np
import pytest

from orsched import InputError, solve
from orsched.common.scalars import ROWS
from orsched.files import load_instance, load_schedule, save_instance, save_schedule
from orsched.instances.catalog import load_named
from tests.refusals import refusal

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")


@pytest.fixture
def header(tmp_path):
    save_instance(load_named("two-by-two"), tmp_path / "small.parquet")
    return pq.read_schema(tmp_path / "small.parquet").metadata


def _write(path, columns, header, **options):
    pq.write_table(pa.table(columns).replace_schema_metadata(header), path, **options)


def _tokens(rows):
    ones = pa.array(np.ones(rows, np.int64))
    return {"prompt_tokens": ones, "output_tokens": ones}


def test_rows_are_counted_before_they_are_read(tmp_path, header, monkeypatch):
    path = tmp_path / "long.parquet"
    _write(path, _tokens(300_000), header)
    assert path.stat().st_size < 50_000
    monkeypatch.setenv("ORSCHED_MAX_ROWS", "299999")
    before = pa.total_allocated_bytes()
    with pytest.raises(InputError) as caught:
        load_instance(path)
    assert pa.total_allocated_bytes() - before < 1_000_000
    assert "300,000 rows are more than the 299,999" in str(caught.value)
    assert "ORSCHED_MAX_ROWS=300000" in str(caught.value)
    assert caught.value.file == str(path)
    monkeypatch.setenv("ORSCHED_MAX_ROWS", "300000")
    assert len(load_instance(path)) == 300_000


def test_the_default_is_above_what_is_measured_and_below_what_fills_a_machine(tmp_path, header):
    assert ROWS.default == 10_000_000
    path = tmp_path / "long.parquet"
    ones = pa.array(np.ones(10**6, np.int8)).dictionary_encode()
    many = pa.chunked_array([ones] * 11)
    _write(path, {"prompt_tokens": many, "output_tokens": many}, header)
    assert path.stat().st_size < 100_000
    assert "11,000,000 rows are more than the 10,000,000" in str(refusal(load_instance, path))


@pytest.mark.parametrize("rows", [1, 2])
def test_values_of_lists_count_as_rows(tmp_path, header, monkeypatch, rows):
    monkeypatch.setenv("ORSCHED_MAX_ROWS", "100000")
    path = tmp_path / "lists.parquet"
    lists = pa.LargeListArray.from_arrays(
        pa.array([0] + [200_000] * rows, pa.int64()), pa.array(np.zeros(200_000, np.int64))
    )
    _write(path, {**_tokens(rows), "prefix_ids": lists}, header)
    assert "rows are more than the 100,000" in str(refusal(load_instance, path))


def test_long_texts_count_by_their_bytes(tmp_path, header, monkeypatch):
    monkeypatch.setenv("ORSCHED_MAX_ROWS", "1000")
    path = tmp_path / "texts.parquet"
    _write(path, {**_tokens(2), "id": pa.array(["a", "b" * 10**6])}, header, compression="zstd")
    assert path.stat().st_size < 20_000
    assert "rows are more than the 1,000" in str(refusal(load_instance, path))


def test_a_text_that_all_rows_share_is_held_once(tmp_path, header):
    path = tmp_path / "shared.parquet"
    names = pa.DictionaryArray.from_arrays(np.zeros(20_000, np.int32), ["x" * 100_000])
    _write(path, {**_tokens(20_000), "id": names}, header)
    assert path.stat().st_size < 200_000
    code = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_AS, (3 << 29,) * 2)\n"
        "from orsched.files import load_instance\n"
        "try: load_instance(sys.argv[1])\n"
        "except ValueError as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True
    )
    assert "appears twice" in done.stdout, done.stdout + done.stderr


def test_tables_of_a_schedule_are_told_apart_by_dictionaries_in_any_form(tmp_path):
    instance = load_named("two-by-two")
    schedule = solve(instance, "fcfs").schedule
    path = tmp_path / "schedule.parquet"
    save_schedule(schedule, path)
    table = pq.read_table(path)
    place = table.column_names.index("table")
    text = table["table"].cast(pa.string())
    forms = [text.cast(pa.large_string()), text.dictionary_encode()]
    forms.append(pa.chunked_array([text.combine_chunks().slice(i, 1) for i in range(len(text))]))
    for form in forms:
        sink = BytesIO()
        pq.write_table(table.set_column(place, "table", form), sink, row_group_size=2)
        path.write_bytes(sink.getvalue())
        assert load_schedule(path) == schedule
