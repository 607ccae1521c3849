"""What a worker's machine may lack: the runner executes a schedule file without it."""

from __future__ import annotations

import subprocess
import sys

import pytest

import orsched
from orsched.files import save_instance, save_schedule
from tests.blocking import run_without

BLOCKED = (
    "pyscipopt", "ortools", "pydantic", "plotly", "ray", "jsonschema", "click", "matplotlib",
    "pandas",
)  # fmt: skip

PROGRAM = """
import orsched.runner
from orsched.files import load_instance, load_schedule, save_schedule
from orsched.runner import RunSettings, plan_against_run, run

for name in orsched.runner.__all__:
    getattr(orsched.runner, name)
instance, plan = load_instance("instance.json"), load_schedule("plan.json")
done = run(instance, plan, RunSettings({worker!r}, threads=1))
assert done.violations == [], done.violations
found = plan_against_run(instance, done.plan, done.trace)
assert found.followed == len(found.stages.worker)
assert done.trace.bound == plan.bound or {worker!r} == "torch"
save_schedule(done.trace, "run.json")
assert load_schedule("run.json").work == plan.work
print(sorted(name for name in BLOCKED if name in sys.modules))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("plan")
    instance = orsched.load("pang-100x20")
    small = instance.replace(requests=instance.requests.take(range(30)))
    save_instance(small, path / "instance.json")
    plan = orsched.solve(small, "hybrid", iterations=2).schedule
    save_schedule(plan, path / "plan.json")
    return path


def execute(folder, worker):
    return run_without(BLOCKED, PROGRAM.format(worker=worker), folder)


def test_a_schedule_file_is_executed_by_a_virtual_worker(folder):
    found = execute(folder, "virtual")
    assert found.returncode == 0, found.stderr
    assert found.stdout.strip() == "[]"


def test_a_schedule_file_is_executed_on_torch(folder):
    pytest.importorskip("torch")
    found = execute(folder, "torch")
    assert found.returncode == 0, found.stderr


def test_import_alone_loads_neither_torch_nor_transformers():
    program = "import sys, orsched.runner; print({'torch', 'transformers'} & set(sys.modules))"
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == "set()"
