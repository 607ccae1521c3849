"""``orsched bound --objective bulk``: the figures, the certificate, and its check."""

from __future__ import annotations

import json

import pytest

from orsched.cli.commands import run
from orsched.files import save_instance
from tests.models.test_bulk_bound import small


@pytest.fixture
def instance(tmp_path):
    path = tmp_path / "instance.json"
    save_instance(small(n=6, bulk=20), path)
    return str(path)


def bulk(instance, *options):
    return run(["bound", instance, "--objective", "bulk", "--windows", "20", *options])


def test_the_figures(instance, capsys):
    assert bulk(instance, "--attainment", "0.5", "--format", "json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["feasible"] is True
    assert found["bulk_tokens"] > 0
    assert found["attainment"] == 0.5
    assert found["certificate"] == "verified"


def test_the_certificate_is_checked(instance, tmp_path, capsys):
    limits = ("--slo-ttft", "2", "--slo-tpot", "0.1")
    assert bulk(instance, "--certificate", *limits, "--restarts", "3", "--horizon", "3") == 0
    document = json.loads(capsys.readouterr().out)
    claim = tmp_path / "bound.json"
    claim.write_text(json.dumps(document))
    assert run(["check", instance, str(claim)]) == 0
    document["value"] -= 1
    claim.write_text(json.dumps(document))
    assert run(["check", instance, str(claim)]) == 1
    assert "re-derived" in capsys.readouterr().out
    document["classes"] = 3
    claim.write_text(json.dumps(document))
    assert run(["check", instance, str(claim)]) == 2


def test_limits_out_of_reach(instance, capsys):
    assert bulk(instance, "--slo-ttft", "0.001", "--slo-tpot", "0.001", "--format", "json") == 0
    shown = capsys.readouterr()
    assert json.loads(shown.out)["feasible"] is False
    assert "no schedule reaches the attainment" in shown.err


@pytest.mark.parametrize("option", ["--attainment", "--horizon", "--slo-ttft", "--windows"])
def test_bulk_options_beside_another_objective(instance, option, capsys):
    assert run(["bound", instance, option, "1"]) == 2
    assert "--objective bulk" in capsys.readouterr().err
