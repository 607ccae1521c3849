"""The policy contract: what policies may see, what they may ask for, what they are told."""

import numpy as np
import pytest
from hypothesis import given, settings

from orsched import AffineCost, BlockMemory, Instance, Requests, Worker, check, summarise
from orsched.common.errors import InfeasibleError, InputError, PolicyError
from orsched.data.step import ARRIVAL, FINISH, decode_rounds, prefill_stage
from orsched.heuristics.pang import FirstComeFirstServed
from orsched.simulator import simulate_policy
from orsched.simulator.policy import Information
from tests.in_order import in_order
from tests.simulator.instances import instances
from tests.simulator.listening import listening
from tests.simulator.policies import POLICIES
from tests.simulator.scripted import COST, Script, small

# -- information ------------------------------------------------------------------------------


def reachable(thing, seen):
    """Everything that can be reached from an object by attributes, items and buffers."""
    if id(thing) in seen or isinstance(thing, (type, str, bytes, int, float)):
        return
    seen[id(thing)] = thing
    parts = list(getattr(thing, "__dict__", {}).values())
    slots = (name for kind in type(thing).__mro__ for name in getattr(kind, "__slots__", ()))
    parts += [getattr(thing, name) for name in slots if hasattr(thing, name)]
    if isinstance(thing, memoryview):
        parts.append(thing.obj)
    elif isinstance(thing, np.ndarray):
        parts.append(thing.base)
    elif hasattr(thing, "items"):
        parts += [*thing.keys(), *thing.values()]
    elif isinstance(thing, (list, tuple, set, frozenset)):
        parts += list(thing)
    if callable(thing) and hasattr(thing, "__self__"):
        parts.append(thing.__self__)
    for part in parts:
        reachable(part, seen)


def columns_in(view):
    """All columns of whole numbers that a policy can reach through its view."""
    seen = {}
    reachable(view, seen)
    found = []
    for thing in seen.values():
        if isinstance(thing, (np.ndarray, memoryview, list, tuple)):
            try:
                column = np.asarray(thing)
            except ValueError:
                continue
            if column.dtype.kind in "iu":
                found.append(column.ravel().tolist())
    return found


class Spy(FirstComeFirstServed):
    """First come first served; crawls through its view at every decision."""

    def __init__(self, information):
        super().__init__()
        self.information = information
        self.columns, self.future = [], []

    def start(self, view):
        self.left = set(range(len(view.prompt_tokens)))
        self.look(view)

    def on_arrival(self, view, request):
        super().on_arrival(view, request)
        self.left.discard(request)

    def decide(self, view):
        self.look(view)
        return super().decide(view)

    def look(self, view):
        self.columns += columns_in(view)
        shown = [view.prompt_tokens, view.arrival_ns, getattr(view, "predicted_tokens", [])]
        self.future += [column[r] for column in shown for r in self.left if len(column)]
        if self.information is Information.PREDICTED:
            self.future += [each for r in self.left for each in view.predicted_quantiles(r)]
        self.future += [view.blocks_of(r) for r in self.left]


QUANTILES = [[2, 6], [7, 12], [8, 9], [1, 13]]


def secretive(first_token="decode"):
    requests = Requests(
        [2, 9, 4, 6], [3, 11, 7, 5], arrival_ns=[0, 20, 20, 90], predicted_tokens=[4, 10, 8, 6],
        predicted_quantiles=QUANTILES, quantile_levels=[0.1, 0.9],
    )  # fmt: skip
    worker = Worker(2, COST, memory=BlockMemory(40, 1, "whole"))
    return Instance(requests, worker, first_token=first_token, output_limit_tokens=13)


@pytest.mark.parametrize("rule", ["decode", "prefill"])
@pytest.mark.parametrize("information", ["none", "predicted"])
def test_no_true_length_is_within_reach(information, rule):
    """INV-8: neither the lengths, nor rounds, ends or blocks that would give them away."""
    instance = secretive(rule)
    spy = Spy(Information(information))
    simulate_policy(instance, spy)
    truth = instance.requests.output_tokens
    prompts = instance.requests.prompt_tokens
    secrets = [truth, truth - 1, prompts + truth, prompts + truth - 1, np.sort(truth)]
    for secret in secrets:
        assert secret.tolist() not in spy.columns
    quantiles = instance.requests.predicted_quantiles
    for predicted in (instance.requests.predicted_tokens, quantiles[:, 0], quantiles[:, 1]):
        shown = predicted.tolist() in spy.columns
        assert shown == (information == "predicted")
    # The crawl does find what is there.
    assert prompts.tolist() in spy.columns


@pytest.mark.parametrize("information", ["none", "predicted"])
def test_the_future_reads_as_zero(information):
    """INV-8: a request that has not arrived shows nothing of itself."""
    spy = Spy(Information(information))
    simulate_policy(secretive(), spy)
    assert spy.future
    assert set(spy.future) == {0}


