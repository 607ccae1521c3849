"""Damaged samples are read or refused with ``InputError``: never another exception."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orsched.common.errors import InputError
from orsched.instances.readers import FORMATS, read
from tests.instances.test_readers import SAMPLES

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
