"""No certificate verifies with a field of another type, and none raises, however it is changed."""

from __future__ import annotations

import copy
import json
from dataclasses import replace

import numpy as np
import pytest

import orsched
from orsched.certificates.fields import LATENCY, MAKESPAN, PACKING
from orsched.checker import check
from orsched.checker.certificates import (
    bound_violations,
    certificate_violations,
    packing_violations,
)
from tests.certificates.kinds import NO_PACKING, PROOFS, finding, kinds
from tests.certificates.test_ways import NAMES

OTHERS = (
    True, False, None, "", "1", "x", b"1", 1j, [], [1], {}, {"k": 1}, (1,), float("nan"),
    float("inf"), -float("inf"), 0.0, 0.5, 1e300, object(),
)  # fmt: skip
NUMBERS = (-1, 0, 1, 2**31, 2**63, 2**64, -(2**70), 10**30, 10**400, -(10**5000))
MOST_PLACES = 60


def leaves(tree, path=()):
    """The path of everything in a document, tables and lists among it."""
    if path:
        yield path
    if isinstance(tree, dict | list):
        for key, item in tree.items() if isinstance(tree, dict) else enumerate(tree):
            yield from leaves(item, (*path, key))


def changed(document, path, value):
    """A copy with one thing changed."""
    found = copy.deepcopy(document)
    owner = found
    for key in path[:-1]:
        owner = owner[key]
    owner[path[-1]] = value
    return found


def at(document, path):
    for key in path:
        document = document[key]
    return document


def places(document):
    """All places of a document, or as many, spread over it."""
    found = list(leaves(document))
    return found[:: -(-len(found) // MOST_PLACES)]


def other_types(value):
    """Values of another type, some of them equal to it."""
    same = [float(value), np.int64(value)] if type(value) is int and abs(value) < 2**53 else []
    return [other for other in (*OTHERS, *same) if type(other) is not type(value)]


def test_the_examples_have_every_kind():
    made = {
        str(kind.bound(pytest.MonkeyPatch()).name) for kind in kinds().values() if not kind.proof
    }
    assert made == {*MAKESPAN, *LATENCY}
    assert set(PROOFS) < set(PACKING)


@pytest.mark.parametrize("name", NAMES)
def test_another_type_is_no_proof(name, monkeypatch):
    kind = kinds()[name]
    document = kind.bound(monkeypatch).to_dict()
    for path in places(document):
        for other in other_types(at(document, path)):
            broken = changed(document, path, other)
            assert bound_violations(kind.instance, broken, kind.objective), (path, other)
            if kind.objective == "makespan":
                assert certificate_violations(kind.instance, broken), (path, other)


@pytest.mark.parametrize("name", NAMES)
def test_another_number_proves_no_more(name, monkeypatch):
    """Another choice may prove as much as was claimed; never another value."""
    kind = kinds()[name]
    document = kind.bound(monkeypatch).to_dict()
    for path in places(document):
        value = at(document, path)
        if type(value) is not int:
            continue
        for other in (*NUMBERS, value + 1, value - 1):
            broken = changed(document, path, other)
            if not bound_violations(kind.instance, broken, kind.objective):
                assert broken["value_ns"] == document["value_ns"], (path, other)


@pytest.mark.parametrize("name", ["joint", "dual", "tree", "charged", "shared", "large requests"])
def test_fields_that_are_missing_or_unknown_are_no_proof(name, monkeypatch):
    kind = kinds()[name]
    document = kind.bound(monkeypatch).to_dict()
    for path in places(document):
        if isinstance(at(document, path), dict):
            assert bound_violations(kind.instance, changed(document, (*path, "more"), 1))
        if isinstance(path[-1], str):
            less = copy.deepcopy(document)
            del at(less, path[:-1])[path[-1]]
            assert bound_violations(kind.instance, less)


def test_half_a_k_proves_nothing():
    """Of requests above 2/3 of the memory fewer than one go together, was the "proof"."""
    kind = kinds()["large requests"]
    document = orsched.bound(kind.instance).to_dict()
    rounds = document["certificate"]["decode_rounds"]
    assert rounds["k"] == 1
    worth = 2 * rounds["value"]
    for k in (0.5, 1.0, True):
        broken = changed(document, ("certificate", "decode_rounds", "k"), k)
        broken["certificate"]["decode_rounds"]["value"] = worth
        found = certificate_violations(kind.instance, broken)
        assert any("decode_rounds.k is" in fault for fault in found), k


@pytest.mark.parametrize("proof", PROOFS)
def test_packings_of_other_types_are_no_proof(proof):
    rounds, clients = NO_PACKING
    result = finding(proof)(rounds, clients)
    assert packing_violations(rounds, clients, result) == []
    for path in places(result.certificate):
        for other in other_types(at(result.certificate, path)):
            broken = replace(result, certificate=changed(result.certificate, path, other))
            assert packing_violations(rounds, clients, broken), (path, other)
    for field in ("makespan", "bound"):
        assert packing_violations(rounds, clients, replace(result, **{field: 9.0}))


@pytest.mark.parametrize("name", ["joint", "tree", "charged", "large prompts"])
def test_check_says_so_beside_a_schedule(name, monkeypatch):
    kind = kinds()[name]
    kind.bound(monkeypatch)
    schedule = orsched.solve(kind.instance, "fcfs").schedule
    assert check(kind.instance, schedule) == []
    for path in places(schedule.bound)[::7]:
        for other in (None, True, 0.5, "x", 10**5000):
            found = check(
                kind.instance, schedule.replace(bound=changed(schedule.bound, path, other))
            )
            assert any(violation.kind == "bound" for violation in found), (path, other)
            json.dumps([violation.to_dict() for violation in found], allow_nan=False)
