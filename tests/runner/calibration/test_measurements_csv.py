"""Measurements as CSV: what is written is read back, what is wrong is named with its line."""

from __future__ import annotations

import pytest

from orsched.calibration.measurements import Measurements
from orsched.calibration.step_files import read_measurements, write_measurements
from orsched.common.errors import InputError

HEAD = "phase,count,duration_ns,tokens,longest,context_sum,context_max\n"


def test_what_is_written_is_read_back(tmp_path):
    found = Measurements(
        phase=["prefill", "decode", "mixed"],
        count=[2, 3, 4],
        duration_ns=[7, 8, 9],
        tokens=[30, 0, 5],
        longest=[20, 0, 5],
        context_sum=[0, 30, 44],
        context_max=[0, 12, 11],
        cached=[0, 0, 70],
    )
    path = tmp_path / "m.csv"
    write_measurements(found, path)
    assert path.read_text().splitlines()[0] + "\n" == HEAD.replace("\n", ",run,cached\n")
    assert read_measurements(path).to_dict() == found.to_dict()


def test_columns_come_in_any_order_and_may_be_left_out(tmp_path):
    path = tmp_path / "m.csv"
    path.write_text("duration_ns,phase,count\n\n5,decode,2\n")
    assert read_measurements(path).to_dict()["duration_ns"] == [5]


@pytest.mark.parametrize(
    ("text", "row", "field"),
    [
        ("", None, None),
        ("phase,count\n", 1, "duration_ns"),
        ("phase,count,duration_ns,colour\n", 1, "colour"),
        ("phase,count,duration_ns,count\n", 1, "count"),
        (HEAD + "decode,2\n", 2, None),
        (HEAD + "decode,2,x,0,0,0,0\n", 2, "duration_ns"),
        (HEAD + "decode,2,-5,0,0,0,0\n", 2, "duration_ns"),
        (HEAD + "\ndecode,2,5,0,0,0,0\ndecode,0,5,0,0,0,0\n", 4, "count"),
        (HEAD + "rest,2,5,0,0,0,0\n", 2, "phase"),
        (HEAD + "prefill,2,5,0,0,0,0\n", 2, "longest"),
        (HEAD + 'decode,"2,5,0,0,0,0\n', 2, None),
    ],
)
def test_what_is_wrong_is_named_with_its_line(tmp_path, text, row, field):
    path = tmp_path / "m.csv"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        read_measurements(path)
    assert (caught.value.file, caught.value.row, caught.value.field) == (str(path), row, field)
