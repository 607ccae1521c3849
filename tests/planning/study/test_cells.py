"""Cells: what their instances are made of, what they report, and what goes wrong in them."""

import re

import pytest

from orsched import AffineCost, Worker, save_instance, solve
from orsched.planning.study import run
from orsched.planning.study.cell import build_instance, execute
from orsched.planning.study.drive import Store
from orsched.planning.study.plan import key_of, read_study
from orsched.planning.study.table import rows_of, varying
from orsched.solving.objectives import objective_named
from tests.decoding import decoding
from tests.in_order import in_order
from tests.refusals import refusal

RATES = "client,window_start_s,rate_rps,cv,family,param1,param2\n"
LEVELS = ("01", "05", *range(10, 100, 10), "95", "99")
LENGTHS = ",".join(["client,window_start_s,field,n,mean,std", *(f"q{k}" for k in LEVELS), "max\n"])
QUANTILES = ",".join(str(10 * k) for k in range(1, 14)) + ",200"
MIXED = {
    "instances": [{"generator": "sources", "mix": "m_small", "clients": 4, "duration_s": 20}],
    "policies": ["fcfs"],
}


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Write the two tables, the rate of the only source in one of them."""
    folder = tmp_path / "data"
    folder.mkdir()
    monkeypatch.setenv("ORSCHED_DATA", str(folder))

    def tables(rate, mean=75):
        (folder / "servegen_m_small_rates.csv").write_text(f"{RATES}7,0,{rate},1,Gamma,1,3\n")
        fields = ("input_tokens", "output_tokens")
        rows = [f"7,0,{each},1,{mean},9,{QUANTILES}\n" for each in fields]
        (folder / "servegen_m_small_lengths.csv").write_text(LENGTHS + "".join(rows))

    tables(2)
    return tables


def mixed_keys():
    return [cell.key for cell in read_study(MIXED).cells()]


def test_changed_tables_make_new_cells(write):
    first = mixed_keys()
    assert first == mixed_keys()
    write(3)
    second = mixed_keys()
    write(3, mean=76)
    third = mixed_keys()
    write(2)
    assert mixed_keys() == first
    assert len({*first, *second, *third}) == 3


def test_mixes_without_files_have_cells_as_before():
    study = {**MIXED, "instances": [{"generator": "sources", "mix": ["synthetic"], "clients": 4}]}
    assert "data" not in read_study(study).cells()[0].content["instance"]
    uniform = {**MIXED, "instances": [{"generator": "uniform", "requests": 3, "clients": 2}]}
    assert "data" not in read_study(uniform).cells()[0].content["instance"]


def test_changed_tables_fail_the_cells_of_a_study_that_runs_and_are_run_again(write, tmp_path):
    (cell,) = read_study(MIXED).cells()
    assert len(build_instance(cell.content, None)) > 0
    write(3)
    assert "have changed since the study began" in str(refusal(build_instance, cell.content, None))
    assert run(MIXED, tmp_path / "s", jobs=1).ran == 1
    assert run(MIXED, tmp_path / "s", jobs=1).ran == 0
    write(4)
    done = run(MIXED, tmp_path / "s", jobs=1)
    assert (done.ran, done.cells, len(done.failed)) == (1, 1, 0)


def test_missing_tables_are_named_before_anything_runs(write, tmp_path, monkeypatch):
    (tmp_path / "data" / "servegen_m_small_lengths.csv").unlink()
    error = refusal(read_study, MIXED)
    assert "No such file" in str(error)
    assert error.file.endswith("servegen_m_small_lengths.csv")
    assert "orsched data" in error.remedy
    monkeypatch.delenv("ORSCHED_DATA")
    assert "no directory of data sets" in str(refusal(read_study, MIXED))


WORKER = Worker(1, in_order(AffineCost, 10_000_000, 1000, 5_000_000, 0))
SMALL = decoding([5, 7, 9], [2, 1, 4], WORKER, weights=[1, 0, 10])
GRID = {"instances": [SMALL], "policies": ["fcfs", "exact", "hybrid"]}


@pytest.fixture
def rows(tmp_path):
    """Run a study's cells in this process."""
    path = tmp_path / "small.json"
    save_instance(SMALL, path)

    def run(**given):
        cells = read_study({**GRID, "instances": [str(path)], **given}).cells()
        return rows_of(cells, {cell.key: execute(cell.task()) for cell in cells})

    return run