@pytest.mark.parametrize("information", ["none", "clairvoyant"])
def test_distributions_are_for_those_who_may_know_predictions(information):
    """INV-8: without that information a policy finds neither the quantiles nor their levels."""

    class Curious(FirstComeFirstServed):
        name = "curious"

        def decide(self, view):
            for name in ("predicted_tokens", "predicted_quantiles", "quantile_levels"):
                with pytest.raises(AttributeError):
                    getattr(view, name)
            return super().decide(view)

    Curious.information = Information(information)
    assert check(secretive(), simulate_policy(secretive(), Curious()).schedule) == []


def test_a_distribution_is_shown_when_its_request_arrives():
    """Before, its quantiles read as 0, as all else does."""

    class Reads(FirstComeFirstServed):
        information = Information.PREDICTED
        seen = ()

        def on_arrival(self, view, request):
            super().on_arrival(view, request)
            self.levels = view.quantile_levels
            self.seen = [*self.seen, [view.predicted_quantiles(each) for each in range(4)]]

    policy = Reads()
    simulate_policy(secretive(), policy)
    assert policy.levels == (0.1, 0.9)
    assert policy.seen == [QUANTILES[:k] + [[0, 0]] * (4 - k) for k in (1, 2, 3, 4)]
    requests = secretive().requests.replace(predicted_quantiles=None)
    policy.seen = ()
    simulate_policy(secretive().replace(requests=requests), policy)
    assert policy.levels == ()
    assert policy.seen == [[[]] * 4] * 4


def test_clairvoyant_policies_see_lengths_and_future_from_the_start():
    class Seer(FirstComeFirstServed):
        information = Information.CLAIRVOYANT

        def start(self, view):
            columns = (view.output_tokens, view.prompt_tokens, view.arrival_ns)
            self.seen = [list(column) for column in columns]
            self.blocks = [view.blocks_of(request) for request in range(4)]

    policy = Seer()
    simulate_policy(secretive(), policy)
    assert policy.seen == [[3, 11, 7, 5], [2, 9, 4, 6], [0, 20, 20, 90]]
    assert policy.blocks == [5, 20, 11, 11]


def test_all_views_share_one_tuple_of_workers():
    """A copy for each would take the square of the workers: gigabytes for 20,000."""

    class Looks(FirstComeFirstServed):
        many_workers = True

        def start(self, view):
            self.shared = [other.workers is view.workers for other in view.workers]
            super().start(view)

    policy = Looks()
    three = (Worker(clients=1),) * 3
    simulate_policy(Instance(Requests([1, 1], [1, 1]), three, first_token="decode"), policy)
    assert policy.shared == [True, True, True]


def test_views_are_read_only():
    """INV-8: a policy changes nothing of what it sees."""

    class Vandal(FirstComeFirstServed):
        information = Information.PREDICTED
        refused = 0

        def decide(self, view):
            for column in (view.prompt_tokens, view.arrival_ns, view.predicted_tokens):
                with pytest.raises(TypeError):
                    column[0] = 1
                self.refused += 1
            with pytest.raises(TypeError):
                view.running[0] = 0
            for name in ("now_ns", "rounds", "free_clients", "blocks_free"):
                with pytest.raises(AttributeError):
                    setattr(view, name, 0)
            return super().decide(view)

    policy = Vandal()
    simulate_policy(secretive(), policy)
    assert policy.refused


def test_predictions_are_asked_for_before_the_run():
    with pytest.raises(InputError) as caught:
        simulate_policy(small(), POLICIES["shortest-predicted"]())
    assert caught.value.field == "predicted_tokens"


# -- memory and caps --------------------------------------------------------------------------


def test_a_stage_that_fills_memory_exactly_is_taken():
    """The limit is 4 output tokens: 5 + 4 and 6 + 4 blocks are set aside, 18 are too few."""
    instance = small(memory=BlockMemory(19, 1, "whole"))
    policy = Script(prefill_stage([0, 1]), decode_rounds(until=0), prefill_stage([2]))
    schedule = simulate_policy(instance, policy).schedule
    assert schedule.steps.phase.tolist() == [0, 1, 1, 0, 1]


@pytest.mark.parametrize(
    "worker", [{"prefill_cap_tokens": 6}, {"memory": BlockMemory(10, 1, "whole")}]
)
def test_infeasible_instances_are_refused_by_name(worker):
    with pytest.raises(InfeasibleError, match="request 2"):
        simulate_policy(small(**worker), FirstComeFirstServed())


