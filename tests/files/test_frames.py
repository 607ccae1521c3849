from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from orsched.common.errors import InputError
from orsched.data.instance import Instance
from orsched.data.requests import Prefixes, Requests
from orsched.data.workers import Worker
from orsched.files.request_columns import requests_from_frame, requests_to_frame

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
