"""Orders for vLLM's waiting queue, and the queue itself (no vLLM needed)."""

import sys
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import orsched
from orsched import AffineCost, Information
from orsched.files import save_cost
from orsched.heuristics.gittins import Gittins, GittinsParams
from orsched.runner.vllm_outlet import Known, Order, make_order
from orsched.runner.vllm_outlet.orders import ORDERS, OrderedRequests, RequestRegistry
from orsched.simulator import simulate_policy
from tests.in_order import in_order
from tests.refusals import refused


def request(name, priority=0, arrival=0.0, prompt=10, limit=64, yielded=0, **extra):
    return SimpleNamespace(
        request_id=str(name), priority=priority, arrival_time=arrival, num_prompt_tokens=prompt,
        max_tokens=limit, num_output_tokens=yielded,
        sampling_params=SimpleNamespace(extra_args=extra or None),
    )  # fmt: skip


def started(**settings):
    order = make_order(settings)
    order.start(8, 200)
    return RequestRegistry(order)


def queue_of(registry):
    return OrderedRequests(lambda each: registry.put(each, 0))


def names(queue):
    """Return who waits, the next one first."""
    return [each.request_id for each in queue]


@pytest.mark.parametrize(("settings", "expected"), [
    ({"order": "fcfs"}, "0123"), ({"order": "plan"}, "3120"), ({"order": "ssjf"}, "2130"),
    ({"order": "sjf"}, "1203"),
    ({"order": "gittins", "information": "clairvoyant", "aging": 1e6}, "1203"),
    ({"order": "ssjf", "aging_s": 10.0}, "0123"),
])  # fmt: skip
def test_orders_by_name(settings, expected):
    queue = queue_of(started(**settings))
    rows = [(9, 60, 30), (2, 20, 5), (5, 10, 7), (1, 40, 50)]
    for name, (priority, predicted, output) in enumerate(rows):
        known = {"predicted_tokens": predicted, "output_tokens": output}
        arrival = 1e4 * name if "aging_s" in settings else 1e-6 * name
        queue.add_request(request(name, priority, arrival, **known))
    assert "".join(names(queue)) == expected


def test_aging_lets_a_long_request_be_overtaken_by_those_soon_after_it_only():
    queue = queue_of(started(order="sjf", aging_s=0.1))
    for name, (arrival, length) in enumerate([(0, 50), (4.8, 1), (5.0, 1)]):
        queue.add_request(request(name, arrival=arrival, output_tokens=length))
    assert "".join(names(queue)) == "102"


def test_an_order_sees_no_length_that_its_information_class_hides():
    class Curious(Order):
        def key(self, request, running):
            seen.append(request.length)
            return 0

    seen = []
    for information in (Curious.information, Information.PREDICTED, Information.CLAIRVOYANT):
        order = Curious()
        order.information = information
        RequestRegistry(order).put(request("a", predicted_tokens=3, output_tokens=4), 0)
    assert seen == [None, 3, 4]


@pytest.mark.parametrize("wrong", [None, "ten", -3, True, 0, float("nan"), float("inf")])
def test_a_length_that_is_missing_or_wrong_counts_as_the_limit(wrong, caplog):
    registry = started(order="ssjf")
    extra = {} if wrong is None else {"predicted_tokens": wrong}
    assert registry.put(request("a", **extra), 0) == (64, 0)
    assert registry.put(request("b", **extra), 0) == (64, 1)
    assert len(caplog.records) == 1


def test_keys_are_kept_until_the_end_and_then_forgotten():
    registry = started(order="fcfs")
    first = request("a")
    assert registry.put(first, 0) == registry.put(first, 5) == (0, 0)
    assert registry.put(request("b"), 0) == (1, 1)
    registry.finish(first, True, [])
    registry.finish(first, True, [])
    assert set(registry.keys) == set(registry.known) == {"b"}


def test_only_completed_requests_teach_and_their_companions_are_known():
    class Pupil(Order):
        def key(self, request, running):
            return 0

        def on_finish(self, request, tokens, running):
            lessons.append((request.name, tokens, [(each.name, age) for each, age in running]))

    lessons, registry = [], RequestRegistry(Pupil())
    a, b, c = (request(name, yielded=n) for name, n in (("a", 7), ("b", 3), ("c", 9)))
    for each in (a, b, c):
        registry.put(each, 0)
    registry.finish(c, False, [a, b])
    registry.finish(a, True, [b, request("stranger")])
    assert lessons == [("a", 7, [("b", 3)])]


DEEDS = st.sampled_from(["add", "pop", "remove", "back", "several"])


