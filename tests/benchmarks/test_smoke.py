"""Every section, and the script for a GPU, at a tiny size; nothing here asserts a time."""

import json

import pytest

from benchmarks.speed import peers, run
from benchmarks.speed.processes import Program, measure
from benchmarks.speed.section import Options, Section, Target, number
from orsched.instances.synthetic import peers_workload
from tests.blocking import run_without


def numbers(rows):
    endings = ("_s", "_us", "_mib", "per_request", "_%")
    names = ("runs", "modules", "decisions", "stages", "rounds", "requests")
    cells = (cell for row in rows for cell in row.items())
    return [value for key, value in cells
            if (key.endswith(endings) or key in names) and value is not None]  # fmt: skip


@pytest.mark.full
@pytest.mark.parametrize("name", list(run.SECTIONS))
def test_every_section_measures_something(name, tmp_path, capsys):
    if name in ("runner", "worker"):
        pytest.importorskip("torch", reason="the extra 'runner' is not installed")
    options = Options(tmp_path, repeats=1, peers=False, tiny=True)
    out = tmp_path / "out" / "bench.json"
    (section,) = run.run([name], out, options)
    assert section.name == name
    assert section.rows
    assert not [row for row in section.rows if "remark" in row]
    found = numbers(section.rows)
    assert len(found) >= len(section.rows)
    assert min(found) >= 0  # a bound may be 0
    assert max(found) > 0
    assert section.title in capsys.readouterr().out
    written = json.loads(out.read_text())
    assert written["sections"] == [json.loads(json.dumps(section.to_dict()))]
    assert written["machine"]["versions"]["orsched"]


def test_a_program_that_fails_or_does_not_exist_is_named_and_not_run_again(tmp_path):
    fails = Program("fails", ["/bin/sh", "-c", "echo out; echo why >&2; exit 3"])
    absent = Program("absent", [str(tmp_path / "absent")])
    measure([fails, absent], 2, tmp_path)
    assert fails.figures() == {"program": "fails", "remark": "failed: why"}
    assert "No such file" in absent.figures()["remark"]


def test_peers_that_are_not_installed_say_how_to_install_them(tmp_path, monkeypatch):
    monkeypatch.setattr(peers, "ENVIRONMENT", tmp_path)
    for program in (peers.sched_sim(["--help"]), peers.dynosim(["--help"], limited=True)):
        measure([program], 1, tmp_path)
        assert "make bench-peers" in program.figures()["remark"]
        assert peers.outcome(program, tmp_path) == {}


def test_the_peers_read_the_same_requests(tmp_path):
    instance = peers_workload(50)
    peers.write_sched_sim(instance, tmp_path / "a.json")
    peers.write_mooncake(instance, tmp_path / "b.jsonl")
    names = ("arrival_ns", "prompt_tokens", "output_tokens")
    ours = list(zip(*(getattr(instance.requests, x).tolist() for x in names), strict=True))

    def rows(found, unit, *columns):
        return [(round(r["timestamp"] * unit), *(r[name] for name in columns)) for r in found]

    listed = json.loads((tmp_path / "a.json").read_text())
    assert ours == rows(listed, 1e9, "prompt_tokens", "output_tokens")
    lines = [json.loads(line) for line in (tmp_path / "b.jsonl").read_text().splitlines()]
    assert ours == rows(lines, 1e6, "input_length", "output_length")
    hashes = [h for r in lines for h in r["hash_ids"]]
    assert len(hashes) == len(set(hashes))


def test_a_missed_target_is_printed():
    targets = [Target("a", 0.5, 1.0, "s"), Target("b", 2.0, 1.0, "s"), Target("c", None, 1.0, "s")]
    text = Section("name", "title", [{"x": 1, "y": "z"}], targets, ["why"]).text()
    assert [t.passed for t in targets] == [True, False, False]
    assert Target("d", 2.0, 1.0, "s", at_least=True).passed
    assert not Target("d", 0.5, 1.0, "s", at_least=True).passed
    assert "PASS  a: 0.5 s" in text
    assert "MISS  b: 2 s" in text
    assert "MISS  c: no figure" in text
    assert "  - why" in text


@pytest.mark.parametrize(("value", "text"), [
    (None, "-"), (12345, "12,345"), (True, "True"), (0.123456, "0.123"), (1234.5, "1,234"),
    (89.061, "89.06"),
])  # fmt: skip
def test_numbers_are_printed_short(value, text):
    assert number(value) == text


pytest.importorskip("torch", reason="the extra 'runner' is not installed")

MISSING = ("pytest", "click", "pyscipopt", "ortools", "pydantic", "plotly", "ray", "jsonschema")


