"""Wrong and damaged trace files are refused with file, row, field and remedy."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orsched.common.errors import InputError
from orsched.instances.readers import FORMATS, read
from tests.instances.malformed_readers import BROKEN, CASES
from tests.instances.test_readers import SAMPLES

FOLDER = Path(__file__).parent / "broken"


def _check(error, file, row, field, problem, remedy):
    if field != "format":
        assert error.file == str(file)
    assert (error.row, error.field) == (row, field)
    assert problem in error.problem
    assert remedy in (error.remedy or "")
    assert str(error).endswith(")") or error.remedy is None


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_malformed_text(case, tmp_path):
    path = tmp_path / "trace"
    path.write_bytes(case.text if isinstance(case.text, bytes) else case.text.encode())
    with pytest.raises(InputError) as caught:
        read(path, case.format)
    _check(caught.value, path, case.row, case.field, case.problem, case.remedy)


@pytest.mark.parametrize("name", BROKEN)
def test_broken_file(name):
    format, *expected = BROKEN[name]
    with pytest.raises(InputError) as caught:
        read(FOLDER / name, format)
    _check(caught.value, FOLDER / name, *expected)


def test_every_broken_file_is_in_the_table_and_every_case_has_its_own_name():
    assert {path.name for path in FOLDER.iterdir()} == set(BROKEN)
    assert len({case.name for case in CASES}) == len(CASES) >= 25


@pytest.mark.parametrize("name", ["no such file", "."])
def test_what_is_no_file_is_refused(name, tmp_path):
    with pytest.raises(InputError) as caught:
        read(tmp_path / name)
    assert caught.value.file == str(tmp_path / name)


PIECES = [b"", b",", b"\n", b"\r", b'"', b"{", b"]", b"-", b"1e9", b"NaN", b"null", b"\xff", b"\0"]


@pytest.mark.parametrize("name", FORMATS)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_damage(name, tmp_path, data):
    raw = SAMPLES[name].encode()
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(raw)))
        width = data.draw(st.sampled_from([0, 1, 2, 10, 1000]))
        raw = raw[:start] + data.draw(st.sampled_from(PIECES)) + raw[start + width :]
    path = tmp_path / "trace"
    path.write_bytes(raw)
    for format in (None, name):
        try:
            requests, report = read(path, format, drop_empty=True)
        except InputError as error:
            named = error.file
        else:
            named = report.file
            assert len(requests) == report.kept == report.rows - sum(report.dropped.values())
        assert named == str(path)
