"""The gate ``learned``: cases by hand, its file, hostile files, and training."""

from __future__ import annotations

import copy
import json

import numpy as np
import pytest

import orsched
from orsched.checker import check
from orsched.costs import AffineCost
from orsched.errors import InputError
from orsched.heuristics.gate_table import GateTable, load_gate, save_gate, table_from
from orsched.heuristics.gate_training import train_gate
from orsched.heuristics.gated import GatedParams, GatedPolicy
from orsched.heuristics.gates import GATES, make_gate
from orsched.heuristics.learned_gate import LearnedGate, shipped_table
from orsched.instance import Instance
from orsched.instances import with_arrivals
from orsched.instances.gsm8k import gsm8k
from orsched.policy import Information
from orsched.requests import Requests
from orsched.schedule import PREFILL
from orsched.simulator import simulate_policy
from orsched.workers import Worker

UNIT = AffineCost(10, 1, 4, 0)
"""A stage 10 and 1 a token, a round 4: on two clients an idle client-round costs 2."""


def table(weights=(1, 0, 0), threshold=1.0):
    rows = ((threshold, threshold),) * 4
    return GateTable(tuple(map(float, weights)), (1e-9, 0.25, 1.0), (0.5,), (rows, rows))


class Gated(GatedPolicy):
    def __init__(self, made, information="none"):
        super().__init__(GatedParams("shared"), Information(information))
        self.made = made

    def make_gate(self):
        return LearnedGate(self.made)


def schedule_of(instance, made):
    return simulate_policy(instance, Gated(made)).schedule


def stages(schedule):
    return int((schedule.steps.phase == PREFILL).sum())


def test_thresholds_of_zero_are_prefill_first():
    instance = gsm8k(seed=3, requests=60, clients=8)
    mine = schedule_of(instance, table(threshold=0.0))
    theirs = orsched.solve(instance, "online+assignment=shared+gate=prefill_first").schedule
    assert mine.makespan_ns == theirs.makespan_ns
    assert stages(mine) == stages(theirs)


def test_the_sign_idle_with_threshold_one_is_idle_cost():
    instance = gsm8k(seed=3, requests=60, clients=8)
    theirs = orsched.solve(instance, "online+assignment=shared+gate=idle_cost").schedule
    assert schedule_of(instance, table()).makespan_ns == theirs.makespan_ns


def test_the_sign_waited_with_threshold_one_is_the_literal_gate():
    instance = gsm8k(seed=3, requests=60, clients=8)
    theirs = orsched.solve(instance, "online+assignment=shared+gate=waited_time").schedule
    assert schedule_of(instance, table((0, 1, 0))).makespan_ns == theirs.makespan_ns


def test_the_sign_lot_waits_for_as_many_idle_clients_as_the_economic_lot():
    instance = gsm8k(seed=3, requests=120, clients=16)
    few, many = (stages(schedule_of(instance, table((0, 0, 1), t))) for t in (0.2, 2.0))
    assert few > many


def test_it_never_waits_where_a_client_idles_and_none_decodes():
    instance = Instance(Requests([1, 1], [3, 3]), Worker(2, UNIT), first_token="decode")
    assert not check(instance, schedule_of(instance, table(threshold=1e6)))


@pytest.mark.parametrize("information", ["none", "predicted"])
def test_it_is_a_gate_of_the_methods_and_needs_no_file(information):
    assert "learned" in GATES
    assert shipped_table() == load_gate_again(shipped_table())
    instance = with_arrivals(gsm8k(seed=1, requests=80, clients=10), "poisson:rate=1", 1)
    result = orsched.solve(instance, f"online@{information}+assignment=shared+gate=learned")
    assert not check(instance, result.schedule)
    assert isinstance(make_gate("learned"), LearnedGate)


def load_gate_again(made):
    return table_from(json.loads(json.dumps(made.to_document())))


def test_lengths_that_are_not_known_change_nothing_before_they_are_seen():
    """Two instances that differ in what is left of the longest: the same first steps."""
    short, long = [20] * 6 + [30], [20] * 6 + [300]
    made = []
    for outputs in (short, long):
        instance = Instance(
            Requests([5] * 7, outputs),
            Worker(3, UNIT),
            output_limit_tokens=512,
            first_token="decode",
        )
        steps = schedule_of(instance, shipped_table()).steps
        made.append(list(zip(steps.phase.tolist(), steps.start_ns.tolist(), strict=True)))
    same = [a == b for a, b in zip(*made, strict=False)]
    assert all(same[:4])