def script(repo_root, *arguments):
    program = f"from benchmarks.speed.device import main\nsys.exit(main({arguments!r}))"
    return run_without(MISSING, program, repo_root, timeout=None)


def test_help_needs_nothing_that_is_missing(repo_root):
    done = script(repo_root, "--help")
    assert done.returncode == 0, done.stderr
    assert "--quick" in done.stdout


@pytest.mark.full
def test_the_table_has_every_method_at_both_sizes(repo_root, tmp_path):
    out, saved = tmp_path / "device.json", tmp_path / "saved"
    given = ("--device", "cpu", "--quick", "--slots", "3", "--out", str(out), "--save", str(saved))
    done = script(repo_root, *given)
    assert done.returncode == 0, done.stderr
    (section,) = json.loads(out.read_text())["sections"]
    assert [(row["slots"], row["policy"], row["again"]) for row in section["rows"]] == [
        *((3, policy, 0) for policy in ("fcfs", "online", "hybrid", "vllm", "gittins")),
        *((3, "hybrid", 1), (3, "fcfs", 1), (3, "hybrid", 2)),
        *((6, policy, 0) for policy in ("hybrid", "online", "fcfs")),
    ]
    for row in section["rows"]:
        assert row["requests"] == 5 * row["slots"]
        assert 0 < row["busy_%"] <= 100
        assert 0 < row["slots_%"] <= 100
        assert row["gaps_%"] + row["busy_%"] <= 100.01
        positive = ("run_s", "prefill_mfu_%", "decode_bandwidth_%", "roofline_%")
        assert min(row[name] for name in positive) > 0
        assert row["weights_s"] + row["tokens_s"] > 0
        assert isinstance(row["roofline_error_%"], float)
    assert len(section["targets"]) == 6
    assert_others_can_use(saved)


def assert_others_can_use(folder):
    """The files calibrate and judge as those of the data folder do, and name the machine."""
    from orsched.calibration.candidates import calibrate
    from orsched.calibration.step_files import judge, read_measurements, read_steps
    from orsched.files import load_cost

    cost = calibrate(read_measurements(folder / "calibration.csv")).candidate().cost
    assert cost == load_cost(folder / "machine.json")
    document = json.loads((folder / "machine.json").read_text())
    facts, runs = document["fit"]["machine"], document["fit"]["runs"]
    assert {"title", "device", "date", "software", "error"} <= set(facts)
    names = ["fcfs", "online", "hybrid", "vllm", "gittins"]
    assert [run["file"] for run in runs] == [f"{name}_steps.csv" for name in names]
    for each in runs:
        again = judge(cost, each["file"], read_steps(folder / each["file"]))
        assert again.to_dict() == each


@pytest.mark.full
def test_no_time_left_is_said_and_not_hidden(repo_root):
    done = script(repo_root, "--device", "cpu", "--quick", "--slots", "2", "--minutes", "0.01")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("no time is left") == 11
    assert "no figure" in done.stdout


def test_a_roofline_takes_the_longer_of_weights_and_tokens():
    """Hand-checked: one layer's numbers, peaks of 1,000 FLOP/s and 100 bytes/s."""
    import numpy as np

    from benchmarks.speed.device_roofline import roofline_s
    from orsched.calibration.observed import StepContents
    from orsched.runner.utilization import ModelSize, Peaks

    size = ModelSize(1, 2, 1, 5, 90, 10, 2)  # 100 weights, 200 bytes; 20 bytes of cache a token
    columns = {
        "worker": [0, 0, 0], "phase": [0, 1, 2], "start_ns": [0, 1, 2], "end_ns": [1, 2, 3],
        "rounds": [1, 3, 1], "active": [0, 2, 1], "context_sum": [0, 10, 9],
        "context_max": [0, 6, 9], "prompts": [1, 0, 1], "tokens": [20, 0, 4], "longest": [20, 0, 4],
        "cached": [0, 0, 0], "attended": [210, 0, 10],
    }  # fmt: skip
    steps = StepContents(**{name: np.array(values) for name, values in columns.items()})
    found = roofline_s(size, steps, Peaks(1000.0, 100.0))
    # the stage computes (2 * 90 * 20 + 2 * 10) / 1000 = 3.62 s, longer than 2 s of weights; three
    # rounds read the weights, 2 s each; the mixed step computes 5 tokens in 0.94 s and reads 2 s
    assert found["tokens"] == pytest.approx(3.62)
    assert found["weights"] == pytest.approx(3 * 2 + 2)
    assert found["context"] == pytest.approx((3 * 10 + 2 * 3 + 9) * 20 / 100)
    assert found["attended"] == pytest.approx(4 * 1 * 2 * 5 * 220 / 1000)
