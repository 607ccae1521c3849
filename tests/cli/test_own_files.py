"""path/to/own.py:Class wherever module:Class stands; the file alone is loaded."""

from __future__ import annotations

import json
import pickle
import sys

import pytest

import orsched
from orsched.cli.commands import run
from orsched.common.errors import InputError
from orsched.common.own_code import at_path, class_of, is_own, module_at, path_in
from orsched.planning.study import read_study
from orsched.planning.study import run as run_study
from orsched.solving.method_choice import read_spec

SOURCE = """
from dataclasses import dataclass
from orsched import Policy, decode_rounds, prefill_stage

@dataclass
class Noted:
    number: int = 0

class Mine(Policy):
    name = "NAME"

    def __init__(self, most=1):
        self.queue, self.most = [], most

    def on_arrival(self, view, request):
        self.queue.append(request)

    def decide(self, view):
        if self.queue and view.free_clients:
            return prefill_stage([self.queue.pop(0)])
        return decode_rounds() if view.running else None
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    here = tmp_path / "here"
    monkeypatch.setattr(sys, "path", sys.path.copy())
    for name in ("one", "two + 2@home"):
        (here / name).mkdir(parents=True)
        (here / name / "json.py").write_text(SOURCE.replace("NAME", name))
    monkeypatch.chdir(here)
    before = dict(sys.modules)
    yield here
    for name in set(sys.modules) - set(before):
        if name.startswith("_orsched_file_"):
            del sys.modules[name]


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("own.py:Mine", "own.py"),
        ("../a/own.py:Mine+most=2", "../a/own.py"),
        ("C:\\a\\own.py:Mine", "C:\\a\\own.py"),
        ("own:Mine", None),
        ("vllm", None),
        ("vllm+file=x.py:y", None),
        ("own.py", None),
    ],
)
def test_what_is_a_path(name, path):
    assert path_in(name) == path
    assert is_own(name) == (path is not None or name == "own:Mine")
    assert at_path(name, "/base").endswith(name if path is None else name[len(path) :])


def test_a_path_keeps_its_signs_and_the_class_its_parameters(folder):
    spec = read_spec("two + 2@home/json.py:Mine+most=2")
    assert (spec.name, spec.parameters) == ("two + 2@home/json.py:Mine", {"most": 2})
    assert spec.information is None


def test_files_of_one_name_are_two_modules_and_hide_none(folder):
    first, second = (
        class_of(f"{name}/json.py:Mine", orsched.Policy) for name in ("one", "two + 2@home")
    )
    assert (first.name, second.name) == ("one", "two + 2@home")
    assert sys.modules["json"] is json
    assert first is class_of(str(folder / "one" / "json.py") + ":Mine", orsched.Policy)
    assert not list((folder / "one").glob("__pycache__"))
    made = module_at("one/json.py").Noted(3)
    assert pickle.loads(pickle.dumps(made)) == made


def test_a_file_that_changed_is_loaded_again(folder):
    file = folder / "one" / "json.py"
    before = class_of("one/json.py:Mine", orsched.Policy)
    file.write_text(SOURCE.replace("NAME", "two"))  # the same size, within the same second
    assert class_of("one/json.py:Mine", orsched.Policy).name == "two"
    file.write_text("1 / 0")
    with pytest.raises(ZeroDivisionError):
        module_at("one/json.py")
    file.write_text(SOURCE.replace("NAME", "one"))
    after = class_of("one/json.py:Mine", orsched.Policy)
    assert (before.name, after.name) == ("one", "one")


@pytest.mark.parametrize(
    "command",
    [
        ("simulate", "two-by-two", "--policy"),
        ("solve", "two-by-two", "--method"),
        ("compare", "two-by-two", "--methods"),
        ("run", "two-by-two", "--worker", "virtual", "--policy"),
        ("capacity", "two-by-two", "--slo-ttft", "5", "--policy"),
    ],
)
@pytest.mark.parametrize("place", ["one/json.py", "two + 2@home/json.py", None])
def test_every_command_takes_a_path(folder, capsys, command, place):
    target = place or str(folder / "one" / "json.py")
    assert run([*command, f"{target}:Mine"]) == 0, capsys.readouterr().err
    assert run([*command, f"{target}:Min"]) == 2
    assert "did you mean Mine?" in capsys.readouterr().err.splitlines()[-1]


STUDY = 'instances = ["two-by-two"]\npolicies = ["fcfs", "one/json.py:Mine"]\n'


def test_a_study_takes_paths_from_its_file_and_with_consent(folder, tmp_path, monkeypatch, capsys):
    (folder / "s.toml").write_text(STUDY)
    monkeypatch.chdir(tmp_path)
    assert run(["study", "here/s.toml", "--jobs", "2"]) == 2
    err = capsys.readouterr().err
    assert "here/s.toml, field 'policies.name': the file names code to run" in err
    assert f"{folder / 'one' / 'json.py'})" in err
    assert run(["study", "here/s.toml", "--jobs", "2", "--allow-code", "--format", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["policy"] for row in rows] == ["fcfs", "one/json.py:Mine"]
    assert run(["study", "here/s.toml", "--jobs", "2", "--allow-code"]) == 0
    assert "(0 run now, 2 before)" in capsys.readouterr().err
    source = folder / "one" / "json.py"
    source.write_text(source.read_text() + "# changed\n")
    assert run(["study", "here/s.toml", "--jobs", "2", "--allow-code"]) == 0
    assert "(1 run now, 1 before)" in capsys.readouterr().err


def test_a_study_in_python_takes_paths(folder, tmp_path):
    study = read_study({"instances": ["two-by-two"], "policies": ["one/json.py:Mine"]})
    done = run_study(study, tmp_path / "out", jobs=1)
    assert (done.failed, done.rows[0]["policy"]) == ([], "one/json.py:Mine")


def test_a_study_names_a_lost_file(folder):
    with pytest.raises(InputError, match=r"one/jsn.py, field 'policies.name': no such file"):
        read_study({"instances": ["two-by-two"], "policies": ["one/jsn.py:Mine"]})


def test_a_configuration_takes_a_path_from_its_file_and_with_consent(
    folder, tmp_path, monkeypatch, capsys
):
    (folder / "c.toml").write_text('[policy]\nname = "one/json.py:Mine"\n')
    monkeypatch.chdir(tmp_path)
    command = ["simulate", "two-by-two", "--config", "here/c.toml"]
    assert run(command) == 2
    assert "the file names code to run" in capsys.readouterr().err
    assert run([*command, "--allow-code"]) == 0
    assert "one" in capsys.readouterr().out