@pytest.mark.parametrize(
    "objective", ["makespan", "mean_jct", "weighted_jct_mean", "0.5*makespan+0.5*ttft_mean"]
)
def test_cells_report_what_solve_does(rows, objective):
    found = rows(objective=objective)
    by_policy = {row["policy"]: row for row in found}
    exact, solved = by_policy["exact"], solve(SMALL, "fcfs", objective)
    assert exact["objective"] == solved.objective.name
    assert by_policy["fcfs"]["objective_value"] == pytest.approx(solved.objective_value)
    for row in found:
        assert row["status"] == "ok"
        assert row["objective_bound"] <= exact["objective_value"] <= row["objective_value"]
        gap = row["objective_value"] / row["objective_bound"] - 1
        assert row["gap"] == pytest.approx(gap)
    proven = {name: (row["verdict"], row["gap"]) for name, row in by_policy.items()}
    assert proven["exact"] == ("optimal", 0)
    assert by_policy["exact"]["objective_bound"] == by_policy["exact"]["objective_value"]


def test_exact_is_asked_for_the_objective_and_its_bound_is_in_the_cell(rows):
    fcfs, exact, _ = rows(objective="weighted_jct_mean")
    assert exact["objective_value"] < fcfs["objective_value"]
    assert exact["cell"] != rows(policies=["exact"], objective="makespan")[0]["cell"]
    read = read_study({**GRID, "objective": "0.5*makespan+0.5*ttft_mean", "bounds": ["mean_jct"]})
    assert read.bounds == ("makespan", "mean_jct", "mean_ttft")


def test_attainment_needs_limits_and_is_at_most_1(rows):
    (failed,) = rows(policies=["fcfs"], objective="slo_attainment")
    assert failed["status"] == "failed"
    assert "without limits" in failed["error"]
    (row,) = rows(policies=["fcfs"], objective="slo_attainment", slo={"ttft_s": 0.02})
    assert 0 < row["objective_value"] == row["slo_attainment"] < 1
    assert row["objective_bound"] == 1


def test_a_list_of_objectives_is_an_axis_whose_ends_have_the_least_of_each(rows):
    aims = ["makespan", "0.5*makespan+0.5*jct_mean", "jct_mean"]
    found = rows(policies=["exact"], objective=aims)
    assert [row["objective"] for row in found] == [objective_named(aim).name for aim in aims]
    first, middle, last = found
    assert first["makespan_ns"] <= min(middle["makespan_ns"], last["makespan_ns"])
    assert last["jct_ns_mean"] <= min(first["jct_ns_mean"], middle["jct_ns_mean"])
    assert "objective" in varying(found)
    values = [each["makespan_ns"] + each["jct_ns_mean"] for each in found]
    assert values[1] == pytest.approx(min(values))


def test_cells_without_an_objective_are_those_of_before(rows):
    (plain,) = read_study({**GRID, "policies": ["fcfs"]}).cells()
    assert "objective" not in plain.content
    (row,) = rows(policies=["fcfs"])
    assert not [name for name in row if name.startswith("objective")]


@pytest.mark.parametrize(("objective", "said"), [
    (3, "must be a text"), ("tpot_p99", "no method is made"), ("jct", "is not an objective"),
])  # fmt: skip
def test_a_wrong_objective_is_refused_with_its_key(objective, said):
    error = refusal(read_study, {**GRID, "objective": objective})
    assert (error.field, said in str(error)) == ("objective", True)


class Wordless(Exception):
    """An error whose text cannot be had."""

    def __str__(self):
        raise RuntimeError("no words today")


@pytest.mark.parametrize(("error", "said"), [
    (ValueError("half \udc80 a character"), r"ValueError: half \udc80 a character"),
    (ValueError("a\0b\r\nc"), r"ValueError: a\0b c"), (Wordless(), "Wordless: no words"),
    (SystemExit(0), "SystemExit: 0"), (MemoryError(), "MemoryError: "),
    (ValueError("x" * 10**6), f"ValueError: {'x' * 10_000} ..."),
])  # fmt: skip
def test_every_error_of_a_policy_can_be_recorded(tmp_path, monkeypatch, error, said):
    def fail(task):
        raise error

    monkeypatch.setattr("orsched.planning.study.cell._run", fail)
    content = {"x": 1}
    record = execute({"key": key_of(content), "content": content})
    error = re.sub(r" \(test_cells\.py, line \d+\)$", "", record["error"])
    assert (record["status"], error) == ("failed", said)
    with Store(tmp_path) as store:
        store.add(record)
        assert store.load([record["key"]]) == {record["key"]: record}
