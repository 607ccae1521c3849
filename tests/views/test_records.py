"""Records of requests: the times of the schedule under DynoSim's names."""

import csv
import json
from decimal import Decimal

import pytest

from orsched.common.errors import InputError
from orsched.data.schedule import DECODE
from orsched.metrics.summary import summarise
from orsched.metrics.token_times import request_times
from orsched.views.records import COLUMNS, STAYS, TIMES, WRITERS, write_records
from tests.metrics.any_schedule import any_schedule
from tests.views.samples import begun, by_hand, empty, random_instance, served, transferred

pytestmark = pytest.mark.parametrize("suffix", sorted(WRITERS))


@pytest.fixture
def written(tmp_path, suffix):
    """Write records, and return them as dictionaries of nanoseconds, counts and None."""

    def write(instance, schedule):
        path = tmp_path / f"records{suffix}"
        write_records(instance, schedule, path)
        return read(path)

    return write


def number(name, text):
    if name == "request_id":
        return text
    if name == STAYS:
        return [int(worker) for worker in text.split()]
    if not text:
        return None
    return Decimal(text) if name in TIMES else int(text)


def read(path):
    """Rows as dictionaries of nanoseconds, counts and None."""
    if path.suffix == ".parquet":
        from pyarrow import parquet

        rows = parquet.read_table(path).to_pylist()
        for row in rows:
            row.update({k: None if row[k] is None else round(row[k] * 10**6) for k in TIMES})
        return rows
    if path.suffix == ".jsonl":
        rows = [json.loads(x, parse_float=Decimal) for x in path.read_text().splitlines()]
    else:
        with path.open(newline="") as stream:
            rows = [{k: number(k, v) for k, v in r.items()} for r in csv.DictReader(stream)]
    for row in rows:
        row.update({k: None if row[k] is None else int(row[k] * 10**6) for k in TIMES})
    return rows


@pytest.mark.parametrize("first_token", ["decode", "prefill"])
def test_records_hold_the_times_of_the_schedule(written, first_token):
    ids = [f'r,"{k}"\n' for k in range(30)]
    instance = random_instance(latest_ns=60 * 10**9, first_token=first_token, ids=ids)
    schedule = served(instance)
    times = {k: v.tolist() for k, v in request_times(instance, schedule).items()}
    rows = written(instance, schedule)
    assert [r["request_id"] for r in rows] == ids
    table = instance.requests
    for k, row in enumerate(rows):
        assert tuple(row) == COLUMNS
        arrival, output = int(table.arrival_ns[k]), int(table.output_tokens[k])
        first, finish = times["first_token_ns"][k], times["finish_ns"][k]
        assert row == {
            "request_id": ids[k],
            "arrival_time_ms": arrival,
            "first_admit_ms": times["prefill_start_ns"][k],
            "first_token_ms": first,
            "last_token_ms": finish,
            "ttft_ms": first - arrival,
            "e2e_latency_ms": finish - arrival,
            "itl_ms": (finish - first) // (output - 1) if output > 1 else None,
            "input_length": int(table.prompt_tokens[k]),
            "requested_output_length": output,
            "output_length": output,
            "reused_input_tokens": 0,
            "prefill_worker_idx": 0,
            "decode_worker_idx": 0 if instance.rounds_needed[k] else None,
            "client": times["client"][k],
            "restarts": 0,
            "invalid_tokens": 0,
            "stay_worker_idx": [0],
        }


def test_missing_values_are_empty(written):
    rows = written(*by_hand())  # its last request yields one token: no time between tokens
    assert [r["itl_ms"] is None for r in rows] == [False, False, True]
    assert [r["prefill_worker_idx"] for r in rows] == [0, 0, 1]
    assert [r["restarts"] for r in rows] == [0, 1, 0]
    assert [r["stay_worker_idx"] for r in rows] == [[0], [0, 0], [1]]


@pytest.mark.parametrize("seed", range(15))
def test_restarts_and_invalid_tokens_are_counted(written, seed):
    instance, schedule = any_schedule(seed)
    work = schedule.work
    rows, results = written(instance, schedule), summarise(instance, schedule)
    assert sum(r["restarts"] for r in rows) == results["restarts"]
    assert sum(r["invalid_tokens"] for r in rows) == results["invalid_tokens"]
    for k, row in enumerate(rows):
        assert len(row["stay_worker_idx"]) == work.stay[work.request == k].max() + 1
        first = work.first_step[work.request == k]
        assert row["stay_worker_idx"][0] == schedule.steps.worker[first[0]]
        assert row["stay_worker_idx"][-1] == schedule.steps.worker[first[-1]]


def test_nothing_has_a_header_only(written, tmp_path, suffix):
    assert written(*empty()) == []
    if suffix == ".csv":
        assert (tmp_path / "records.csv").read_text() == ",".join(COLUMNS) + "\n"


def test_names_that_no_file_can_hold_are_named(written, tmp_path):
    instance = random_instance(n=2, ids=["fine é", "\ud800"])
    with pytest.raises(InputError, match="Unicode") as caught:
        written(instance, served(instance))
    assert caught.value.row == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("first_token", ["decode", "prefill"])
def test_what_a_stopped_run_did_not_finish_has_no_last_token(written, first_token):
    instance = random_instance(30, seed=3, first_token=first_token)
    schedule = served(instance)
    whole = {row["request_id"]: row for row in written(instance, schedule)}
    count = len(schedule.steps) // 2
    while schedule.steps.phase[count - 1] != DECODE:
        count -= 1
    unfinished = 0
    for row in written(instance, begun(schedule, count, {})):
        complete = whole[row["request_id"]]
        if row["output_length"] == row["requested_output_length"]:
            assert row["last_token_ms"] == complete["last_token_ms"]
            continue
        unfinished += 1
        assert row["output_length"] < row["requested_output_length"]
        assert row["last_token_ms"] is row["e2e_latency_ms"] is row["itl_ms"] is None
        assert row["first_token_ms"] in (None, complete["first_token_ms"])
    assert unfinished > 0


@pytest.mark.parametrize("seed", [1, 2, 9])
def test_records_tell_transfers_from_restarts(written, seed):
    instance, schedule = transferred(seed)
    rows = written(instance, schedule)
    restarts = sum(row["restarts"] for row in rows)
    assert restarts == summarise(instance, schedule)["restarts"]
    moved = [row["prefill_worker_idx"] != row["decode_worker_idx"] for row in rows]
    assert any(moved[request] for request in schedule.transfers.request)
