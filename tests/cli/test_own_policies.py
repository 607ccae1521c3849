"""Policies named module:Class or by a path: found, blamed for their own errors, allowed."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys

import pytest

import orsched
from orsched.cli.commands import run
from orsched.common.errors import InputError
from orsched.common.own_code import at_path, class_of, is_own, module_at, path_in
from orsched.planning.study import read_study
from orsched.planning.study import run as run_study
from orsched.runner.vllm_outlet import make_order
from orsched.solving.method_choice import read_spec

SOURCE = """
from orsched import Policy, decode_rounds, prefill_stage

class Mine(Policy):
    name = "mine"

    def __init__(self, stop_at=-1, kind="KeyError"):
        self.queue, self.stop_at, self.kind = [], stop_at, kind

    def on_arrival(self, view, request):
        self.queue.append(request)

    def decide(self, view):
        if len(self.queue) == self.stop_at:
            raise {"KeyError": KeyError, "OSError": OSError}[self.kind]("mine alone")
        if self.queue and view.free_clients:
            return prefill_stage([self.queue.pop(0)])
        return decode_rounds()

class Silent(Mine):
    def decide(self, view):
        return None

SOME = 3

class Broken(Mine):
    def __init__(self):
        raise RuntimeError("not today")

class Leaves(Mine):
    def decide(self, view):
        raise SystemExit(0)

class Deaf(Mine):
    def on_finish(self, view, request):
        pass

class Undecided(Mine):
    decide = None

class Knowing(Mine):
    information = "everything"

class Talks(Mine):
    def decide(self, view):
        print("I decide")
        return super().decide(view)
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path.copy())
    (tmp_path / "my_own_policy.py").write_text(SOURCE)
    (tmp_path / "no_syntax.py").write_text("def x(:\n")
    (tmp_path / "fails.py").write_text("1 / 0\n")
    (tmp_path / "leaves.py").write_text("raise SystemExit(0)\n")
    (tmp_path / "no_text.py").write_bytes(b"x = 1\0")
    (tmp_path / "lacks.py").write_text("import json\nimport nowhere_at_all\n")
    (tmp_path / "a_folder.py").mkdir()
    (tmp_path / "failing_package").mkdir()
    (tmp_path / "failing_package" / "__init__.py").write_text("1 / 0\n")
    (tmp_path / "failing_package" / "inner.py").write_text("")
    yield tmp_path
    for name in ("my_own_policy", "no_syntax", "fails", "leaves", "no_text", "failing_package"):
        sys.modules.pop(name, None)


def test_a_policy_in_the_working_folder_is_found_by_the_script(folder):
    script = "import sys; sys.path.remove(''); from orsched.cli import main; main()"
    arguments = ("simulate", "two-by-two", "--policy", "my_own_policy:Mine", "-o", "s.json")
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments], cwd=folder, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "mine" in done.stdout
    assert (folder / "s.json").exists()


