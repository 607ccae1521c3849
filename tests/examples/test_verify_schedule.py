"""The verifier that needs no orsched says of each schedule what the checker says."""

import copy
import random
from functools import cache
from pathlib import Path
from runpy import run_path

import pytest

import orsched
from orsched.common.errors import InputError
from orsched.files.instance_document import instance_document
from orsched.instances.catalog import generate
from orsched.planning.library_rows import columns_of, schedule_of

VERIFIER = Path(__file__).parents[2] / "examples" / "verify_schedule.py"
verify = run_path(str(VERIFIER))["verify"]
ROOFLINE = orsched.RooflineCost(
    fixed_fs=960 * 10**9, weights_fs=7_467_321_822_886, token_fs=23_511_274_570,
    context_fs=65_209_950, attended_fs=883_086,
)  # fmt: skip
METHODS = ("fcfs", "vllm", "gittins", "hybrid@predicted", "static", "sjf", "scls_continuous")


@cache
def _case(seed):
    """Return an instance: two costs, one or two workers, two allocations, memory that is short."""
    rng = random.Random(seed)
    lengths = {"prompt_tokens": [1, 60], "output_tokens": [1, 40], "requests": rng.randint(3, 12)}
    first = rng.choice(["decode", "prefill"])
    rate = rng.choice([None, 5.0])
    made = generate("uniform", clients=3, seed=seed, rate=rate, first_token=first, **lengths)
    memory = orsched.BlockMemory(14, 16, rng.choice(["paged", "whole"]))
    cost = rng.choice([orsched.AffineCost(), ROOFLINE])
    cap = rng.choice([None, 64])
    worker = orsched.Worker(3, cost, cap, rng.choice([None, memory]))
    requests = made.requests
    requests = requests.replace(predicted_tokens=requests.output_tokens)
    return made.replace(requests=requests, workers=(worker,) * rng.choice([1, 1, 2]))


@cache
def _schedule(seed):
    """Return an instance and the columns of a schedule of it, or None where none is made."""
    instance = _case(seed)
    for method in random.Random(seed).sample(METHODS, len(METHODS)):
        try:
            return instance, columns_of(orsched.simulate(instance, method).schedule)
        except orsched.OrschedError:
            continue
    return instance, None


def _mutated(columns, rng):
    """Return the columns with one to three cells, rows or lengths changed."""
    found = copy.deepcopy(columns)
    for _ in range(rng.randint(1, 3)):
        table = found[rng.choice(["steps", "work", "work"])]
        name = rng.choice(sorted(table))
        column = table[name]
        row = rng.randrange(len(column))
        kind = rng.random()
        if kind < 0.6:
            column[row] += rng.choice([-1, 1, 1, 2, -2, 10**6, 10**9])
        elif kind < 0.8:
            other = rng.randrange(len(column))
            column[row], column[other] = column[other], column[row]
        elif kind < 0.9:
            for each in table.values():
                del each[row]
            if not column:
                break
        else:
            for each in table.values():
                each.insert(row, each[row])
    return found


def _verdicts(instance, columns):
    """Return the makespan by the checker and by the verifier, None where one refuses."""
    try:
        schedule = schedule_of(instance, columns)
        by_checker = None if orsched.check(instance, schedule) else schedule.makespan_ns
    except InputError:
        by_checker = None
    try:
        return by_checker, verify(instance_document(instance), columns)
    except (ValueError, KeyError, TypeError, IndexError):
        return by_checker, None


@pytest.mark.parametrize(
    ("valid", "mutants"), [(50, 250), pytest.param(1000, 5000, marks=pytest.mark.full)]
)
def test_it_agrees_with_the_checker(valid, mutants):
    made = [pair for pair in map(_schedule, range(valid + valid // 4)) if pair[1]][:valid]
    assert len(made) == valid
    for instance, columns in made:
        by_checker, by_verifier = _verdicts(instance, columns)
        assert by_checker is not None
        assert by_checker == by_verifier
    refused, rng = 0, random.Random(7)
    for number in range(mutants):
        instance, columns = made[number % valid]
        changed = _mutated(columns, rng)
        by_checker, by_verifier = _verdicts(instance, changed)
        assert by_checker == by_verifier, (number, changed)
        refused += by_checker is None
    assert mutants * 0.5 < refused < mutants


def test_it_is_short_and_needs_only_the_standard_library():
    text = VERIFIER.read_text()
    assert len(text.splitlines()) <= 150
    assert "import orsched" not in text
    assert "numpy" not in text
