"""The ledger of readings is complete, its places are in the texts, its code and tests exist."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks.pang_readings import (
    GATES,
    IdleClientTime,
    gains_table,
    met_table,
    paper_gain,
)  # fmt: skip
from benchmarks.pang_readings import (
    Reading as Choice,
)
from benchmarks.pang_readings import (
    readings as choices,
)
from benchmarks.readings import EQUATIONS, Reading, exists, faults, main, numbered, readings
from orsched import AffineCost, Worker
from orsched.heuristics.gates import Waiting, require_gate
from tests.in_order import in_order

PAPERS = Path(os.environ.get("ORSCHED_DATA", ".")).resolve().parent / "papers"
RIGHT = Reading(
    "setting 1", '3.1 "a few words"', "it says", "we read",
    "orsched.heuristics.gates:Printed.start",
    "tests/benchmarks/test_readings.py::test_the_ledger_is_complete", "as printed",
)  # fmt: skip
TEXT = "Here are a few\nwords of a zeta."


@pytest.mark.parametrize("paper", EQUATIONS)
def test_the_ledger_is_complete(paper):
    assert list(faults(paper, readings(paper))) == []


@pytest.mark.parametrize("paper", EQUATIONS)
def test_places_are_in_the_texts(paper):
    path = PAPERS / f"{paper}.txt"
    if not path.is_file():
        pytest.skip("the texts of the papers are not beside ORSCHED_DATA")
    assert list(faults(paper, readings(paper), path.read_text())) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, None),
        ({"place": ""}, "place is empty"),
        ({"code": ""}, "code is empty"),
        ({"test": ""}, "test is empty"),
        ({"code": "orsched.heuristics.gates:Printed.stop"}, "no code orsched"),
        ({"code": "numpy:array"}, "no code numpy"),
        ({"test": "tests/benchmarks/test_readings.py::test_nothing"}, "no test tests"),
        ({"test": "tests/benchmarks/test_readings.py::RIGHT"}, "no test tests"),
        ({"verdict": "right"}, "the verdict 'right'"),
        ({"place": '3.1 "' + "word " * 11 + '"'}, "quotes more than 10"),
        ({"place": "3.1"}, "no section with a quotation"),
        ({"place": '3.1 "few other words"'}, "the text has no 'few other words'"),
        ({"verdict": "not stated"}, "names the terms"),
        ({"place": 'searched "zeta" (1)'}, "names the terms"),
        ({"place": 'searched "zeta" (1)', "verdict": "not stated"}, None),
        ({"place": 'searched "zeta" (2)', "verdict": "not stated"}, "'zeta' occurs 1 times"),
    ],
)
def test_a_wrong_row_is_told(change, said):
    found = list(faults("ssjf", [RIGHT._replace(**change)], TEXT))
    assert found == [] if said is None else any(said in fault for fault in found)


def test_equations_are_numbered_in_two_ways():
    assert numbered("min t (1) s.t. t (2) as Eq. (1), (4)") == 2
    assert numbered("$$a = b, \\quad (1)$$\nas (7) says (2) so\n$$c \\tag{2}$$\nd (3)\n") == 3
    assert list(faults("echo", [], "a (1)"))[1] == "echo: the text numbers 1 equations, not 8"
    assert list(faults("mico", [], "a (1)")) == ["mico: the text numbers 1 equations, not 0"]


def test_names_are_found_in_sources():
    assert exists("orsched.models.packing", "pack")
    assert exists("benchmarks.readings", "EQUATIONS")
    assert exists("orsched.heuristics.gates", "GATES")
    assert not exists("orsched.nothing", "pack")


def test_the_command_counts(capsys):
    assert main([]) == 0
    assert capsys.readouterr().out.splitlines()[1].split()[:2] == ["pang", "43"]


def test_every_reading_is_scored():
    methods = ("offline", "online", "hybrid")
    assert [len(list(choices(method))) for method in methods] == [18, 96, 72]
    for gate in GATES.values():
        require_gate(gate)
    assert [round(paper_gain(method), 2) for method in methods] == [1.95, 3.82, 5.18]


def test_the_nearest_reading_counts():
    """All gains are 1 % but two: one is online's 3.82 %, one has both, 4 and 5 %."""
    found = {m: dict.fromkeys(choices(m), 1.0) for m in ("offline", "online", "hybrid")}
    online = Choice("as printed", "longest", "none", 2048)
    both = Choice("derived", "arrival", "known", 5000)
    found["online"] |= {online: 3.82, both: 4.0}
    found["hybrid"][both] = 5.0
    rows = {(row["reading"], row["gate"]): row for row in met_table(found)}
    assert rows["nearest to online", "as printed"]["online, % (met, %)"] == "+3.82 (100)"
    last = rows["nearest of its gate", "derived"]
    assert list(last.values())[2:] == [
        "arrival",
        "known",
        "5,000",
        "+1.00 (51)",
        "+4.00 (105)",
        "+5.00 (96)",
    ]
    assert gains_table(found)[0]["none, %"] == "-"


def test_idle_client_time_is_over_all_clients():
    """A stage of 3 tokens takes 13; one of two clients that idles for 26 has waited for it."""
    view = SimpleNamespace(worker=Worker(2, in_order(AffineCost, 10, 1, 4, 1)), now_ns=0)
    gate = IdleClientTime()
    gate.start(view)
    for view.now_ns, wait in ((0, 1), (25, 1), (26, 0)):
        assert gate.rounds_to_wait(view, Waiting(1, 3, False)) == wait
    gate.stage_taken(view)
    assert gate.rounds_to_wait(view, Waiting(1, 3, False)) == 1
    assert gate.rounds_to_wait(view, Waiting(1, 3, True)) == 0
