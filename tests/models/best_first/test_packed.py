"""The search over packed states against exhaustive search, the plain one, and compiled itself."""

import random
from collections import Counter
from itertools import product

import numpy as np
import pytest

from orsched import AffineCost, Worker
from orsched.instances.synthetic import gsm8k
from orsched.models.best_first import expansion, packed, packed_bounds
from orsched.models.best_first.packed import Packed, bins_of, engine, fits
from orsched.models.best_first.states import BestFirst, States
from orsched.models.exact_search.stage_plan import read_problem, schedule_of
from tests.brute_force import optimum_ns
from tests.decoding import decoding
from tests.in_order import in_order
from tests.models.best_first.test_best_first import STAGE_COSTS, _every_stage, _to_go, plain
from tests.seeds import seeds

_NONE = 2**62


def of_lengths(lengths, clients, *times):
    """An instance of prompts of one token."""
    return decoding([1] * len(lengths), lengths, Worker(clients, in_order(AffineCost, *times)))


def packable(seed, most=6, clients=3):
    """A small instance whose rounds take time."""
    instance = plain(seed, most, clients)
    worker = Worker(instance.worker.clients, STAGE_COSTS[seed % 2])
    return instance.replace(workers=(worker,))


def varied(seed):
    """An instance of different lengths, in which states leave out others."""
    rng = random.Random(seed)
    return of_lengths([rng.randint(5, 60) for _ in range(rng.randint(8, 9))], 3, 25, 0, 29, 0)


def never():
    return False


def searched(instance, module=expansion, weights=()):
    states = States(read_problem(instance))
    assert fits(states)
    found = Packed(states, _NONE, 0, 10**6, weights, module)
    assert found.run(never, never) == "finished"
    return found


def best_of_the_plain_search(instance):
    found = BestFirst(States(read_problem(instance)), _NONE, 0, 10**6)
    assert found.run(never, never) == "finished"
    return found.best


def some_weights(rng, lengths):
    return [{length: rng.randint(0, 20) for length in lengths} for _ in range(rng.randint(0, 3))]


@pytest.mark.parametrize("seed", seeds(12, 60))
def test_it_finds_the_optimum_of_exhaustive_search(seed):
    instance = packable(seed)
    found = searched(instance, weights=some_weights(random.Random(seed), (1, 2, 3, 5, 8)))
    schedule = schedule_of(instance, found.plan(), "best-first")
    best = read_problem(instance).to_ns(found.best)
    assert found.bound == found.best
    assert best == schedule.makespan_ns == optimum_ns(instance)


@pytest.mark.parametrize("seed", seeds(10, 40))
def test_it_finds_what_the_plain_search_finds(seed):
    instance = varied(seed) if seed % 2 else packable(1000 + seed, most=11, clients=4)
    assert searched(instance).best == best_of_the_plain_search(instance)


@pytest.mark.parametrize("seed", seeds(12, 60))
def test_full_blocks_of_equal_requests_may_come_first(seed):
    rng = random.Random(seed)
    clients = rng.randint(2, 3)
    few = [rng.randint(3, 12) for _ in range(rng.randint(1, 3))]
    lengths = [rng.choice(few) for _ in range(rng.randint(2 * clients, 4 * clients))]
    instance = of_lengths(lengths, clients, rng.choice((0, 4, 25)), 0, rng.choice((3, 10)), 0)
    found = searched(instance)
    assert found.best == found.bound == best_of_the_plain_search(instance)


def test_nothing_left_out_changes_the_optimum(monkeypatch):
    instances = [varied(seed) for seed in range(6, 14)]  # 12 tells a slack too large
    first = [searched(each) for each in instances]
    monkeypatch.setattr(expansion, "is_dominated", lambda *_: False)
    second = [searched(each) for each in instances]
    assert [each.best for each in first] == [each.best for each in second]
    assert sum(each.left_out for each in first) > sum(each.left_out for each in second)


@pytest.mark.parametrize("seed", seeds(10, 40))
def test_the_bound_of_every_state_is_below_what_it_takes(seed):
    states, rng = _every_stage(packable(seed)), random.Random(seed)
    lengths = [kind.rounds for kind in states.kinds]
    case = Packed(states, _NONE, 0, 10, some_weights(rng, lengths)).case
    space = np.zeros((3, max(len(lengths), states.clients) + 1), np.int64)
    for _ in range(20):
        waiting = tuple(rng.randint(0, count) for count in states.start)
        left = sorted(rng.randint(0, max(lengths)) for _ in range(states.clients))
        to_go = _to_go(states, waiting, tuple(each for each in left if each))
        if not any(waiting) or sum(left) + sum(waiting) > sum(states.start):
            left = [min(each, min(lengths)) for each in left]
            to_go = _to_go(states, waiting, tuple(each for each in left if each))
        limit = to_go + rng.randint(0, 40)
        most = case.holds.shape[1] - 1
        if any(waiting) and limit // case.round <= most:
            least = expansion.to_end(
                case, np.array(waiting), np.array(left), limit, case.clients, 0, space
            )
            assert least <= to_go


