"""The public instance library: what is recorded holds, and what is forged is refused."""

import gzip
import json
import os
import shutil
from unittest.mock import Mock

import pytest

import orsched
from benchmarks.library import write_listed
from orsched.cli.commands import run
from orsched.cli.library_commands import spread
from orsched.common.errors import InputError
from orsched.files.document import hold
from orsched.instances import library_index as index
from orsched.planning import library_rows
from orsched.solving.method_choice import presets
from orsched.solving.result import Termination

OPEN = "toy-6-1 makespan clairvoyant"
CHEAP_REQUESTS, SAMPLE = 200, 24


@pytest.fixture
def shelf(tmp_path, monkeypatch):
    """A copy of the library with the record of the toys alone."""
    real = index.folder()
    shutil.copy(real / "instances.csv", tmp_path)
    shutil.copytree(real / "best" / "toy", tmp_path / "best" / "toy")
    shutil.copy(real / "best" / "toy.json", tmp_path / "best")
    monkeypatch.setenv(index.VARIABLE, str(tmp_path))
    index.write_record("toy", index.record("toy"))
    return tmp_path


@pytest.fixture
def call(capsys):
    """Run a command; return exit code, stdout, stderr."""

    def invoke(line):
        capsys.readouterr()
        return run(line.split()), *capsys.readouterr()

    return invoke


def _rows(*names):
    return [row for row in index.rows("toy") if row.key in names or row.listed.instance in names]


def _faults(*names):
    return [verdict.fault for verdict in library_rows.verify(_rows(*names)) if verdict.fault]


# -- what is recorded ---------------------------------------------------------------------


def test_a_sample_of_the_library_holds():
    known = [row for row in index.rows() if row.listed.requests <= CHEAP_REQUESTS]
    known = [row for row in known if row.upper is not None and row.search is None]
    found = list(library_rows.verify(spread(known, SAMPLE, 5)))
    assert len(found) > SAMPLE
    assert [verdict for verdict in found if verdict.fault] == []


@pytest.mark.full
def test_the_whole_library_holds():
    found = list(library_rows.verify(index.rows()))
    assert len(found) > 600
    assert [verdict for verdict in found if verdict.fault] == []


@pytest.mark.full
def test_each_instance_is_the_published_one():
    for name, row in index.listed().items():
        made = index.load_listed(name)
        assert (len(made), len(made.workers)) == (row.requests, row.workers)


def test_what_the_library_is():
    every = [one for one in index.listed().values() if not one.retired]
    assert len(every) >= 240
    assert {one.workers for one in every} >= {1, 4, 16}
    assert {10, 10_000} <= {one.requests for one in every} | {10}
    assert all(one.source and one.licence for one in every)
    assert {o for one in every for o in one.objectives} == set(index.UNITS)
    found = index.rows()
    small = {row.listed.instance for row in found if row.gap is not None and row.gap < 0.01}
    proven = {row.listed.instance for row in found if row.status == "proven"}
    assert len(small) >= 150
    assert len(proven) >= 80
    assert all(low <= high for low, high in (r.values for r in found) if high is not None)


def test_an_instance_of_the_library_loads_by_its_name():
    found = orsched.load("lib:gate")
    assert found == orsched.load("gate").replace(
        name="lib:gate", source=found.source, licence=found.licence
    )
    assert found.sha256 == index.named("gate").sha256


@pytest.mark.parametrize(("name", "said"), [("lib:gat", "gate"), ("lib:", "list")])
def test_an_unknown_name_is_refused_with_near_ones(name, said):
    with pytest.raises(InputError, match="unknown instance of the library") as refused:
        orsched.load(name)
    assert said in refused.value.remedy


# -- forged rows --------------------------------------------------------------------------


def _changed(shelf, side, **fields):
    record = index.record("toy")
    for name, value in fields.items():
        record[OPEN][side][name] = value
    index.write_record("toy", record)


