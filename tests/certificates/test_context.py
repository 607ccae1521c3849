"""One context for all bounds of an instance: each part is derived once, whoever asks."""

from collections import Counter

import pytest

from orsched import AffineCost, BlockMemory, Instance, Link, Requests, Worker, bound
from orsched.certificates import charges, context, shared_rounds
from orsched.certificates.context import Context
from tests.in_order import in_order

COST, OTHER = in_order(AffineCost, 25, 1, 29, 2), in_order(AffineCost, 20, 2, 31, 2)
FLEETS = {
    "one": (Worker(2, COST, 40),),
    "equal": tuple(Worker(2, COST, 40, name=f"w{k}") for k in range(3)),
    "unequal": (Worker(2, COST, 40), Worker(3, OTHER, name="other")),
}
REQUESTS = Requests([9, 2, 7, 5] * 2, [30, 9, 2, 4] * 2, arrival_ns=[15 * k for k in range(8)])
PAGED = BlockMemory(40, 4, "paged")
HELPERS = {
    context: ("_jobs", "_fit", "_released", "floor_of"),
    charges: ("_charges", "_on_worker", "Alone"),
    shared_rounds: ("_parts",),
}
"""What derives jobs, floors, charges and times alone, by the arguments beside the context."""


def counted(monkeypatch):
    """Return how often each helper is entered from now on, by what it derives of what."""
    calls = Counter()

    def noting(name, function):
        def noted(first, *others):
            key = [(each.tobytes() if hasattr(each, "tobytes") else each) for each in others]
            calls[(name, id(first), *key)] += 1
            kept.append(first)
            return function(first, *others)

        return noted

    kept = []  # so that no address is used twice
    for module, names in HELPERS.items():
        for name in names:
            monkeypatch.setattr(module, name, noting(name, getattr(module, name)))
    return calls


@pytest.mark.parametrize("allows", [(), ("chunks", "mixed")])
@pytest.mark.parametrize("objective", ["makespan", "mean_jct", "mean_ttft"])
@pytest.mark.parametrize("fleet", FLEETS)
def test_a_proposal_derives_each_part_once(monkeypatch, fleet, objective, allows):
    """Each helper once for each kind of worker: equal ones have one floor, and one set of times."""
    instance = Instance(REQUESTS, FLEETS[fleet], first_token="decode")
    monkeypatch.setattr("orsched.models.bounds.bounds.bound_violations", lambda *_: [])
    monkeypatch.setattr("orsched.models.bounds.shared_rounds_bound.STEPS", 2)
    calls = counted(monkeypatch)
    bound(instance, objective, allows=allows)
    kinds, entered = len({worker.cost for worker in instance.workers}), Counter[str]()
    assert max(calls.values()) == 1
    for name, *_ in calls:
        entered[name] += 1
    for name in ("floor_of", "_fit", "_jobs", "Alone", "_parts"):
        assert entered[name] <= kinds


def test_workers_with_roles_are_looked_at_once(monkeypatch):
    """Eight moments of release, and each pool's requests and charges once."""
    workers = [Worker(2, COST, 40, PAGED, f"p{k}", role="prefill") for k in range(2)]
    workers += [Worker(2, OTHER, 40, PAGED, f"d{k}", role="decode") for k in range(2)]
    instance = Instance(REQUESTS, workers, first_token="decode", link=Link())
    calls = counted(monkeypatch)
    monkeypatch.setattr("orsched.models.bounds.bounds.bound_violations", lambda *_: [])
    assert bound(instance).name == "pools"
    assert max(calls.values()) == 1
    assert {name: sum(key[0] == name for key in calls) for name in ("_fit", "_charges")} == {
        "_fit": 2, "_charges": 2,
    }  # fmt: skip


def test_a_check_makes_a_context_of_its_own(monkeypatch):
    """What proposes hands nothing over: the checker derives everything from the instance."""
    requests = Requests([9, 2, 7, 5], [30, 9, 2, 4], arrival_ns=[0, 0, 40, 90])
    made = []
    init = Context.__init__
    monkeypatch.setattr(Context, "__init__", lambda *args: (made.append(args), init(*args))[1])
    bound(Instance(requests, FLEETS["one"], first_token="decode"), "mean_jct")
    assert len(made) == 2


def test_workers_are_of_one_kind_whatever_their_names_and_times():
    requests = Requests([3], [4])
    workers = (
        Worker(2, COST, name="a"), Worker(2, OTHER, name="b"), Worker(2, COST, name="c"),
        Worker(2, OTHER, name="d", available_ns=((0, 50), (60, None))), Worker(3, COST, name="e"),
    )  # fmt: skip
    assert Context(Instance(requests, workers)).kinds == [0, 1, 0, 1, 4]
