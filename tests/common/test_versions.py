"""``versions`` and ``show_versions``."""

import tomllib

import orsched
from orsched.common.versions import PACKAGES, show_versions, versions

EXTRAS = ("fast", "parquet", "excel", "predict", "runner", "ray")


def test_versions_names_orsched_and_every_dependency(repo_root):
    project = tomllib.loads((repo_root / "pyproject.toml").read_text())["project"]
    found = versions()
    assert found["orsched"] == orsched.__version__
    for requirement in project["dependencies"]:
        name = requirement.split(">")[0]
        assert name in PACKAGES
        assert found[name] is not None
    extras = project["optional-dependencies"]
    for requirement in (each for name in EXTRAS for each in extras[name]):
        assert requirement.split(">")[0] in found


def test_show_versions_prints_one_line_each_and_says_what_is_missing(capsys, monkeypatch):
    monkeypatch.setattr("orsched.common.versions.PACKAGES", ("numpy", "no-such-package"))
    show_versions()
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 5
    assert lines[0].split() == ["orsched", orsched.__version__]
    assert lines[-1] == "no-such-package  not installed"
