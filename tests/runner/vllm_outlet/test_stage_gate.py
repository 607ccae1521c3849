"""Gates for vLLM's passes: when a stage begins, and that all requests are served (no vLLM)."""

import pytest

from orsched import AffineCost
from orsched.files import save_cost
from orsched.runner.vllm_outlet.stage_gate import GATES, StageGate
from tests.in_order import in_order
from tests.refusals import refused


@pytest.fixture
def cost(tmp_path):
    """A stage's fixed time is that of 10 rounds: on 4 clients, of 40 idle client-rounds."""
    save_cost(in_order(AffineCost, 10_000_000, 0, 1_000_000, 0), tmp_path / "cost.json")
    return str(tmp_path / "cost.json")


def started(gate, cost, factor=1.0, clients=4, tokens=100):
    made = StageGate(gate, cost, factor)
    made.start(clients, tokens)
    return made


def passes(gate, free=1, active=3, prompt=10, most=50, queued=5):
    """Return how many rounds pass before the gate begins a stage."""
    for rounds in range(most):
        gate.choose([prompt] * queued, queued, free, active, False, rounds * 1_000_000)
        if gate.stage:
            gate.passed(prompt)
            return rounds
        gate.passed(active)
    return most


@pytest.mark.parametrize(("gate", "factor", "expected"), [
    ("prefill_first", 1.0, (0, 0)), ("idle_cost", 1.0, (40, 20)), ("idle_cost", 0.5, (20, 10)),
    ("waited_time", 1.0, (10, 10)),
])  # fmt: skip
def test_a_stage_begins_when_idle_clients_have_cost_as_much(cost, gate, factor, expected):
    made = started(gate, cost, factor)
    assert passes(made) == expected[0]
    made = started(gate, cost, factor)
    assert (passes(made, free=2, active=2), passes(made, free=2, active=2)) == (expected[1],) * 2


def test_a_full_stage_never_waits(cost):
    assert passes(started("idle_cost", cost, tokens=20), free=2, active=2) == 0


@pytest.mark.parametrize("gate", GATES)
def test_a_stage_begins_at_once_where_nothing_decodes_and_a_begun_prompt_goes_on(cost, gate):
    made = started(gate, cost)
    made.choose([10], 1, 4, 0, False, 0)
    assert made.stage
    made.passed(10)
    made.choose([], 0, 3, 0, True, 0)
    assert made.stage
    made.passed(10)
    made.choose([], 0, 3, 1, False, 0)
    assert not made.stage


def test_after_a_stage_into_which_none_was_admitted_comes_a_round(cost):
    made = started("prefill_first", cost)
    found = []
    for _ in range(4):
        made.choose([10], 1, 1, 3, False, 0)
        found.append(made.stage)
        made.passed(0 if made.stage else 3)
    assert found == [True, False, True, False]


def test_a_gate_is_taken_from_the_settings_of_an_order(cost):
    for order, left in (("fcfs", {}), ("gittins", {"cost": cost})):
        settings = {"order": order, "gate": "idle_cost", "gate_factor": 2, "cost": cost}
        assert StageGate.taken_from(settings).gate.factor == 2
        assert settings == {"order": order, **left}
    assert StageGate.taken_from({"order": "fcfs"}) is None
    refused("unknown gate 'open'", StageGate, "open", cost)
    assert "calibrate" in refused("needs the times", StageGate, "idle_cost", None).remedy
    refused("gate_factor", StageGate, "idle_cost", cost, -1)