@pytest.mark.parametrize("seed", seeds(12, 60))
def test_equal_requests_begin_at_no_fewer_stages(seed):
    """All starts on every client are tried: equal ones at one moment share a stage."""
    rng = random.Random(seed)
    clients, length = rng.randint(2, 3), rng.randint(2, 4)
    most = rng.randint(length, 3 * length + 2)
    left = sorted(rng.randint(0, 4) for _ in range(clients))
    equal = clients - rng.randint(0, 1)
    case = searched(of_lengths([1], clients, 1, 0, 1, 0)).case
    fewest = _fewest_starts(left, most, length, equal)
    for count in range(1, 8):
        least = packed_bounds.starts(case, np.array(left), most, count, length, equal)
        assert count not in fewest or least <= fewest[count]


def _fewest_starts(left, most, length, equal):
    """The fewest stages of each number of starts; those at a moment are cut into ``equal``."""
    ways = [_ways(each, most, length) for each in left]
    fewest = {}
    for chosen in product(*ways):
        at = Counter(moment for way in chosen for moment in way)
        stages = sum(-(-several // equal) for several in at.values())
        fewest[at.total()] = min(stages, fewest.get(at.total(), stages))
    return fewest


def _ways(begin, most, length):
    """All sets of moments at which requests of a length can start on a client, one by one."""
    ways = [()]
    for moment in range(begin, most - length + 1):
        ways += [(moment, *way) for way in _ways(moment + length, most, length)]
    return ways


def test_compiled_it_takes_the_same_way():
    pytest.importorskip("numba")
    instance = gsm8k(1, requests=14, clients=3)
    ready = engine(States(read_problem(instance)))
    ready.wait()
    assert ready.module is not None
    one, other = searched(instance), searched(instance, ready.module)
    assert (one.at == other.at).all()
    assert one.plan() == other.plan()
    assert one.expanded > 100


def test_more_room_changes_nothing(monkeypatch):
    instance = gsm8k(1, requests=14, clients=3)
    one = searched(instance)
    monkeypatch.setattr(packed, "_FIRST_NODES", 1)
    other = searched(instance)
    assert len(other.store.waiting) < len(one.store.waiting)
    assert (one.at == other.at).all()


def test_what_cannot_be_packed_is_left_to_the_plain_search():
    assert fits(States(read_problem(gsm8k(0, requests=30, clients=5))))
    assert not fits(States(read_problem(gsm8k(0, requests=30, clients=8))))


def case_of(instance):
    return Packed(States(read_problem(instance)), _NONE, 0, 10).case


def drawn(rng):
    """A case, how many of each kind wait, and the clients' remaining rounds, ascending."""
    lengths = [rng.choice((3, 4, 7, 7, 9, 12)) for _ in range(rng.randint(1, 8))]
    clients = rng.randint(1, 4)
    case = case_of(of_lengths(lengths, clients, 9, 0, 5, 0))
    waiting = [rng.randint(0, count) for count in case.counts.tolist()]
    return case, np.array(waiting), np.array(sorted(rng.randint(0, 9) for _ in range(clients)))


def fit(items, rooms):
    """Whether items fit into rooms: every room is tried for each."""
    if not items:
        return min(rooms) >= 0
    return any(
        room >= items[0] and fit(items[1:], (*rooms[:j], room - items[0], *rooms[j + 1 :]))
        for j, room in enumerate(rooms)
    )


@pytest.mark.parametrize("seed", seeds(12, 60))
def test_it_says_whether_requests_fit(seed):
    rng = random.Random(seed)
    case, waiting, left = drawn(rng)
    kinds = zip(case.rounds.tolist(), waiting.tolist(), strict=True)
    items = [rounds for rounds, count in kinds for _ in range(count)]
    work = -(-(sum(items) + int(left.sum())) // case.clients)
    for rounds in range(max(0, work - 2), work + 12):
        expected = fit(items, tuple(rounds - left.tolist()[j] for j in range(case.clients)))
        assert packed_bounds.packs(case, waiting, left, rounds, bins_of(case)) == expected


def test_after_many_steps_it_says_yes(monkeypatch):
    monkeypatch.setattr(packed_bounds, "MOST_TRIED", 0)
    case = case_of(of_lengths([5, 5, 5], 2, 9, 0, 5, 0))
    assert packed_bounds.packs(case, np.array([3]), np.array([0, 0]), 9, bins_of(case))
    monkeypatch.undo()
    assert not packed_bounds.packs(case, np.array([3]), np.array([0, 0]), 9, bins_of(case))


@pytest.mark.parametrize("seed", range(6, 10))
def test_the_rounds_known_of_a_state_are_not_above_what_its_requests_need(seed):
    """They come from the state before, or from another in which as many wait (``fit`` is exact)."""
    found = searched(varied(seed))
    case, store, raised = found.case, found.store, 0
    waiting, left = (np.zeros(9, np.int64) for _ in range(2))
    for node in range(1, int(found.at[packed_bounds.NODES])):
        expansion.unpack(case, store.waiting[node], store.active[node], waiting, left)
        known, busy = abs(int(store.rounds[node])), left[: case.clients].tolist()
        if known:
            items = np.repeat(case.rounds, waiting[: len(case.rounds)]).tolist()
            assert not fit(items, tuple(known - 1 - each for each in busy))
            raised += known - 1 > -(-(sum(items) + sum(busy)) // case.clients)
    assert raised


@pytest.mark.parametrize("seed", range(6, 14))
def test_what_does_not_fit_is_expanded_no_more(seed, monkeypatch):
    first = searched(varied(seed))
    monkeypatch.setattr(expansion, "packs", lambda *_: True)
    second = searched(varied(seed))
    assert first.best == second.best
    assert first.expanded <= second.expanded
