"""The examples run as they stand, from any folder, and print what they promise."""

import importlib.util
import json
import re
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

import orsched
from orsched.cli.commands import run as main
from orsched.planning.study import read_study

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def run(name, folder, *arguments):
    """Run a script of the examples in a folder, and return what it printed."""
    command = [sys.executable, str(EXAMPLES / name), *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_example_is_run_here_and_listed():
    scripts = {path.name for suffix in ("py", "ipynb") for path in EXAMPLES.glob(f"*.{suffix}")}
    tested = set(re.findall(r'"(\w+\.(?:py|ipynb))"', Path(__file__).read_text()))
    assert scripts == tested
    listed = set(re.findall(r"`(\w+\.(?:py|ipynb))`", (EXAMPLES / "README.md").read_text()))
    assert scripts == listed


def test_the_data_are_what_the_script_makes(tmp_path):
    script = tmp_path / "make_data.py"
    script.write_bytes((EXAMPLES / "make_data.py").read_bytes())
    subprocess.run([sys.executable, str(script)], check=True)
    for path in (tmp_path / "data").iterdir():
        assert path.read_bytes() == (EXAMPLES / "data" / path.name).read_bytes(), path.name
    assert len((EXAMPLES / "data" / "requests.csv").read_text().splitlines()) == 501


def test_conversations_in_flight_are_simulated_and_saved(tmp_path):
    printed = run("conversations.py", tmp_path)
    assert printed.count("in flight") == 6
    spans = re.findall(r"([0-9.]+) s \(at least ([0-9.]+) s\)", printed)
    assert all(1 <= float(took) / float(least) < 1.12 for took, least in spans)
    case = orsched.load(tmp_path / "example-out" / "chats.json")
    assert case.arrivals_follow
    assert case.conversations == 200


def test_the_verifier_needs_no_orsched(tmp_path):
    case = orsched.load("gsm8k-llama65b")
    orsched.save_instance(case, tmp_path / "case.json")
    orsched.save_schedule(orsched.solve(case, "fcfs"), tmp_path / "plan.json")
    printed = run("verify_schedule.py", tmp_path, "case.json", "plan.json")
    assert (
        printed
        == f"valid, makespan {orsched.load_schedule(tmp_path / 'plan.json').makespan_ns} ns\n"
    )


def by_command(name, folder, monkeypatch, capsys):
    """Run the commands in the head of a script, and return the words that they print."""
    (folder / "examples").symlink_to(EXAMPLES)
    monkeypatch.chdir(folder)
    head = (EXAMPLES / name).read_text().split('"""')[1].replace("\\\\\n", "")
    commands = [line.split() for line in head.splitlines() if line.startswith("    orsched ")]
    assert commands
    for command in commands:
        assert main(command[1:]) == 0, command
    return capsys.readouterr().out.split()


@pytest.mark.full
def test_own_trace(tmp_path, monkeypatch, capsys):
    printed = run("own_trace.py", tmp_path)
    rows = {words[0]: words for words in map(str.split, printed.splitlines()[1:4])}
    assert set(rows) == {"fcfs", "vllm", "gittins"}
    best = max(rows.values(), key=lambda words: float(words[1]))[0]
    assert f"{best} keeps the limits" in printed
    assert (tmp_path / "example-out" / "own_trace.html").stat().st_size > 10_000
    words = by_command("own_trace.py", tmp_path, monkeypatch, capsys)
    assert all(f"{100 * float(row[1]):.2f}" in words for row in rows.values())
    assert (tmp_path / "report.html").is_file()


def test_own_policy(tmp_path, monkeypatch, capsys):
    printed = run("own_policy.py", tmp_path)
    assert printed.count("shortest-prompt-first") == 2
    assert printed.count("True") == 3
    words = by_command("own_policy.py", tmp_path, monkeypatch, capsys)
    rows = [line.split() for line in printed.splitlines()[1:3]]
    assert all(f"{100 * float(row[1]):.2f}" in words for row in rows)


def test_own_machine(tmp_path, monkeypatch, capsys):
    printed = run("own_machine.py", tmp_path)
    error = float(re.search(r"^affine +([\d.]+)%", printed, re.M)[1])
    assert error < 3
    cost = json.loads((tmp_path / "example-out" / "mine.json").read_text())
    assert cost["model"] == "affine"
    by_command("own_machine.py", tmp_path, monkeypatch, capsys)
    again = json.loads((tmp_path / "mine.json").read_text())
    assert (again["model"], again["prefill_token_ns"]) == ("affine", cost["prefill_token_ns"])


def test_the_study_of_the_examples_is_one():
    """It takes some seconds to run, as the full runs do."""
    assert len(read_study(EXAMPLES / "workers.toml").cells()) > 10


@pytest.mark.full
def test_study_with_plots(tmp_path, monkeypatch, capsys):
    printed = run("study_with_plots.py", tmp_path)
    assert "3 workers" in printed
    assert "enough" in printed
    plots = sorted((tmp_path / "example-out" / "study" / "plots").iterdir())
    assert len(plots) == 2
    again = run("study_with_plots.py", tmp_path)
    assert again == printed
    words = by_command("study_with_plots.py", tmp_path, monkeypatch, capsys)
    p99s = re.findall(r"TTFT p99 +([\d.]+) s", printed)
    assert len(p99s) == 6
    assert set(p99s) <= set(words)


def test_own_engine(tmp_path, monkeypatch, capsys):
    assert run("own_engine.py", tmp_path) == "4 steps on formula, valid: True\n"
    assert "formula" in by_command("own_engine.py", tmp_path, monkeypatch, capsys)


def test_plan_and_run(tmp_path):
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    printed = run("plan_and_run.py", tmp_path)
    assert re.search(r"measured: [\d.]+ s, [+-][\d.]+% of the plan", printed)
    assert (tmp_path / "example-out" / "plan_and_run.html").is_file()


def test_the_notebook(tmp_path):
    text = (EXAMPLES / "bound_as_proof.ipynb").read_text()
    assert all(not cell.get("outputs") for cell in json.loads(text)["cells"])
    if importlib.util.find_spec("nbclient") is None:
        run_in_order(text)
        return
    printed, shown = run_in_kernel(text, tmp_path)
    assert "violations: []" in printed
    assert "re-derived" in printed
    assert re.search(r"<b>windows</b> .* gap 0\.\d\d %, done", str(shown))
    assert sum("image/png" in each for each in shown) == 2


def run_in_order(text):
    """Execute the code cells of a notebook one after the other, in this process."""
    pytest.importorskip("matplotlib").use("agg")
    names = {"__name__": "notebook"}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "FigureCanvasAgg is non-interactive")
        for cell in json.loads(text)["cells"]:
            if cell["cell_type"] == "code":
                source = "".join(cell["source"]).replace("%matplotlib inline", "")
                exec(compile(source, "notebook", "exec"), names)
    assert names["result"].gap < 0.007
    assert len(names["result"].to_pandas()) == 100


def run_in_kernel(text, folder):
    """Execute a notebook as Jupyter does, and return what it printed and what it displayed."""
    import nbclient
    import nbformat

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        notebook = nbformat.reads(text, as_version=4)
        resources = {"metadata": {"path": str(folder)}}
        nbclient.NotebookClient(notebook, timeout=120, resources=resources).execute()
    outputs = [out for cell in notebook.cells for out in cell.get("outputs", [])]
    printed = "".join(out.get("text", "") for out in outputs)
    return printed, [out["data"] for out in outputs if "data" in out]


@pytest.mark.full
def test_the_notebook_without_a_kernel():
    run_in_order((EXAMPLES / "bound_as_proof.ipynb").read_text())


def test_a_script_of_the_examples_is_found_by_its_path():
    spec = importlib.util.spec_from_file_location("own_policy", EXAMPLES / "own_policy.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.ShortestPromptFirst.name == "shortest-prompt-first"