def _cheaper(shelf):
    _changed(shelf, "upper", value=index.record("toy")[OPEN]["upper"]["value"] - 1)


def _higher(shelf):
    _changed(shelf, "lower", value=index.record("toy")[OPEN]["lower"]["value"] + 1)


def _other_certificate(shelf):
    bound = index.record("toy")[OPEN]["lower"]["bound"]
    claim = {**bound["certificate"], "value_ns": bound["value_ns"] + 1}
    forged = {**bound, "value_ns": bound["value_ns"] + 1, "certificate": claim}
    _changed(shelf, "lower", bound=forged, value=forged["value_ns"], sha256=index.digest(forged))


def _schedule(shelf, change):
    path = shelf / "best" / "toy" / "toy-6-1.makespan.upper.json.gz"
    columns = json.loads(gzip.decompress(path.read_bytes()))
    change(columns)
    path.write_bytes(index.packed(columns))
    _changed(shelf, "upper", sha256=index.digest(columns))


def _faster_step(shelf):
    def change(columns):
        columns["steps"]["end_ns"][-1] -= 1

    _schedule(shelf, change)
    _cheaper(shelf)


def _less_work(shelf):
    def change(columns):
        for column in columns["work"].values():
            del column[-1]

    _schedule(shelf, change)


def _bad_column(shelf):
    _schedule(shelf, lambda columns: columns["steps"].pop("rounds"))


def _no_file(shelf):
    (shelf / "best" / "toy" / "toy-6-1.makespan.upper.json.gz").unlink()


def _not_gzip(shelf):
    (shelf / "best" / "toy" / "toy-6-1.makespan.upper.json.gz").write_bytes(b"{}")


def _other_sha256(shelf):
    _changed(shelf, "upper", sha256="0" * 64)


def _better_search(shelf):
    _changed(shelf, "search", value=index.record("toy")[OPEN]["search"]["value"] - 1)


def _other_search(shelf):
    _changed(shelf, "search", search={"name": "hybrid"})


def _other_policy(shelf):
    policy = {"name": "hybrid", "seed": 0}
    _changed(shelf, "upper", policy=policy, sha256=index.digest(policy))


def _own_code(shelf):
    _no_file(shelf)
    _changed(shelf, "upper", policy={"name": "os:system", "seed": 0})


def _other_instance(shelf):
    rows = index.listed()
    rows["toy-6-1"] = rows["toy-6-1"]._replace(sha256="0" * 64)
    write_listed(rows.values())


def _other_index(shelf):
    path = shelf / "index.csv"
    path.write_text(path.read_text().replace(",open,", ",proven,", 1))


@pytest.mark.parametrize(
    ("forge", "said"),
    [
        (_cheaper, "the value is"),
        (_higher, "the value is"),
        (_other_certificate, "re-derived"),
        (_faster_step, "takes"),
        (_less_work, "output tokens"),
        (_bad_column, "needs the field 'rounds'"),
        (_no_file, "the file is not here"),
        (_not_gzip, "is not a gzip file"),
        (_other_sha256, "SHA-256"),
        (_better_search, "the value is"),
        (_other_search, "only the method exact"),
        (_other_policy, "SHA-256"),
        (_own_code, "only policies"),
        (_other_instance, "is not the published instance"),
        (_other_index, "is not what the record says"),
    ],
)
def test_a_forged_row_is_found(shelf, forge, said):
    assert _faults(OPEN) == []
    forge(shelf)
    found = _faults(OPEN)
    assert any(said in fault for fault in found), found


# -- submissions --------------------------------------------------------------------------

HEAD = {
    "format": "orsched/submission", "version": 1, "instance": "gate", "objective": "makespan",
    "method": "by hand", "by": "A. Reader", "hardware": "paper", "seconds": 60,
    "date": "2026-11-26",
}  # fmt: skip


def _columns(name="gate", method="exact"):
    return library_rows.columns_of(orsched.solve(orsched.load(f"lib:{name}"), method).schedule)


