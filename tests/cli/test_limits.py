"""The flags that raise limits, and the command's deadline inside the checker."""

from __future__ import annotations

import os

import pytest

import orsched
from orsched.checker import check
from orsched.cli.commands import run
from orsched.costs import AffineCost
from orsched.data.memory import BlockMemory, PrefixCache
from tests.in_order import in_order

STUDY = """
instances = ["pang-100x20"]
policies = ["fcfs"]
seeds = "0:6"
"""


@pytest.fixture
def study(tmp_path, monkeypatch):
    monkeypatch.setenv("ORSCHED_MAX_CELLS", "5")
    path = tmp_path / "s.toml"
    path.write_text(STUDY)
    return str(path)


def test_a_flag_raises_the_limit_of_cells_for_one_command(study, capsys):
    assert run(["study", study, "--list"]) == 2
    assert "say orsched --max-cells 6 COMMAND" in capsys.readouterr().err
    assert run(["--max-cells", "6", "study", study, "--list"]) == 0
    assert os.environ["ORSCHED_MAX_CELLS"] == "5"
    assert run(["study", study, "--list"]) == 2


def test_a_flag_raises_the_limit_of_rows(tmp_path, capsys, monkeypatch):
    pytest.importorskip("pyarrow")
    monkeypatch.delenv("ORSCHED_MAX_ROWS", raising=False)
    path = tmp_path / "some.parquet"
    orsched.save_instance(orsched.load("pang-100x20"), path)
    assert run(["--max-rows", "99", "info", str(path)]) == 2
    assert "say orsched --max-rows 100 COMMAND" in capsys.readouterr().err
    assert run(["--max-rows", "100", "info", str(path)]) == 0
    assert "ORSCHED_MAX_ROWS" not in os.environ


@pytest.mark.parametrize("flag", ["--max-rows", "--max-cells", "--max-blocks", "--max-steps"])
@pytest.mark.parametrize("value", ["0", "-1", "many", "1e6"])
def test_limits_are_whole_numbers_above_zero(flag, value, capsys):
    assert run([flag, value, "info"]) == 2
    assert flag in capsys.readouterr().err


def test_a_flag_raises_the_limit_of_blocks(tmp_path, capsys, monkeypatch):
    path = tmp_path / "case.json"
    memory = BlockMemory(100, 1, "paged", PrefixCache("lru"))
    worker = orsched.Worker(2, memory=memory)
    orsched.save_instance(orsched.Instance(orsched.Requests([30], [20]), worker), path)
    monkeypatch.setenv("ORSCHED_MAX_BLOCKS", "104")
    assert run(["solve", str(path), "--method", "vllm"]) == 2
    said = capsys.readouterr().err
    assert "105 blocks of prefix caches are more than the 104" in said
    assert str(path) in said
    assert run(["--max-blocks", "105", "solve", str(path), "--method", "vllm"]) == 0


class Late(AffineCost):
    """A cost model in whose calls the alarm of a time limit rings."""

    armed = False

    def prefill_ns(self, prompts):
        if Late.armed:
            raise orsched.TimeLimitError("over")
        return super().prefill_ns(prompts)


def test_a_deadline_that_rings_in_the_checker_is_no_violation(monkeypatch):
    worker = orsched.Worker(2, in_order(Late, 25, 1, 29, 1))
    instance = orsched.Instance(orsched.Requests([3, 4], [5, 6]), worker, first_token="decode")
    schedule = orsched.solve(instance, "fcfs").schedule
    assert check(instance, schedule) == []
    monkeypatch.setattr(Late, "armed", True)
    with pytest.raises(orsched.TimeLimitError):
        check(instance, schedule)


def test_a_deadline_that_rings_in_a_certificate_is_no_violation(monkeypatch):
    from orsched.checker import certificates

    def rings(*_):
        raise orsched.TimeLimitError("over")

    instance = orsched.load("pang-100x20")
    document = orsched.bound(instance).to_dict()
    assert certificates.certificate_violations(instance, document) == []
    monkeypatch.setattr(certificates, "_differences", rings)
    with pytest.raises(orsched.TimeLimitError):
        certificates.certificate_violations(instance.replace(), document)
