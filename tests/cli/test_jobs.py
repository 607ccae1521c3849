"""The jobs that bring people here: each in at most three commands, or ten lines of Python."""

from __future__ import annotations

import csv
import io
import json
import shlex
import sys

import numpy as np
import pytest

import orsched
from orsched.cli.commands import run

OWN = '''
import orsched

class ShortestPromptFirst(orsched.Policy):
    """Prefill the shortest prompt that waits, decode where none does."""

    name = "shortest_prompt"

    def start(self, view):
        self.waiting = []

    def on_arrival(self, view, request):
        self.waiting.append(request)

    def decide(self, view):
        if self.waiting and view.free_clients:
            first = min(self.waiting, key=view.prompt_tokens.__getitem__)
            self.waiting.remove(first)
            return orsched.prefill_stage([first])
        return orsched.decode_rounds() if view.running else None
'''
COST = {
    "format": "orsched/cost", "version": 1, "model": "affine", "prefill_fixed_ns": 12_000_000,
    "prefill_token_ns": 60_000, "round_fixed_ns": 13_000_000, "round_client_ns": 45_000,
}  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Return a folder with what people bring: requests, a trace, a policy, measurements."""
    folder, rng = tmp_path_factory.mktemp("jobs"), np.random.default_rng(17)
    prompts, outputs = rng.integers(20, 900, 500), rng.integers(5, 120, 500)
    arrivals = np.sort(rng.uniform(0, 60, 500))
    with (folder / "mine.csv").open("w") as out:
        print("prompt_tokens,output_tokens,arrival_s", file=out)
        for row in zip(prompts, outputs, arrivals, strict=True):
            print("{},{},{:.6f}".format(*row), file=out)
    with (folder / "azure.csv").open("w") as out:
        print("TIMESTAMP,ContextTokens,GeneratedTokens", file=out)
        for prompt, output, at in zip(prompts, outputs, arrivals, strict=True):
            print(f"2023-11-16 18:15:{at:010.7f},{prompt},{output}", file=out)
    with (folder / "measured.csv").open("w") as out:
        print("phase,count,tokens,longest,duration_ns", file=out)
        for tokens in range(64, 2049, 64):
            print(f"prefill,1,{tokens},{tokens},{12_000_000 + 60_000 * tokens}", file=out)
        for count in range(1, 65):
            print(f"decode,{count},0,0,{13_000_000 + 45_000 * count}", file=out)
    (folder / "own.py").write_text(OWN)
    (folder / "cost.json").write_text(json.dumps(COST))
    return folder


@pytest.fixture
def do(made, capsys, monkeypatch):
    """Run a job's commands, at most three, in that folder; return the last stdout and stderr."""
    monkeypatch.chdir(made)
    monkeypatch.setattr(sys, "path", sys.path.copy())

    def all_of(*commands):
        assert len(commands) <= 3
        for command in commands:
            capsys.readouterr()
            words = shlex.split(command)
            assert words[0] == "orsched"
            code = run(words[1:])
            shown = capsys.readouterr()
            assert code == 0, shown.err
        return shown.out, shown.err

    return all_of


@pytest.fixture
def python(made, monkeypatch):
    """Run a job's lines of Python, at most ten, in that folder; return the names they leave."""
    monkeypatch.chdir(made)
    monkeypatch.setattr(sys, "path", [str(made), *sys.path])

    def lines(source):
        assert len([line for line in source.splitlines() if line.strip()]) <= 10
        names = {}
        exec(compile(source, "job", "exec"), names)
        return names

    yield lines
    sys.modules.pop("own", None)


def test_own_requests_to_a_comparison_and_a_report(do, made):
    out, err = do(
        "orsched compare mine.csv --clients 64 --cost cost.json --methods fcfs,vllm,gittins "
        "--predictions noise:sigma=0.3 --slo-ttft 2 --slo-tpot 0.02 --report report.html"
    )
    assert out.splitlines()[0].split()[:3] == ["method", "information", "SLO"]
    assert "\n* best attainment: " in out
    assert "500 requests" in err
    assert "fcfs" in (made / "report.html").read_text()


def test_the_fewest_workers_for_an_azure_trace(do):
    out, _ = do(
        "orsched capacity azure.csv --clients 8 --slo-ttft 2 --attainment 0.99 --format json"
    )
    found = json.loads(out)
    assert found["workers"] > 1
    out, _ = do(
        f"orsched simulate azure.csv --clients 8 --policy vllm --workers {found['workers']} "
        "--format json"
    )
    assert json.loads(out)["ttft_p99_s"] <= 2
    out, _ = do(
        f"orsched simulate azure.csv --clients 8 --policy vllm --workers {found['workers'] - 1} "
        "--format json"
    )
    assert json.loads(out)["ttft_p99_s"] > 2


