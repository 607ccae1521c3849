"""A name in a file runs nothing that is no policy, and no policy without consent."""

from __future__ import annotations

import os
import sys

import pytest

import orsched
from orsched.cli.commands import run
from orsched.common.errors import InputError
from orsched.planning.study import read_study
from orsched.planning.study import run as run_study
from orsched.runner.vllm_outlet import make_order

MINE = """
import pathlib
pathlib.Path("imported").touch()
from orsched.heuristics.pang import FirstComeFirstServed
class Mine(FirstComeFirstServed):
    name = "mine"
"""
STUDY = """
instances = ["two-by-two"]
policies = [{name = "NAME", parameters = {PARAMETERS}}]
"""
CONFIG = """
[policy]
name = "NAME"
parameters = {PARAMETERS}
"""
COMMANDS = {
    "study": ["study", "f.toml", "--jobs", "1"],
    "simulate": ["simulate", "two-by-two", "--config", "f.toml"],
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path.copy())
    (tmp_path / "my_named_policy.py").write_text(MINE)
    (tmp_path / "my_package").mkdir()
    (tmp_path / "my_package" / "__init__.py").write_text(MINE)
    (tmp_path / "my_package" / "inner.py").write_text(MINE)
    yield tmp_path
    for name in ("my_named_policy", "my_package", "my_package.inner"):
        sys.modules.pop(name, None)


@pytest.fixture
def command(folder, capsys):
    """Write a study or a configuration, run it, and return exit code and stderr."""

    def invoke(kind, name, *options, parameters=""):
        text = STUDY if kind == "study" else CONFIG
        text = text.replace("NAME", name).replace("PARAMETERS", parameters)
        (folder / "f.toml").write_text(text)
        code = run([*COMMANDS[kind], *options])
        return code, capsys.readouterr().err

    return invoke


@pytest.mark.parametrize("kind", COMMANDS)
@pytest.mark.parametrize("options", [[], ["--allow-code"]])
def test_what_is_no_policy_is_not_called(command, folder, kind, options):
    parameters = 'args = [["touch", "PWNED"]]'
    code, err = command(kind, "subprocess:Popen", *options, parameters=parameters)
    assert code == (4 if options and kind == "study" else 2)
    assert ("'subprocess:Popen' is not a subclass of Policy" if options else "subprocess.py") in err
    assert not (folder / "PWNED").exists()


@pytest.mark.parametrize("target", ["subprocess:Popen", "os:system", "os:getcwd", "sys:path"])
def test_nor_where_python_names_it(folder, target):
    with pytest.raises(InputError, match="is not a subclass of Policy"):
        orsched.simulate(orsched.load("two-by-two"), target, parameters={})
    with pytest.raises(InputError, match="is not a subclass of Order"):
        make_order({"order": target})


@pytest.mark.parametrize("kind", COMMANDS)
@pytest.mark.parametrize("module", ["my_named_policy", "my_package", "my_package.inner"])
def test_code_that_a_file_names_waits_for_consent(command, folder, kind, module):
    code, err = command(kind, f"{module}:Mine")
    assert code == 2
    place = os.path.join(folder, *module.split("."))
    place = os.path.join(place, "__init__.py") if module == "my_package" else f"{place}.py"
    assert "f.toml, field 'polic" in err
    assert f"names code to run: {module}:Mine ({place})" in err
    assert "--allow-code" in err
    assert not (folder / "imported").exists()
    assert command(kind, f"{module}:Mine", "--allow-code")[0] == 0
    assert (folder / "imported").exists()


@pytest.mark.parametrize("module", ["my_named_policy", "my_package.inner"])
def test_a_list_of_cells_imports_nothing(command, folder, module):
    assert command("study", f"{module}:Mine", "--list")[0] == 0
    assert not (folder / "imported").exists()


def test_a_name_on_the_command_line_is_consent(folder):
    assert run(["simulate", "two-by-two", "--policy", "my_named_policy:Mine"]) == 0


def test_in_python_a_file_needs_consent_and_a_mapping_does_not(folder, monkeypatch):
    monkeypatch.syspath_prepend(str(folder))
    (folder / "f.toml").write_text(
        STUDY.replace("NAME", "my_named_policy:Mine").replace("PARAMETERS", "")
    )
    for source in ("f.toml", read_study("f.toml")):
        with pytest.raises(InputError, match="allow_code=True") as caught:
            run_study(source, "out")
        assert (caught.value.file, caught.value.field) == ("f.toml", "policies.name")
        assert not (folder / "imported").exists()
    done = run_study("f.toml", "out", jobs=1, allow_code=True)
    given = {"instances": ["two-by-two"], "policies": ["my_named_policy:Mine"]}
    assert [row["status"] for row in done.rows + run_study(given, "other", jobs=1).rows] == [
        "ok",
        "ok",
    ]
