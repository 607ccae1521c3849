"""Policies named module:Class: found in the working folder, blamed for their own errors."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from orsched.cli.commands import run

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