def _submit(tmp_path, **fields):
    path = tmp_path / "submission.json"
    path.write_text(json.dumps({**HEAD, **fields}))
    return library_rows.submit(library_rows.read_submission(path))


def test_a_better_schedule_takes_the_row_and_an_equal_one_does_not(shelf, tmp_path):
    record = index.record("toy")
    del record["gate makespan clairvoyant"]
    index.write_record("toy", record)
    worse = _submit(tmp_path, schedule=_columns(method="fcfs"))
    assert (worse.better, worse.before, worse.value) == (True, None, 357_000_000)
    best = _submit(tmp_path, schedule=_columns())
    assert (best.better, best.before, best.value) == (True, 357_000_000, 307_000_000)
    assert not _submit(tmp_path, schedule=_columns()).better
    assert not _submit(tmp_path, schedule=_columns(method="fcfs")).better
    known = index.record("toy")["gate makespan clairvoyant"]
    assert known["upper"]["by"] == "A. Reader"
    assert [gone["value"] for gone in known["past"]] == [357_000_000]
    proof = orsched.bound(orsched.load("gate")).to_dict()
    assert _submit(tmp_path, bound=proof).better
    assert _submit(tmp_path, search={"name": "exact"}).better
    assert _submit(tmp_path, policy={"name": "fcfs", "seed": 0}).better
    assert _faults("gate") == []
    assert {row.status for row in _rows("gate") if row.objective == "makespan"} == {
        "searched", "open"
    }  # fmt: skip


def test_a_policy_counts_on_both_tracks(shelf, tmp_path):
    record = index.record("toy")
    del record["gate makespan clairvoyant"]
    index.write_record("toy", record)
    assert _submit(tmp_path, policy={"name": "fcfs", "seed": 0}, track="policy").better
    assert {row.values[1] for row in _rows("gate") if row.objective == "makespan"} == {357_000_000}
    assert _faults("gate") == []


def test_wrong_schedules_and_certificates_are_judged_with_the_reason(shelf, tmp_path):
    columns = _columns()
    columns["steps"]["end_ns"][-1] -= 1
    found = _submit(tmp_path, schedule=columns)
    assert not found.better
    assert "takes" in found.faults[0]
    proof = orsched.bound(orsched.load("gate")).to_dict()
    proof["value_ns"] += 1
    assert "re-derived" in _submit(tmp_path, bound=proof).faults[0]
    other = _submit(tmp_path, objective="jct_mean", schedule=_columns("gate", "sjf"))
    assert "outside of the row's class" in other.faults[0]
    told = _submit(tmp_path, track="policy", policy={"name": "hybrid", "seed": 0})
    assert "clairvoyant" in told.faults[0]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, "must be one of schedule, bound, policy and search"),
        ({"policy": {"name": "os:system", "seed": 0}}, "only policies"),
        ({"policy": {"name": "fcfs", "seed": -1}}, "seed"),
        ({"schedule": {}, "bound": {}}, "must be one of"),
        ({"schedule": [], "instance": "gat"}, "unknown instance"),
        ({"schedule": {}, "objective": "ttft_mean"}, "has no row"),
        ({"schedule": {}, "track": "fast"}, "has no row"),
        ({"schedule": {}, "track": "policy"}, "the name and seed of a policy"),
        ({"bound": {}, "track": "policy"}, "must be clairvoyant"),
        ({"schedule": {}, "date": "yesterday"}, "is not a date"),
        ({"schedule": {}, "date": "2026-02-31"}, "is not a date"),
        ({"schedule": {}, "date": "2026-W07-1"}, "is not a date"),
        ({"schedule": {}, "seconds": -1}, "number of seconds"),
        ({"schedule": {}, "seconds": True}, "number of seconds"),
        ({"search": {"name": "exact"}, "seconds": 10**400}, "number of seconds"),
        ({"schedule": {}, "colour": 1}, "no field 'colour'"),
        ({"schedule": [1]}, "must be an object"),
        ({"schedule": {}, "version": 9}, "newer orsched"),
        ({"schedule": {}, "by": 7}, "must be a text"),
    ],
)
def test_a_wrong_submission_is_refused_and_writes_nothing(shelf, tmp_path, fields, said):
    before = (shelf / "best" / "toy.json").read_bytes()
    with pytest.raises(InputError, match=said):
        _submit(tmp_path, **fields)
    assert (shelf / "best" / "toy.json").read_bytes() == before


