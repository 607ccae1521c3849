"""Studies that are killed: nothing is lost, nothing runs twice, the same table at the end."""

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter

import pytest

from orsched.common.errors import InputError
from orsched.planning.study import run
from orsched.planning.study.drive import Store, _digest
from orsched.planning.study.plan import key_of, read_study
from tests.planning.study.grids import POLICIES, command, finished, frozen, orsched, table
from tests.refusals import refusal

SMALL = {"instances": ["two-by-two"], "policies": ["fcfs"]}
TAGS = 24

STUDY = """
instances = [{{generator = "uniform", requests = [8, 12], clients = 2}}]
arrivals = ["poisson:rate=2"]
policies = [{{name = "logged:Slow", parameters = {{log = "{log}", tag = {tags}}}}}]
bounds = ["makespan", "mean_jct"]
seeds = 5
"""


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    with open(f"/proc/{pid}/stat") as stream:
        return stream.read().rsplit(")", 1)[1].split()[0] != "Z"


def wait_for(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it never came to that"
        time.sleep(0.01)


def log_of(folder):
    """Return how often each tag began, and the processes that ran any."""
    lines = (folder / "log").read_text().split("\n")[:-1] if (folder / "log").exists() else []
    pairs = [line.split() for line in lines]
    return Counter(tag for tag, _ in pairs), {int(pid) for _, pid in pairs}


def tags_of(cells):
    records = [json.loads(content) for _, content in cells.values()]
    return Counter(str(r["cell"]["policy"]["parameters"]["tag"]) for r in records)


def killed_study(folder, draws):
    """Start the study, kill it -9 after some more cells, and return what was finished before."""
    before = finished(folder / "s-study")
    given = command(folder, "study", "s.toml", "--jobs", 2)
    process = subprocess.Popen(**given, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    more = draws.randrange(4)
    wait_for(lambda: len(finished(folder / "s-study")) >= len(before) + more)
    time.sleep(draws.random() * 0.15)
    assert process.poll() is None, "the study was over before it was killed"
    process.kill()
    process.wait()
    return before


@pytest.mark.parametrize("kills", [1, pytest.param(10, marks=pytest.mark.full)])
def test_a_study_survives_kill_9(tmp_path, kills):
    (tmp_path / "logged.py").write_text(POLICIES)
    text = STUDY.format(log=tmp_path / "log", tags=list(range(4 if kills < 5 else TAGS)))
    (tmp_path / "s.toml").write_text(text)
    folder, draws = tmp_path / "s-study", random.Random(kills)
    kept = {}
    for _ in range(kills):
        begun = log_of(tmp_path)[0]
        killed_study(tmp_path, draws)
        wait_for(lambda: not any(alive(pid) for pid in log_of(tmp_path)[1]))
        now = finished(folder)
        assert kept.items() <= now.items(), "a finished cell was lost or written again"
        ran = log_of(tmp_path)[0] - begun
        done = [tag for tag, count in tags_of(kept).items() if count == 2 and ran[tag]]
        assert done == [], "a finished cell ran again"
        kept = now
    last = orsched("study", "s.toml", "--jobs", 2, cwd=tmp_path)
    assert last.returncode == 0, last.stderr
    assert kept.items() <= finished(folder).items()
    begun = log_of(tmp_path)[0]
    assert f"({2 * len(begun) - len(kept)} run now, {len(kept)} before)" in last.stderr
    # At most two cells were under way at each kill: these alone may have begun once more.
    assert 2 * len(begun) <= sum(begun.values()) <= 2 * len(begun) + 2 * kills
    assert orsched("study", "s.toml", cwd=tmp_path).returncode == 0
    assert log_of(tmp_path)[0] == begun, "a finished study ran something"

    whole = orsched("study", "s.toml", "-o", "whole", "--jobs", 2, cwd=tmp_path)
    assert whole.returncode == 0, whole.stderr
    assert frozen(folder) == frozen(tmp_path / "whole")
    rows = table(folder)
    assert len(rows) == 2 * len(begun)
    assert all(row["status"] == "ok" and int(row["makespan_ns"]) > 0 for row in rows)


KILLED_AT = """
import os, signal, sys
import orsched.planning.study.drive as store
calls = 0
def dying(function):
    def call(*arguments, **options):
        global calls
        calls += 1
        if calls == {at}:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*arguments, **options)
    return call
for name in ("fsync", "replace", "open", "close"):
    setattr(os, name, dying(getattr(os, name)))
record = {record!r}
with store.Store({folder!r}) as opened:
    calls = 0
    opened.add(record)
"""


@pytest.mark.parametrize("at", [1, 2, 3, 4, 5, 6, 99])
def test_a_cell_is_there_in_full_or_not_at_all(tmp_path, at):
    record = {"cell": {"x": 1}, "key": key_of({"x": 1}), "run": {}, "status": "ok"}
    record["results"] = {str(number): number for number in range(1000)}
    code = KILLED_AT.format(at=at, record=record, folder=str(tmp_path / "f"))
    done = subprocess.run([sys.executable, "-c", code], timeout=60)
    assert done.returncode == (0 if at == 99 else -signal.SIGKILL)
    with Store(tmp_path / "f") as store:
        found = store.load([record["key"]])
        assert found in ({}, {record["key"]: record})
        assert bool(found) == (at > 3), "renamed after the record was flushed, not before"
        assert list(store.cells.glob("*.tmp")) == []
        if not found:
            store.add(record)
        with pytest.raises(RuntimeError, match="run twice"):
            store.add(record)


def test_one_process_at_a_time_works_on_a_folder(tmp_path):
    with Store(tmp_path), pytest.raises(InputError, match="another process"), Store(tmp_path):
        pass
    with Store(tmp_path):
        pass


def _refused(folder, key, text):
    with Store(folder) as store:
        store.path(key).write_bytes(text.encode("utf-8", "surrogatepass"))
        error = refusal(store.load, [key])
    assert "does not hold this cell" in str(error)
    assert error.file.endswith(f"{key}.json")


def _record(**changes):
    key = key_of({"x": 1})
    record = {"cell": {"x": 1}, "key": key, "run": {}, "status": "ok", "results": {"gap": 0.5}}
    return record | changes


def test_a_record_that_is_none_is_named(tmp_path):
    key = key_of({"x": 1})
    wrong = ({"cell": {"x": 2}}, {"run": 3}, {"status": "done"}, {"results": []})
    whole = [{**_record(**change), "digest": _digest(_record(**change))} for change in wrong]
    for text in ("{", "[]", "7", "[" * 100_000, "\xff", *map(json.dumps, whole)):
        _refused(tmp_path, key, text)


def test_a_record_that_was_edited_or_has_half_a_character_is_named(tmp_path):
    record = _record()
    with Store(tmp_path) as store:
        store.add(record)
        text = store.path(record["key"]).read_text()
        assert store.load([record["key"]]) == {record["key"]: record}
    edited = [
        text.replace("0.5", "0.4"),
        text.replace('"ok"', '"failed"'),
        text.replace('"run": {}', '"run": {"solve_s": 1}'),
        json.dumps({k: v for k, v in json.loads(text).items() if k != "digest"}),
        json.dumps({**json.loads(text), "digest": None}),
    ]
    assert text not in edited
    for other in edited:
        _refused(tmp_path, record["key"], other)
    record = _record(results={"bound_name": "\ud800"})
    text = json.dumps(record, sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()
    _refused(tmp_path, record["key"], json.dumps({**record, "digest": digest}))
    text = json.dumps({**record, "digest": digest}, ensure_ascii=False)
    _refused(tmp_path, record["key"], text)


def test_records_of_before_there_were_digests_are_left_alone_and_run_anew(tmp_path):
    (cell,) = read_study(SMALL).cells()
    before = {name: value for name, value in cell.content.items() if name != "record"}
    old = tmp_path / "cells" / f"{key_of(before)}.json"
    old.parent.mkdir()
    old.write_text(json.dumps({"cell": before, "key": key_of(before), "run": {}, "status": "ok"}))
    written = old.read_text()
    done = run(SMALL, tmp_path, jobs=1)
    assert (done.ran, len(done.rows)) == (1, 1)
    assert old.read_text() == written
    assert run(SMALL, tmp_path, jobs=1).ran == 0


@pytest.mark.parametrize("name", ["table.csv", "table.parquet"])
def test_tables_of_others_are_not_replaced(tmp_path, name):
    (tmp_path / name).write_text("mine")
    assert "would be overwritten" in str(refusal(run, SMALL, tmp_path, jobs=1))
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text() == "mine"