@pytest.mark.parametrize("kind", ["KeyError", "OSError"])
def test_its_errors_are_shown_as_its_own(folder, capsys, kind):
    arguments = ("--param", "stop_at=1", "--param", f"kind={kind}")
    assert run(["simulate", "two-by-two", "--policy", "my_own_policy:Mine", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert 'my_own_policy.py", line 15, in decide' in err
    assert f"raised {kind}: " in err.splitlines()[-1]
    assert "mine alone" in err
    assert "simulator.py" not in err


@pytest.mark.parametrize(
    ("target", "named"),
    [
        ("my_own_policy:Silent", "policy mine"),
        ("my_own_policy:Broken", "raised RuntimeError: not today"),
        ("my_own_policy:Absent", "no attribute 'Absent'"),
        ("no_syntax:Mine", "raised SyntaxError"),
        ("fails:Mine", "raised ZeroDivisionError"),
        ("nowhere_at_all:Mine", "No module named"),
        (":", "cannot load"),
        ("my_own_policy:Leaves", "raised SystemExit: 0"),
        ("my_own_policy:Deaf", "def on_finish(self, view, request, client)"),
        ("my_own_policy:Undecided", "def decide(self, view)"),
        ("my_own_policy:Knowing", "'everything'"),
        ("leaves:Mine", "raised SystemExit: 0"),
        ("no_text:Mine", "raised SyntaxError"),
        ("failing_package.inner:Mine", "raised ZeroDivisionError"),
        ("./my_own_policy.py:mine", "did you mean Mine?"),
        ("my_own_policy.py:", "no class is named (it has: Mine, Silent"),
        ("./my_own_polcy.py:Mine", "no such file (did you mean ./my_own_policy.py?)"),
        ("failing_package.py:Mine", "no such file"),
        ("a_folder.py:Mine", "is a folder, no Python file"),
        ("my_own_policy.py:SOME", "is not a subclass of Policy"),
        ("no_syntax.py:Mine", "no_syntax.py, row 1, field 'policy': is not valid Python: "),
        ("fails.py:Mine", "raised ZeroDivisionError"),
        ("lacks.py:Mine", "lacks.py, row 2, field 'policy': cannot be imported: No module named"),
        ("no_text.py:Mine", "no_text.py, field 'policy': is not valid Python: "),
        ("my_own_policy.py:Broken", "raised RuntimeError: not today"),
    ],
)
@pytest.mark.parametrize("workers", ["1", "2"])
def test_every_failure_ends_in_a_message(folder, capsys, target, named, workers):
    assert run(["simulate", "two-by-two", "--workers", workers, "--policy", target]) == 2
    assert named in capsys.readouterr().err.splitlines()[-1]


def test_compare_refuses_what_cannot_be_loaded_before_anything_runs(folder, monkeypatch, capsys):
    monkeypatch.setattr("orsched.solving.solver.solve", None)
    for target in ("no_syntax:Mine", "no_syntax.py:Mine", "fails.py:Mine", "my_own_policy:mine"):
        assert run(["compare", "two-by-two", "--methods", f"my_own_policy:Mine,{target}"]) == 2
        last = capsys.readouterr().err.splitlines()[-1]
        assert target.partition(":")[0] in last


def test_what_a_policy_prints_is_no_result(folder, capsys):
    code = run(["simulate", "two-by-two", "--policy", "my_own_policy:Talks", "--format", "json"])
    out, err = capsys.readouterr()
    assert code == 0
    assert json.loads(out)["method"] == "mine"
    assert "I decide" in err


def test_a_bug_of_the_library_is_not_blamed_on_the_policy(folder, monkeypatch, capsys):
    monkeypatch.setattr(
        "orsched.solving.checked_run.summarise", len
    )  # called with too many arguments
    assert run(["simulate", "two-by-two", "--policy", "my_own_policy:Mine"]) == 70
    err = capsys.readouterr().err
    assert "a bug in orsched" in err
    assert "my_own_policy" not in err


def test_a_hook_that_is_set_on_an_object_is_not_called():
    """As the page on own policies says."""
    import orsched
    from orsched.heuristics.pang import FirstComeFirstServed

    class Listening(FirstComeFirstServed):
        def on_finish(self, view, request, client):
            heard.append(request)

    heard = []
    policy = FirstComeFirstServed()
    policy.on_finish = lambda view, request, client: heard.append(request)
    orsched.simulate(orsched.load("two-by-two"), policy)
    assert heard == []
    orsched.simulate(orsched.load("two-by-two"), Listening())
    assert sorted(heard) == list(range(len(orsched.load("two-by-two"))))


OWN_FILES_SOURCE = """
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
def folder_of_own_files(tmp_path, monkeypatch):
    here = tmp_path / "here"
    monkeypatch.setattr(sys, "path", sys.path.copy())
    for name in ("one", "two + 2@home"):
        (here / name).mkdir(parents=True)
        (here / name / "json.py").write_text(OWN_FILES_SOURCE.replace("NAME", name))
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


def test_a_path_keeps_its_signs_and_the_class_its_parameters(folder_of_own_files):
    spec = read_spec("two + 2@home/json.py:Mine+most=2")
    assert (spec.name, spec.parameters) == ("two + 2@home/json.py:Mine", {"most": 2})
    assert spec.information is None


def test_files_of_one_name_are_two_modules_and_hide_none(folder_of_own_files):
    first, second = (
        class_of(f"{name}/json.py:Mine", orsched.Policy) for name in ("one", "two + 2@home")
    )
    assert (first.name, second.name) == ("one", "two + 2@home")
    assert sys.modules["json"] is json
    assert first is class_of(str(folder_of_own_files / "one" / "json.py") + ":Mine", orsched.Policy)
    assert not list((folder_of_own_files / "one").glob("__pycache__"))
    made = module_at("one/json.py").Noted(3)
    assert pickle.loads(pickle.dumps(made)) == made


def test_a_file_that_changed_is_loaded_again(folder_of_own_files):
    file = folder_of_own_files / "one" / "json.py"
    before = class_of("one/json.py:Mine", orsched.Policy)
    file.write_text(
        OWN_FILES_SOURCE.replace("NAME", "two")
    )  # the same size, within the same second
    assert class_of("one/json.py:Mine", orsched.Policy).name == "two"
    file.write_text("1 / 0")
    with pytest.raises(ZeroDivisionError):
        module_at("one/json.py")
    file.write_text(OWN_FILES_SOURCE.replace("NAME", "one"))
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
def test_every_command_takes_a_path(folder_of_own_files, capsys, command, place):
    target = place or str(folder_of_own_files / "one" / "json.py")
    assert run([*command, f"{target}:Mine"]) == 0, capsys.readouterr().err
    assert run([*command, f"{target}:Min"]) == 2
    assert "did you mean Mine?" in capsys.readouterr().err.splitlines()[-1]


STUDY = 'instances = ["two-by-two"]\npolicies = ["fcfs", "one/json.py:Mine"]\n'


def test_a_study_takes_paths_from_its_file_and_with_consent(
    folder_of_own_files, tmp_path, monkeypatch, capsys, done, refused
):
    (folder_of_own_files / "s.toml").write_text(STUDY)
    monkeypatch.chdir(tmp_path)
    err = refused(
        "here/s.toml, field 'policies.name': the file names code to run",
        "study here/s.toml --jobs 2",
    )
    assert f"{folder_of_own_files / 'one' / 'json.py'})" in err
    rows = json.loads(done("study here/s.toml --jobs 2 --allow-code --format json"))
    assert [row["policy"] for row in rows] == ["fcfs", "one/json.py:Mine"]
    assert run(["study", "here/s.toml", "--jobs", "2", "--allow-code"]) == 0
    assert "(0 run now, 2 before)" in capsys.readouterr().err
    source = folder_of_own_files / "one" / "json.py"
    source.write_text(source.read_text() + "# changed\n")
    assert run(["study", "here/s.toml", "--jobs", "2", "--allow-code"]) == 0
    assert "(1 run now, 1 before)" in capsys.readouterr().err


def test_a_study_in_python_takes_paths(folder_of_own_files, tmp_path):
    study = read_study({"instances": ["two-by-two"], "policies": ["one/json.py:Mine"]})
    done = run_study(study, tmp_path / "out", jobs=1)
    assert (done.failed, done.rows[0]["policy"]) == ([], "one/json.py:Mine")


def test_a_study_names_a_lost_file(folder_of_own_files):
    with pytest.raises(InputError, match=r"one/jsn.py, field 'policies.name': no such file"):
        read_study({"instances": ["two-by-two"], "policies": ["one/jsn.py:Mine"]})


def test_a_configuration_takes_a_path_from_its_file_and_with_consent(
    folder_of_own_files, tmp_path, monkeypatch, done, refused
):
    (folder_of_own_files / "c.toml").write_text('[policy]\nname = "one/json.py:Mine"\n')
    monkeypatch.chdir(tmp_path)
    command = ["simulate", "two-by-two", "--config", "here/c.toml"]
    refused("the file names code to run", *command)
    assert "one" in done(*command, "--allow-code")


MINE = """
import pathlib
pathlib.Path("imported").touch()
from orsched.heuristics.pang import FirstComeFirstServed
class Mine(FirstComeFirstServed):
    name = "mine"
"""
CODE_FROM_DATA_STUDY = """
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
def folder_of_code_from_data(tmp_path, monkeypatch):
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
def command(folder_of_code_from_data, capsys):
    """Write a study or a configuration, run it, and return exit code and stderr."""

    def invoke(kind, name, *options, parameters=""):
        text = CODE_FROM_DATA_STUDY if kind == "study" else CONFIG
        text = text.replace("NAME", name).replace("PARAMETERS", parameters)
        (folder_of_code_from_data / "f.toml").write_text(text)
        code = run([*COMMANDS[kind], *options])
        return code, capsys.readouterr().err

    return invoke


@pytest.mark.parametrize("kind", COMMANDS)
@pytest.mark.parametrize("options", [[], ["--allow-code"]])
def test_what_is_no_policy_is_not_called(command, folder_of_code_from_data, kind, options):
    parameters = 'args = [["touch", "PWNED"]]'
    code, err = command(kind, "subprocess:Popen", *options, parameters=parameters)
    assert code == (4 if options and kind == "study" else 2)
    assert ("'subprocess:Popen' is not a subclass of Policy" if options else "subprocess.py") in err
    assert not (folder_of_code_from_data / "PWNED").exists()


@pytest.mark.parametrize("target", ["subprocess:Popen", "os:system", "os:getcwd", "sys:path"])
def test_nor_where_python_names_it(folder_of_code_from_data, target):
    with pytest.raises(InputError, match="is not a subclass of Policy"):
        orsched.simulate(orsched.load("two-by-two"), target, parameters={})
    with pytest.raises(InputError, match="is not a subclass of Order"):
        make_order({"order": target})


@pytest.mark.parametrize("kind", COMMANDS)
@pytest.mark.parametrize("module", ["my_named_policy", "my_package", "my_package.inner"])
def test_code_that_a_file_names_waits_for_consent(command, folder_of_code_from_data, kind, module):
    code, err = command(kind, f"{module}:Mine")
    assert code == 2
    place = os.path.join(folder_of_code_from_data, *module.split("."))
    place = os.path.join(place, "__init__.py") if module == "my_package" else f"{place}.py"
    assert "f.toml, field 'polic" in err
    assert f"names code to run: {module}:Mine ({place})" in err
    assert "--allow-code" in err
    assert not (folder_of_code_from_data / "imported").exists()
    assert command(kind, f"{module}:Mine", "--allow-code")[0] == 0
    assert (folder_of_code_from_data / "imported").exists()


@pytest.mark.parametrize("module", ["my_named_policy", "my_package.inner"])
def test_a_list_of_cells_imports_nothing(command, folder_of_code_from_data, module):
    assert command("study", f"{module}:Mine", "--list")[0] == 0
    assert not (folder_of_code_from_data / "imported").exists()


def test_a_name_on_the_command_line_is_consent(folder_of_code_from_data):
    assert run(["simulate", "two-by-two", "--policy", "my_named_policy:Mine"]) == 0


def test_in_python_a_file_needs_consent_and_a_mapping_does_not(
    folder_of_code_from_data, monkeypatch
):
    monkeypatch.syspath_prepend(str(folder_of_code_from_data))
    (folder_of_code_from_data / "f.toml").write_text(
        CODE_FROM_DATA_STUDY.replace("NAME", "my_named_policy:Mine").replace("PARAMETERS", "")
    )
    for source in ("f.toml", read_study("f.toml")):
        with pytest.raises(InputError, match="allow_code=True") as caught:
            run_study(source, "out")
        assert (caught.value.file, caught.value.field) == ("f.toml", "policies.name")
        assert not (folder_of_code_from_data / "imported").exists()
    done = run_study("f.toml", "out", jobs=1, allow_code=True)
    given = {"instances": ["two-by-two"], "policies": ["my_named_policy:Mine"]}
    assert [row["status"] for row in done.rows + run_study(given, "other", jobs=1).rows] == [
        "ok",
        "ok",
    ]
