"""What becomes a data frame, and what requests are loaded from."""

import pandas as pd
import pytest

import orsched
from orsched.common.columns import as_frame
from tests.refusals import refused

ROWS = [{"input_tokens": 12, "completion_tokens": 3, "arrival": 0.5},
        {"input_tokens": 7, "completion_tokens": 9, "arrival": 1.5}]  # fmt: skip
COLUMNS = {name: [row[name] for row in ROWS] for name in ROWS[0]}


class DataSet:
    """As one of Hugging Face: columns, and a frame on demand."""

    def to_pandas(self):
        return pd.DataFrame(COLUMNS)


@pytest.mark.parametrize("source", [
    pd.DataFrame(COLUMNS), COLUMNS, ROWS, tuple(ROWS), iter(ROWS), DataSet(),
], ids=["frame", "dict", "records", "tuple", "iterator", "data set"])  # fmt: skip
def test_every_source_of_rows_makes_the_same_instance_with_the_same_names(source, tmp_path):
    path = tmp_path / "rows.csv"
    pd.DataFrame(COLUMNS).to_csv(path, index=False)
    found = orsched.load(source, clients=2)
    assert found.requests == orsched.load(path, clients=2).requests
    assert found.requests.prompt_tokens.tolist() == [12, 7]


@pytest.mark.parametrize(("words", "source"), [
    ("int holds no requests", 7),
    ("int is not a record", [{"a": 1}, 7]),
    ("int is not a column", {"prompt_tokens": 5}),
    ("str is not a column", {"prompt_tokens": "12"}),
    ("1 values where prompt_tokens has 2", {"prompt_tokens": [1, 2], "output_tokens": [1]}),
    ("NoneType holds no requests", None),
])  # fmt: skip
def test_what_is_refused(words, source):
    refused(words, as_frame, source, kind=orsched.InputError)
    refused(words, orsched.load, source, clients=2, kind=orsched.InputError)