def test_a_file_gives_back_what_was_written(tmp_path):
    path = tmp_path / "gate.json"
    made = table((0.25, 0.5, 1), 0.75)
    save_gate(made, path, {"seed": 1})
    assert load_gate(path) == made
    instance = gsm8k(seed=2, requests=40, clients=5)
    spec = f"online+assignment=shared+gate=learned+gate_file={path}"
    named = orsched.solve(instance, spec)
    assert named.schedule.makespan_ns == schedule_of(instance, made).makespan_ns
    assert named.schedule.parameters["gate_file"] == str(path)


def wrong(change):
    document = copy.deepcopy(table().to_document())
    change(document)
    return document


HOSTILE = {
    "format": lambda d: d.update(format="orsched/instance"),
    "version": lambda d: d.update(version=99),
    "weights": lambda d: d.update(weights={"idle": 0, "waited": 0, "lot": 0}),
    "weights.lot": lambda d: d["weights"].update(lot=True),
    "weights.idle": lambda d: d["weights"].update(idle=-1),
    "weights.waited": lambda d: d["weights"].pop("waited"),
    "queue_edges[1]": lambda d: d.update(queue_edges=[0.5, 0.5, 1.0]),
    "queue_edges": lambda d: d.update(queue_edges=list(range(1000))),
    "decoding_edges[0]": lambda d: d.update(decoding_edges=["a"]),
    "decoding_edges": lambda d: d.update(decoding_edges={"0": 1}),
    "thresholds": lambda d: d.update(thresholds=[]),
    "thresholds[1]": lambda d: d["thresholds"].__setitem__(1, "x"),
    "thresholds[0][2]": lambda d: d["thresholds"][0].__setitem__(2, [1]),
    "thresholds[1][3][0]": lambda d: d["thresholds"][1][3].__setitem__(0, 10**400),
}


@pytest.mark.parametrize("field", HOSTILE)
def test_a_hostile_file_is_refused_with_file_and_field(field, tmp_path):
    path = tmp_path / "gate.json"
    path.write_text(json.dumps(wrong(HOSTILE[field])))
    with pytest.raises(InputError) as error:
        load_gate(path)
    assert error.value.field == field
    assert str(path) in str(error.value)


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, "null", '{"a": 1, "a": 2}', "\x00"])
def test_what_is_no_such_object_is_refused_in_a_line(text, tmp_path):
    path = tmp_path / "gate.json"
    path.write_text(text)
    with pytest.raises(InputError) as error:
        load_gate(path)
    assert "\n" not in str(error.value)


def test_a_file_for_another_gate_and_one_that_is_missing_are_refused():
    with pytest.raises(InputError) as error:
        GatedParams("shared", gate="idle_cost", gate_file="gate.json")
    assert error.value.field == "gate_file"
    with pytest.raises(InputError, match="nowhere"):
        GatedParams("shared", gate="learned", gate_file="nowhere.json")
    with pytest.raises(InputError):
        GatedParams("shared", gate="learned", gate_file=7)


def test_training_is_better_than_its_first_table_and_the_same_again():
    instances = [gsm8k(seed=seed, requests=60, clients=8) for seed in (100, 101)]
    seen = []
    found = train_gate(instances, generations=3, population=6, seed=1, callback=seen.append)
    assert found.score <= found.first
    assert found.score < 1.1
    assert [each.generation for each in seen] == [1, 2, 3]
    assert found == train_gate(instances, generations=3, population=6, seed=1)
    assert found.table == load_gate_again(found.table)
    again = np.mean([
        schedule_of(each, found.table).makespan_ns
        / orsched.solve(each, "online+assignment=shared+gate=shadow_price").schedule.makespan_ns
        for each in instances
    ])  # fmt: skip
    assert again == pytest.approx(found.score)


@pytest.mark.parametrize("objective", ["makespan", "jct_mean"])
def test_what_is_to_be_short_can_be_said(objective):
    instance = with_arrivals(gsm8k(seed=5, requests=40, clients=5), "poisson:rate=0.5", 5)
    assert train_gate([instance], objective, generations=1, population=4).score > 0


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"instances": []}, "instances"),
        ({"objective": "ttft"}, "objective"),
        ({"generations": 0}, "generations"),
        ({"population": 1}, "population"),
        ({"seed": -1}, "seed"),
    ],
)
def test_training_refuses_what_is_wrong_with_its_name(arguments, field):
    given = {"instances": [gsm8k(seed=0, requests=5, clients=2)], **arguments}
    with pytest.raises(InputError) as error:
        train_gate(**given)
    assert error.value.field == field


@pytest.mark.parametrize("wrong", [None, 5, "gate", [None]])
def test_what_is_no_instance_to_train_on_is_said(wrong):
    from orsched.heuristics.gate_training import train_gate

    with pytest.raises(InputError, match="is no Instance"):
        train_gate(wrong)
