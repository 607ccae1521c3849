"""Every section runs at a tiny size; nothing here asserts a time."""

import json

import pytest

from benchmarks.speed import peers, run
from benchmarks.speed.packing_ablation import ATTACKS, lines
from benchmarks.speed.processes import Program, measure
from benchmarks.speed.section import Options, Section, Target, number
from orsched.instances.synthetic import peers_workload


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


def test_packing_is_measured_without_each_attack_that_it_calls():
    whole, *others = lines("L6", 1, ["dives", "best fit", "exchanges"], 6000)
    assert whole.split()[:4] == ["L6", "all", "1", "1/1"]
    assert [line.partition(" no ")[2][:8] for line in others] == ["best fit"]
    for owner, attribute, _ in ATTACKS.values():
        assert callable(getattr(owner, attribute))