# -- events -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arrival", "expected"),
    [
        # Prefill ends at 5, rounds end at 15, 25, 35; request 0 finishes at 25.
        (24, [("finish", 0, 25), ("arrival", 1, 25)]),
        (25, [("finish", 0, 25), ("arrival", 1, 25)]),
        (26, [("finish", 0, 25), ("arrival", 1, 26)]),
        (15, [("arrival", 1, 15), ("finish", 0, 25)]),
    ],
)
def test_finishes_are_told_before_arrivals(arrival, expected):
    """INV-14: at the end of a round first finishes, then arrivals up to that time."""
    instance = small((5, 6), (2, 3), arrivals=(0, arrival))
    between = [decode_rounds()] * (arrival == 15) + [None] * (arrival == 26)
    policy = Script(prefill_stage([0]), decode_rounds(), *between, prefill_stage([1]))
    simulate_policy(instance, policy)
    heard = [(event, request, moment) for event, request, _, moment in policy.told]
    assert heard == [("arrival", 0, 0), *expected, ("finish", 1, heard[-1][2])]


def test_requests_that_finish_together_are_told_in_order_of_row():
    policy = Script(prefill_stage([2, 0, 1]), decode_rounds())
    simulate_policy(small(outputs=(3, 3, 3), clients=3), policy)
    assert [call[:2] for call in policy.told] == [
        (event, request) for event in ("arrival", "finish") for request in range(3)
    ]


@pytest.mark.parametrize(
    ("step", "decisions"),
    [
        (decode_rounds(), 3),  # ends at 15 for the arrival, at 25 for the finish
        (decode_rounds(until=FINISH), 2),
        (decode_rounds(until=ARRIVAL), 2),
        (decode_rounds(until=0), 1),
        (decode_rounds(rounds=2, until=0), 2),
        (decode_rounds(rounds=1), 3),
    ],
)
def test_events_end_a_step(step, decisions):
    """A step ends after the round of an event that it names, or after its repeat count."""
    instance = small((3, 2, 1), (2, 3, 1), clients=2, arrivals=(0, 0, 14))
    taken = []
    policy = Script(prefill_stage([0, 1]), *[step] * decisions, prefill_stage([2]))
    look = lambda view, step: taken.append(view.rounds)  # noqa: E731
    schedule = simulate_policy(instance, policy, look).schedule
    before_last_prefill = schedule.work.first_step[schedule.work.request == 2][0]
    assert schedule.steps.rounds[1:before_last_prefill].sum() == 3
    assert len(taken) == decisions + 3


@settings(max_examples=25)
@given(instance=instances())
def test_every_hook_is_called_once_for_each_request(instance):
    """INV-14: arrival, first token and finish, in this order."""

    policy = listening(FirstComeFirstServed())
    simulate_policy(instance, policy)
    events = ["arrival", "first token", "finish"]
    heard = [call[:2] for call in policy.heard if call[0] in events]
    assert len(heard) == 3 * len(instance)
    for request in range(len(instance)):
        assert [event for event, row in heard if row == request] == events


# -- labels and limits --------------------------------------------------------------------------


@pytest.mark.parametrize("information", [Information.CLAIRVOYANT, "clairvoyant"])
def test_a_policy_cannot_relabel_what_it_was_shown(information):
    """INV-8: the schedule carries the information that the view granted, not a later claim."""

    class Turncoat(FirstComeFirstServed):
        def start(self, view):
            self.seen = list(view.output_tokens)
            self.information = Information.NONE

    policy = Turncoat()
    policy.information = information  # as text, too
    schedule = simulate_policy(small(), policy).schedule
    assert policy.seen == [2, 3, 4]
    assert schedule.information == "clairvoyant"


def test_a_policy_cannot_set_less_memory_aside():
    """INV-6: the executor counts blocks itself, whatever a policy makes of its view."""

    class Optimist(FirstComeFirstServed):
        def start(self, view):
            view.blocks_of = lambda request: 0

    with pytest.raises(PolicyError, match="memory blocks"):
        simulate_policy(small(memory=BlockMemory(11, 1, "whole")), Optimist())


def test_information_that_does_not_exist_is_refused():
    policy = FirstComeFirstServed()
    policy.information = "everything"
    with pytest.raises(PolicyError, match="'everything': one of none, predicted, clairvoyant"):
        simulate_policy(small(), policy)


@pytest.mark.parametrize("name", POLICIES)
def test_client_time_beyond_64_bits_is_exact(name):
    """INV-15: clients x makespan may exceed 64 bits where no single time does."""
    instance = Instance(
        Requests([1] * 8, [1] * 8, predicted_tokens=[1] * 8),
        Worker(50, in_order(AffineCost, 2**57, 0, 1, 0), prefill_cap_tokens=1),
        first_token="decode",
    )
    schedule = simulate_policy(instance, POLICIES[name]()).schedule
    results = summarise(instance, schedule)
    parts = [results["busy_client_ns"], *results["bubble_ns"].values()]
    assert sum(parts) == 50 * schedule.makespan_ns > 2**63
    assert min(parts) >= 0
    assert check(instance, schedule.replace(results=results)) == []
