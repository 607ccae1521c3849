"""``orsched export``: files for other solvers, and what is refused."""

from __future__ import annotations

import pytest

import orsched
from orsched.cli import export_command
from orsched.instances.catalog import KNOWN_OPTIMA
from orsched.models.mip import FORMATS, PROGRAMS
from tests.models.mip.test_files import by_scip


def test_the_choices_are_those_of_the_library():
    assert export_command.PROGRAMS == PROGRAMS
    assert export_command.FORMATS == FORMATS


@pytest.mark.parametrize("suffix", FORMATS)
@pytest.mark.parametrize("model", ["full-mip", "window-mip"])
def test_a_file_that_scip_reads(call, tmp_path, model, suffix):
    path = tmp_path / f"gate.{suffix}"
    code, out, err = call("export", "gate", "--model", model, "-o", path)
    assert (code, out) == (0, "")
    unit = int(err.partition("objective x ")[2].partition(" ns")[0])
    assert "= makespan" in err
    assert round(by_scip(path) * unit) == KNOWN_OPTIMA["gate"].makespan_ns
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


def test_standard_output_and_options(call):
    code, plain, err = call("export", "gate", "--stages", 3)
    assert (code, err) == (0, "")
    assert plain.startswith("* orsched: full-mip of the instance gate")
    assert plain.endswith("ENDATA\n")
    _, bare, _ = call("export", "gate", "--stages", 3, "--no-symmetry-breaking")
    assert " G s3_1_1" not in bare
    assert len(bare) < len(plain)
    _, printed, _ = call("export", "gate", "--stages", 3, "--formulation", "printed")
    assert "e11_0_0_1_0" in printed
    _, lp, _ = call("export", "gate", "--format", "lp")
    assert lp.startswith("\\ orsched")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["gsm8k-llama65b"],
            "nonzeros, more than 10,000,000 (take fewer requests or stages, or raise it)",
        ),
        (["gate", "--max-nonzeros", "10"], "field '--max-nonzeros': the model would have "),
        (["gate", "-o", "gate.txt"], "not a suffix of this output"),
        (["gate", "-o", "missing/gate.lp"], "missing"),
        (["gate", "-o", "gate.lp", "--format", "mps"], "the file is named lp, the format is mps"),
        (["gate", "--model", "mip"], "mip"),
        (["gate", "--model", "latency-mip", "--objective", ""], "'' is not an objective"),
        (["nothing.json"], "nothing.json"),
    ],
)
def test_refusals_are_one_line_with_the_remedy(call, tmp_path, monkeypatch, arguments, said):
    monkeypatch.chdir(tmp_path)
    code, out, err = call("export", *arguments)
    assert (code, out) == (2, "")
    assert said in err
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_what_does_not_map_is_said(call, tmp_path):
    path = tmp_path / "paged.json"
    memory = orsched.BlockMemory(5, 1, "paged")
    worker = orsched.Worker(2, orsched.AffineCost(), memory=memory)
    orsched.save_instance(
        orsched.Instance(orsched.Requests([1, 2], [3, 2]), worker, first_token="decode"), path
    )
    code, _, err = call("export", path)
    assert code == 2
    assert "memory" in err
