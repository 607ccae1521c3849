"""What a generator reads from files is part of its cells."""

from __future__ import annotations

import pytest

from orsched.common.errors import InputError
from orsched.planning.study import run
from orsched.planning.study.cell import build_instance
from orsched.planning.study.plan import read_study

RATES = "client,window_start_s,rate_rps,cv,family,param1,param2\n"
LENGTHS = "client,window_start_s,field,n,mean,std,q01,q05,q10,q20,q30,q40,q50,q60,q70,q80,q90,q95,q99,max\n"  # noqa: E501
QUANTILES = ",".join(str(10 * k) for k in range(1, 14)) + ",200"
STUDY = {
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
        rows = [
            f"7,0,{each},1,{mean},9,{QUANTILES}\n" for each in ("input_tokens", "output_tokens")
        ]
        (folder / "servegen_m_small_lengths.csv").write_text(LENGTHS + "".join(rows))

    tables(2)
    return tables


def keys():
    return [cell.key for cell in read_study(STUDY).cells()]


def test_changed_tables_make_new_cells(write):
    first = keys()
    assert first == keys()
    write(3)
    second = keys()
    write(3, mean=76)
    third = keys()
    write(2)
    assert keys() == first
    assert len({*first, *second, *third}) == 3


def test_mixes_without_files_have_cells_as_before():
    study = {**STUDY, "instances": [{"generator": "sources", "mix": ["synthetic"], "clients": 4}]}
    assert "data" not in read_study(study).cells()[0].content["instance"]
    uniform = {"generator": "uniform", "requests": 3, "clients": 2}
    assert (
        "data" not in read_study({**STUDY, "instances": [uniform]}).cells()[0].content["instance"]
    )


def test_tables_that_change_while_a_study_runs_fail_its_cells(write):
    (cell,) = read_study(STUDY).cells()
    assert len(build_instance(cell.content, None)) > 0
    write(3)
    with pytest.raises(InputError, match="have changed since the study began"):
        build_instance(cell.content, None)


def test_a_study_runs_again_what_is_made_of_changed_tables(write, tmp_path):
    assert run(STUDY, tmp_path / "s", jobs=1).ran == 1
    assert run(STUDY, tmp_path / "s", jobs=1).ran == 0
    write(4)
    done = run(STUDY, tmp_path / "s", jobs=1)
    assert (done.ran, done.cells, len(done.failed)) == (1, 1, 0)


def test_missing_tables_are_named_before_anything_runs(write, tmp_path, monkeypatch):
    (tmp_path / "data" / "servegen_m_small_lengths.csv").unlink()
    with pytest.raises(InputError, match="No such file") as caught:
        read_study(STUDY)
    assert caught.value.file.endswith("servegen_m_small_lengths.csv")
    assert "orsched data" in caught.value.remedy
    monkeypatch.delenv("ORSCHED_DATA")
    with pytest.raises(InputError, match="no directory of data sets"):
        read_study(STUDY)
