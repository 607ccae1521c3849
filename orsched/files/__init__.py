"""Files: the native formats, CSV and data frames; pyarrow and pandas are loaded when used."""

from orsched.files.native import (
    load_cost,
    load_fitted_cost,
    load_instance,
    load_schedule,
    save_cost,
    save_instance,
    save_schedule,
)
from orsched.files.request_columns import read_requests_csv, read_requests_jsonl, write_requests_csv

__all__ = [
    "load_cost",
    "load_fitted_cost",
    "load_instance",
    "load_schedule",
    "read_requests_csv",
    "read_requests_jsonl",
    "save_cost",
    "save_instance",
    "save_schedule",
    "write_requests_csv",
]
