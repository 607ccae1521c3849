"""Chrome traces: they load, and hold every time exactly."""

import json
from decimal import Decimal

import numpy as np
import pytest

from orsched.metrics.timeline import Timeline
from orsched.metrics.token_times import request_times
from orsched.views.perfetto import counters, write_chrome_trace
from tests.metrics.any_schedule import any_schedule
from tests.seeds import seeds
from tests.views.samples import by_hand, empty, every_kind, random_instance, rows_of, served


def events(tmp_path, instance, schedule):
    path = tmp_path / "trace.json"
    write_chrome_trace(instance, schedule, path)
    return json.loads(path.read_text(), parse_float=Decimal)["traceEvents"]


def ns(value):
    """Nanoseconds of exact microseconds."""
    return int(value * 1000)


@pytest.mark.parametrize("first_token", ["decode", "prefill"])
def test_events_hold_the_times_of_every_request(tmp_path, first_token):
    instance = random_instance(latest_ns=60 * 10**9, first_token=first_token)
    schedule = served(instance)
    times = {k: v.tolist() for k, v in request_times(instance, schedule).items()}
    found = events(tmp_path, instance, schedule)
    names = {e["tid"]: e["args"]["name"] for e in found if e["name"] == "thread_name"}
    prefills = [e for e in found if e.get("cat") == "prefill"]
    decodes = [e for e in found if e.get("cat") == "decode"]
    assert [e["args"]["row"] for e in prefills] == list(range(len(instance)))
    assert len(decodes) == (instance.rounds_needed > 0).sum()
    finish = dict.fromkeys(range(len(instance)))
    for event in [*prefills, *decodes]:
        row = event["args"]["row"]
        start, end = ns(event["ts"]), ns(event["ts"]) + ns(event["dur"])
        assert names[event["tid"]] == f"client {times['client'][row]}"
        assert event["args"]["arrival_ns"] == instance.requests.arrival_ns[row]
        assert event["args"]["first_token_ns"] == times["first_token_ns"][row]
        if event["cat"] == "prefill":
            assert (start, end) == (times["prefill_start_ns"][row], times["prefill_end_ns"][row])
        else:
            assert start == times["prefill_end_ns"][row]
        finish[row] = end
    assert list(finish.values()) == times["finish_ns"]


def test_stages_have_a_track_a_worker(tmp_path):
    found = events(tmp_path, *by_hand())
    stages = [(e["pid"], e["name"], ns(e["ts"])) for e in found if e.get("cat") == "stage"]
    assert (1, "decode stage 2", 30) in stages
    assert (2, "prefill stage 0", 5) in stages
    tracks = [(e["pid"], e["tid"]) for e in found if e["name"] == "thread_name"]
    assert len({tid for _, tid in tracks}) == len(tracks) == 5
    assert {e["tid"] for e in found if e.get("cat") == "stage"} == {1, 4}
    names = {e["args"]["name"] for e in found if e["name"] == "process_name"}
    assert names == {"big", "small", "queue"}


def series_of(case):
    """Counters by name and process."""
    return {(c.name, c.process): rows_of(c.time_ns, c.value) for c in counters(Timeline(*case))}


def test_counters_by_hand():
    assert series_of(by_hand()) == {
        ("running", 1): [(0, 2), (24, 1), (33, 0)],
        ("running", 2): [(5, 1), (12, 0)],
        ("waiting", 3): [(0, 1), (5, 0)],
    }


@pytest.mark.parametrize("latest_ns", [0, 60 * 10**9])
def test_counters_stay_in_their_limits_and_end_at_zero(tmp_path, latest_ns):
    instance = random_instance(n=50, latest_ns=latest_ns)
    found = events(tmp_path, instance, served(instance))
    for name, limit in (
        ("running", instance.worker.clients),
        ("kv_blocks", instance.worker.memory.blocks),
        ("waiting", len(instance)),
    ):
        series = [e for e in found if e["ph"] == "C" and e["name"] == name]
        values = [e["args"][name] for e in series]
        assert values[-1] == 0
        assert 0 <= min(values) < max(values) <= limit
        assert (np.diff([ns(e["ts"]) for e in series]) > 0).all()


def test_paged_blocks_follow_the_rounds():
    found = series_of(every_kind())
    # Padded to the longest, blocks of two tokens: 5, 6, 8 tokens after the steps.
    assert found["kv_blocks", 1] == [(0, 6), (26, 8), (38, 0)]
    assert found["kv_blocks", 2] == [(0, 2), (14, 5), (59, 0)]


@pytest.mark.parametrize("seed", seeds(8, 30))
def test_blocks_are_those_of_every_step(seed):
    line = Timeline(*any_schedule(seed, requests=7))
    series = {c.process - 1: c for c in counters(line) if c.name == "kv_blocks"}
    workers = enumerate(line.instance.workers)
    assert set(series) == {index for index, worker in workers if worker.memory is not None}
    for worker, counter in series.items():
        for place in np.flatnonzero((line.worker == worker) & (line.end_ns > line.start_ns)):
            now = np.searchsorted(counter.time_ns, line.start_ns[place], side="right") - 1
            assert (counter.value[now] if now >= 0 else 0) == line.caches.blocks[place]
        assert counter.value[-1:].sum() == 0


def test_pauses_invalid_rounds_and_mixed_steps_are_events(tmp_path):
    found = events(tmp_path, *every_kind())
    held = {
        (e["cat"], e["args"]["row"], ns(e["ts"]), ns(e["dur"]))
        for e in found
        if e.get("cat") in ("invalid", "paused")
    }
    assert held == {("invalid", 0, 26, 12), ("paused", 2, 42, 5)}
    mixed = [e["args"] for e in found if e["name"].startswith("mixed step")]
    assert mixed == [
        {"bin": 1, "prefilled": 1, "tokens": 4, "decoding": 1},
        {"bin": 2, "prefilled": 1, "tokens": 2, "decoding": 1},
    ]
    again = [e for e in events(tmp_path, *by_hand()) if e.get("args", {}).get("stay") == 1]
    assert [(e["cat"], e["args"]["row"]) for e in again] == [("prefill", 1), ("decode", 1)]


def test_names_cannot_break_the_format(tmp_path):
    ids = ['"}]', "</script>", "\ud800", "a\nb"]
    instance = random_instance(n=4, ids=ids, name='"quoted"\n')
    found = events(tmp_path, instance, served(instance))
    assert [e["name"] for e in found if e.get("cat") == "prefill"] == ids


def test_nothing_is_a_valid_trace(tmp_path):
    assert {e["ph"] for e in events(tmp_path, *empty())} == {"M"}