@given(st.lists(st.tuples(DEEDS, st.integers(0, 9)), max_size=60))
def test_the_queue_is_a_sorted_list(steps):
    keys, waiting, running = {}, [], []
    queue = OrderedRequests(lambda each: keys[id(each)])
    for place, (what, number) in enumerate(steps):
        if what == "add":
            each = SimpleNamespace(number=number)
            keys[id(each)] = (number, place)
            waiting.append(each)
            queue.add_request(each)
        elif what == "pop" and waiting:
            waiting.sort(key=lambda each: keys[id(each)])
            running.append(waiting.pop(0))
            assert queue.peek_request() is running[-1]
            assert queue.pop_request() is running[-1]
        elif what == "remove" and waiting:
            gone = waiting.pop(number % len(waiting))
            queue.remove_request(gone)
            refused("does not wait", queue.remove_request, gone, kind=ValueError)
        elif what == "back" and running:
            waiting.append(running.pop())
            queue.prepend_request(waiting[-1])
        elif what == "several":
            gone, waiting = waiting[:number], waiting[number:]
            queue.remove_requests(gone)
            queue.prepend_requests(running)
            waiting, running = waiting + running, []
        waiting.sort(key=lambda each: keys[id(each)])
        assert (list(queue), len(queue)) == (waiting, len(waiting))
        assert bool(queue) == bool(waiting)
    if not waiting:
        refused("", queue.peek_request, kind=IndexError)


@pytest.mark.parametrize("information", ["none", "predicted", "clairvoyant"])
@pytest.mark.parametrize("index", ["gittins", "serpt"])
def test_gittins_gives_the_keys_of_the_policy(information, index):
    """Both are told of the same events; the policy's keys are taken as it makes them."""

    class Told(Gittins):
        def on_arrival(self, view, request):
            super().on_arrival(view, request)
            known = Known(
                str(request), len(seen), view.arrival_ns[request], view.prompt_tokens[request], 0,
                int(self.service_class[request]), lengths and lengths[request],
            )  # fmt: skip
            seen[request] = known
            found.append((self.keys[request], order.key(known, len(view.running))))

        def on_finish(self, view, request, client):
            origins = self.workers[view.index].origin.items()
            ages = [(seen[k], view.rounds - origin) for k, origin in origins if k != request]
            order.on_finish(seen[request], outputs[request], ages)
            super().on_finish(view, request, client)

    n = 150
    outputs = [1 + row * row % 97 for row in range(n)]
    predicted = [max(1, each + (-1) ** each * each // 3) for each in outputs]
    lengths = {"none": None, "predicted": predicted, "clairvoyant": outputs}[information]
    requests = orsched.Requests(
        [1 + row * 7 % 50 for row in range(n)], outputs, predicted_tokens=predicted,
        arrival_ns=[row * 40_000_000 for row in range(n)],
        service_class=[row % 2 for row in range(n)],
    )  # fmt: skip
    worker = orsched.Worker(8, AffineCost())
    instance = orsched.Instance(requests, worker, "prefill", output_limit_tokens=200)
    settings = {"information": information, "index": index, "batch_weight": 0.5}
    order = started(order="gittins", **settings).order
    seen, found = {}, []
    params = GittinsParams(index=index, batch_weight=0.5)
    policy = Told(params, Information(information), requests.service_class)
    simulate_policy(instance, policy)
    assert len(found) == n
    assert all(a == b for a, b in found)
    assert len({a - r for (a, _), r in zip(found, requests.arrival_ns, strict=True)}) > 10


def test_gittins_takes_its_prices_from_a_cost_file(tmp_path):
    save_cost(in_order(AffineCost, 1, 10**6, 1, 1), tmp_path / "cost.json")
    keys = {}
    for cost in (None, str(tmp_path / "cost.json")):
        registry = started(order="gittins", cost=cost)
        keys[cost] = [registry.put(request(n, prompt=n), 0)[0] for n in (1, 11)]
    dear = keys[str(tmp_path / "cost.json")]
    assert dear[1] - dear[0] == pytest.approx(30 * 10 * 10**6, rel=0.5)
    assert keys[None] != dear


class Backwards(Order):
    def key(self, request, running):
        return -request.place


def test_an_order_of_ones_own_by_module_and_class(monkeypatch):
    monkeypatch.setitem(sys.modules, "own_order", SimpleNamespace(Backwards=Backwards))
    queue = queue_of(started(order="own_order:Backwards"))
    for name in "abc":
        queue.add_request(request(name))
    assert names(queue) == ["c", "b", "a"]


@pytest.mark.parametrize(("settings", "problem"), [
    ({}, "no order is named"), ({"order": 3}, "no order is named"),
    ({"order": "lifo"}, "unknown order 'lifo'"), ({"order": "nowhere:Order"}, "nowhere"),
    ({"order": ":Order"}, "module:Class"), ({"order": ".orders:Order"}, "module:Class"),
    ({"order": "orsched:Nobody"}, "Nobody"), ({"order": "builtins:dict"}, "is not a subclass"),
    ({"order": "fcfs", "aging_s": 1}, "FirstCome"), ({"order": "sjf", "aging_s": -1}, "negative"),
    ({"order": "gittins", "information": "some"}, "some"),
    ({"order": "gittins", "gate": 3}, "gate"), ({"order": "gittins", "index": "best"}, "best"),
    ({"order": "gittins", "cost": "/nowhere/cost.json"}, "nowhere"),
])  # fmt: skip
def test_settings_that_are_wrong_are_refused(settings, problem):
    refused(problem, make_order, settings)


@pytest.mark.parametrize("name", ORDERS)
def test_an_order_can_be_made_without_parameters(name):
    assert isinstance(make_order({"order": name}), Order)