def test_one_process_at_a_time_submits(shelf, tmp_path):
    held = os.open(shelf, os.O_RDONLY)
    hold(held, shelf, "is a test")
    with pytest.raises(InputError, match="another process submits to this library"):
        _submit(tmp_path, schedule=_columns())
    os.close(held)
    assert _submit(tmp_path, schedule=_columns()).faults == []


def test_the_example_of_the_page_is_valid(shelf, tmp_path, repo_root):
    text = (repo_root / "docs" / "library.md").read_text()
    document = json.loads(text.partition("```json\n")[2].partition("```")[0])
    found = _submit(tmp_path, **document)
    assert (found.faults, found.value, found.better) == ([], 78_000_000, False)


def test_the_presets_are_policies_too(shelf, tmp_path):
    name = next(iter(presets()))
    assert _submit(tmp_path, track="clairvoyant", policy={"name": name, "seed": 0}).faults == []


def test_a_folder_without_a_library_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv(index.VARIABLE, str(tmp_path))
    with pytest.raises(InputError, match=r"holds no instances\.csv"):
        index.folder()
    cells = dict.fromkeys(index.Listed._fields, "1") | {"made": "[1]"}
    rows = (",".join(cells), ",".join(cells.values()))
    for number, text in enumerate(("instance,family\nx,y\n", "\n".join(rows))):
        (tmp_path / f"{number}.csv").write_text(text)
        with pytest.raises(InputError, match="cannot be read"):
            index._listed(tmp_path / f"{number}.csv", 0)


def test_a_search_that_is_interrupted_is_no_verdict(monkeypatch):
    """Ctrl-C during a search ends the command; it says nothing of the entry."""
    done = Mock(termination=Termination.INTERRUPTED, status="feasible")
    monkeypatch.setattr("orsched.solving.solver.solve", Mock(return_value=done))
    row = index.row_of("gate", "makespan", "clairvoyant")
    with pytest.raises(KeyboardInterrupt):
        library_rows.judged_search(orsched.load("gate"), row, {"name": "exact"})


@pytest.mark.parametrize("broken", [
    b"", b"no gzip", gzip.compress(b"{}" * 99)[:-9], gzip.compress(b"\xff"), gzip.compress(b"{"),
    gzip.compress(bytes(range(256)))[:20] + b"\xff" * 20,
])  # fmt: skip
def test_a_damaged_file_is_named(tmp_path, broken):
    path = tmp_path / "a.json.gz"
    path.write_bytes(broken)
    with pytest.raises(InputError, match=r"a\.json\.gz"):
        index.unpacked(path)


def test_the_command_judges_a_schedule_file_of_orsched(shelf, tmp_path, call):
    path = tmp_path / "plan.json"
    orsched.save_schedule(orsched.solve(orsched.load("gate"), "fcfs"), path)
    code, out, err = call(f"library submit {path} --date 2026-11-26 --format json")
    assert (code, json.loads(out)["valid"], json.loads(out)["better"]) == (0, True, False)
    assert call("info lib:gate")[1].startswith("name")
    code, out, err = call("library verify gate")
    assert (code, out, "of" in err) == (0, "", True)
    _other_index(shelf)
    code, out, err = call("library verify gate")
    assert (code, "index.csv" in out) == (1, True)
    code, out, err = call(f"library get gate --schedule makespan -o {tmp_path / 'best.json'}")
    assert code == 0
    assert orsched.check(orsched.load("gate"), orsched.load_schedule(tmp_path / "best.json")) == []
