"""The jobs that bring people here: each in at most three commands, or ten lines of Python."""

import csv
import io
import json
import sys

import numpy as np
import pytest

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
    rows = [*zip(prompts, outputs, np.sort(rng.uniform(0, 60, 500)), strict=True)]
    lines = {
        "mine.csv": ["prompt_tokens,output_tokens,arrival_s",
                     *(f"{prompt},{output},{at:.6f}" for prompt, output, at in rows)],
        "azure.csv": ["TIMESTAMP,ContextTokens,GeneratedTokens",
                      *(f"2023-11-16 18:15:{at:010.7f},{prompt},{output}"
                        for prompt, output, at in rows)],
        "measured.csv": ["phase,count,tokens,longest,duration_ns",
                         *(f"prefill,1,{tokens},{tokens},{12_000_000 + 60_000 * tokens}"
                           for tokens in range(64, 2049, 64)),
                         *(f"decode,{count},0,0,{13_000_000 + 45_000 * count}"
                           for count in range(1, 65))],
        "own.py": [OWN],
        "cost.json": [json.dumps(COST)],
    }  # fmt: skip
    for name, text in lines.items():
        (folder / name).write_text("\n".join(text) + "\n")
    return folder


@pytest.fixture
def do(made, call, monkeypatch):
    """Run a job's commands, at most three, in that folder; return the last stdout and stderr."""
    monkeypatch.chdir(made)

    def all_of(*commands):
        assert len(commands) <= 3
        for command in commands:
            assert command.startswith("orsched ")
            code, out, err = call(command.removeprefix("orsched "))
            assert code == 0, err
        return out, err

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

    return lines


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
    fleet = "azure.csv --clients 8 --format json"
    found = json.loads(do(f"orsched capacity {fleet} --slo-ttft 2 --attainment 0.99")[0])
    assert found["workers"] > 1
    enough, too_few = (
        json.loads(do(f"orsched simulate {fleet} --policy vllm --workers {workers}")[0])
        for workers in (found["workers"], found["workers"] - 1)
    )
    assert enough["ttft_p99_s"] <= 2 < too_few["ttft_p99_s"]


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


def a_comparison_names_the_best_and_whose_the_makespan_is(do, trace, limits):
    line = f"orsched compare {trace} {LIMITS} {limits}"
    best = max(json.loads(do(f"{line} --format json")[0]), key=lambda row: row["slo_attainment"])
    out, _ = do(line)
    share = f"{best['slo_attainment']:.2%}".replace("%", " %")
    assert f"* best attainment: {best['method']} ({share}" in out
    assert "the makespan is the last arrival's, at " in out


def test_a_comparison_under_limits_names_the_best_by_attainment(do):
    limits = "--slo-ttft 0.1 --slo-tpot 0.015"
    a_comparison_names_the_best_and_whose_the_makespan_is(do, "azure.csv", limits)


@pytest.mark.full
def test_the_same_on_the_real_trace(do, data_dir):
    limits = "--workers 2 --slo-ttft 2 --slo-tpot 0.05"
    trace = data_dir / "azure_conv_2023.csv"
    a_comparison_names_the_best_and_whose_the_makespan_is(do, trace, limits)