def test_an_own_policy_against_fcfs_on_the_command_line(do):
    out, _ = do(
        "orsched compare mine.csv --clients 64 --cost cost.json "
        "--methods fcfs,own.py:ShortestPromptFirst --workers 2 --format json"
    )
    rows = {row["method"]: row for row in json.loads(out)}
    assert list(rows) == ["fcfs", "own.py:ShortestPromptFirst"]
    assert all(row["checked"] for row in rows.values())


def test_an_own_policy_against_fcfs_in_python(python):
    found = python("""
import orsched
from own import ShortestPromptFirst
mine = orsched.load("mine.csv", clients=64, cost="cost.json")
found = orsched.compare(mine, ["fcfs", ShortestPromptFirst, ShortestPromptFirst()], workers=2)
best = found.best("ttft_mean")
table = found.to_pandas()
""")
    assert list(found["table"].method) == ["fcfs", "shortest_prompt", "shortest_prompt (2)"]
    times = dict(zip(found["table"].method, found["table"].ttft_mean_s, strict=True))
    assert found["best"].ttft_mean_s == min(times.values())
    assert times["shortest_prompt"] == times["shortest_prompt (2)"]


def test_an_own_machine_from_a_file_of_measurements(do):
    out, err = do(
        "orsched calibrate --from measured.csv --cost-model affine -o machine.json",
        "orsched compare mine.csv --clients 64 --cost machine.json --methods vllm --format json",
    )
    (row,) = json.loads(out)
    same, _ = do(
        "orsched compare mine.csv --clients 64 --cost cost.json --methods vllm --format json"
    )
    assert row["makespan_s"] == pytest.approx(json.loads(same)[0]["makespan_s"], rel=0.01)
    assert "LLaMA-65B" not in err


def test_to_a_gap_of_one_per_cent_and_into_pandas(do, python):
    out, _ = do("orsched solve pang-100x20 --method windows --gap 0.01 --format csv")
    (row,) = csv.DictReader(io.StringIO(out))
    assert float(row["gap"]) <= 0.01
    found = python("""
import orsched
result = orsched.solve(orsched.load("pang-100x20"), "windows", gap=0.01)
table = result.to_pandas()
""")
    assert found["result"].gap <= 0.01
    assert len(found["table"]) == 100
    assert found["table"].jct_s.mean() == pytest.approx(found["result"].jct_mean_s)


def test_a_notebook_with_progress_and_pictures(monkeypatch):
    monkeypatch.delenv("MPLBACKEND", raising=False)  # of the tests, and not for the kernel
    nbformat = pytest.importorskip("nbformat")
    client = pytest.importorskip("nbclient")
    cells = (
        "import orsched\n"
        "result = orsched.solve(orsched.load('pang-100x20'), 'windows', gap=0.01, progress=True)\n"
        "result",
        "result.plot()",
        "orsched.compare(orsched.load('two-by-two'), ['fcfs', 'online'])",
    )
    assert sum(len(cell.splitlines()) for cell in cells) <= 10
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    client.NotebookClient(book, timeout=300).execute()
    kinds = [{kind for out in cell.outputs for kind in out.get("data", {})} for cell in book.cells]
    assert "text/html" in kinds[0]
    assert "image/png" in kinds[1]
    assert "text/html" in kinds[2]
    assert len(book.cells[0].outputs) == 2  # the progress, and the result


LIMITS = "--clients 64 --cost cost.json --methods fcfs,vllm,own.py:ShortestPromptFirst"


def says_the_best_and_whose_the_makespan_is(out, rows):
    best = max(rows, key=lambda row: row["slo_attainment"])
    assert (
        f"* best attainment: {best['method']} ({best['slo_attainment']:.2%}".replace("%", " %")
        in out
    )
    assert "the makespan is the last arrival's, at " in out


def test_a_comparison_under_limits_names_the_best_by_attainment(do):
    rows = json.loads(
        do(f"orsched compare azure.csv {LIMITS} --slo-ttft 0.1 --slo-tpot 0.015 --format json")[0]
    )
    out, _ = do(f"orsched compare azure.csv {LIMITS} --slo-ttft 0.1 --slo-tpot 0.015")
    says_the_best_and_whose_the_makespan_is(out, rows)


@pytest.mark.full
def test_the_same_on_the_real_trace(do, data_dir):
    trace = data_dir / "azure_conv_2023.csv"
    line = f"orsched compare {trace} {LIMITS} --workers 2 --slo-ttft 2 --slo-tpot 0.05"
    rows = json.loads(do(f"{line} --format json")[0])
    says_the_best_and_whose_the_makespan_is(do(line)[0], rows)


def test_python_says_the_same(made, monkeypatch):
    monkeypatch.chdir(made)
    found = orsched.compare(
        orsched.load("azure.csv", clients=64, cost="cost.json"),
        ["fcfs", "vllm"],
        slo=orsched.SLO(ttft_s=0.1, tpot_s=0.015),
    )
    assert found.best() is max(found, key=lambda result: result.slo_attainment)
    assert len({result.slo_attainment for result in found}) == 2
