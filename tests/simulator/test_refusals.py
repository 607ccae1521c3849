"""What no step may be: each is refused by name, here and by the naive simulator."""

import numpy as np
import pytest

import orsched
from orsched import BlockMemory, Instance, Policy, PolicyError, Requests, Worker
from orsched.data.step import FOREVER, Step, Wait, batch_rounds, decode_rounds, evict, prefill_stage
from orsched.heuristics.pang import FirstComeFirstServed
from orsched.instances.catalog import generate
from orsched.simulator import simulate_policy
from tests.oracle import oracle
from tests.simulator.scripted import OneByOne, Script, small


def chunk(request, tokens, **fields):
    return Step(prefill=[request], tokens=[tokens], **{"decode": (), **fields})


BOTH = prefill_stage([0, 1])
PAGES = {"memory": BlockMemory(6, 2, "paged")}

IMPOSSIBLE = {
    "busy client": ([prefill_stage([0], [0]), prefill_stage([1], [0])], "client 0"),
    "one client twice": ([prefill_stage([0, 1], [1, 1])], "client 1"),
    "no such client": ([prefill_stage([0], [2])], "client 2"),
    "negative client": ([prefill_stage([0], [-1])], "client -1"),
    "fewer clients than requests": ([prefill_stage([0, 1], [0])], "1 clients for 2"),
    "no free client": ([prefill_stage([0, 1, 2])], "3 requests for 2"),
    "no such request": ([prefill_stage([3])], "does not exist"),
    "negative request": ([prefill_stage([-1])], "does not exist"),
    "twice in a stage": ([prefill_stage([0, 0])], "request 0"),
    "prefilled while running": ([prefill_stage([0]), prefill_stage([0])], "request 0"),
    "prefilled after its end": ([BOTH, decode_rounds(), prefill_stage([0])], "request 0"),
    "not arrived": ([BOTH], "not arrived", {"arrivals": [0, 4, 4]}),
    "over the cap": ([BOTH], "cap", {"prefill_cap_tokens": 10}),
    "over memory": ([BOTH], "blocks", {"memory": BlockMemory(18, 1, "whole")}),
    "decode of nobody": ([decode_rounds()], "without a running request"),
    "nothing at all": ([Step(decode=())], "without a request"),
    "no rounds of some": ([prefill_stage([0]), Step(rounds=0)], "0 rounds"),
    "a wait with nothing to come": ([None], "waits"),
    "a wait with work left": ([prefill_stage([0]), decode_rounds(), None], "waits"),
    "chunk beyond the prefill": ([chunk(0, 6)], "5 left to prefill"),
    "chunk beyond the rest": ([chunk(0, 2), chunk(0, 4)], "3 left to prefill"),
    "chunk of nothing": ([chunk(0, 0)], "0 tokens of request 0"),
    "chunk after the prefill": ([prefill_stage([0]), chunk(0, 1)], "request 0"),
    "too few chunks": ([Step([0, 1], tokens=[1], decode=())], "1 numbers of tokens for 2"),
    "restart beyond the prefill": (
        [BOTH, decode_rounds(1), evict([0]), chunk(0, 7)],
        "6 left to prefill",
    ),
    "chunks twice in a step": ([chunk(0, 1), Step([0, 0], decode=())], "twice"),
    "client for a request that has one": (
        [chunk(0, 1), chunk(0, 1, clients=[1])],
        "1 clients for 0",
    ),
    "decode of an unprefilled request": (
        [chunk(0, 2), prefill_stage([1]), Step(decode=[0])],
        "prefill is not complete",
    ),
    "decode of a waiting request": ([BOTH, Step(decode=[2])], "request 2 is not on"),
    "decode twice": ([BOTH, Step(decode=[0, 0])], "twice"),
    "decode of no such request": ([BOTH, Step(decode=[3])], "request 3"),
    "decode while in prefill": ([chunk(0, 2), decode_rounds()], "without a running"),
    "decode of what is evicted": ([BOTH, Step(preempt=[0], decode=[0])], "request 0"),
    "decode after all are evicted": ([BOTH, Step(preempt=[0, 1])], "without a running"),
    "eviction of a waiting request": ([BOTH, evict([2])], "request 2 .*cannot be evicted"),
    "eviction twice": ([BOTH, evict([0, 0])], "cannot be evicted"),
    "eviction of no such request": ([evict([-1])], "cannot be evicted"),
    "pages overflow by a prefill": ([BOTH, chunk(2, 2)], "memory blocks", {**PAGES, "clients": 3}),
    "pages overflow by a round": ([BOTH, decode_rounds()], "evict", PAGES),
    "pages overflow by a mixed step": (
        [prefill_stage([0]), Step(prefill=[1])],
        "memory blocks",
        PAGES,
    ),
    "padded pages overflow": (
        [chunk(2, 7), chunk(0, 1)],
        "memory blocks",
        {**PAGES, "padding": True},
    ),
    "padded chunks over the cap": (
        [Step([0, 2], tokens=[1, 6], decode=())],
        "12 tokens exceeds the cap 11",
        {"padding": True, "prefill_cap_tokens": 11},
    ),
    "mixed rounds": ([prefill_stage([0]), Step([1], rounds=2)], "2 rounds"),
    "a prefill of several rounds": ([Step([0], decode=(), rounds=2)], "2 rounds"),
    "a prefill for ever": ([Step([0], decode=(), rounds=FOREVER)], "rounds"),
    "held rounds of some": ([BOTH, Step(decode=[0], hold=True)], "static batch"),
    "held rounds of nobody": ([chunk(0, 1), batch_rounds()], "without a running"),
    "held prefill": ([prefill_stage([0]), Step([1], hold=True)], "hold"),
    "no rounds": ([BOTH, Step(rounds=0, hold=True)], "0 rounds"),
    "a wait that is over": ([BOTH, Wait(18), Wait(18)], "not in the future"),
    "a wait for ever": ([BOTH, None], "waits"),
}


@pytest.mark.parametrize("case", IMPOSSIBLE)
def test_impossible_steps_are_refused_by_name(case):
    """INV-1, INV-3, INV-6, INV-7: the executor takes no step that would break them."""
    steps, words, *fields = IMPOSSIBLE[case]
    instance = small(**(fields[0] if fields else {}))
    with pytest.raises(PolicyError, match=words) as caught:
        simulate_policy(instance, Script(*steps))
    assert "policy script, step" in str(caught.value)
    with pytest.raises(PolicyError):
        oracle(instance, Script(*steps))


OTHERS = {
    "prefill": ([prefill_stage([0])], "request 0"),
    "decode": ([prefill_stage([1]), Step(decode=[0])], "request 0 is not on"),
    "eviction": ([evict([0])], "request 0 .*cannot be evicted"),
}


@pytest.mark.parametrize("case", OTHERS)
def test_a_worker_is_not_asked_for_another_s_requests(case):
    steps, words = OTHERS[case]
    with pytest.raises(PolicyError, match=words) as caught:
        simulate_policy(small(workers=2), Script(prefill_stage([0]), others=[steps]))
    assert "worker-1" in str(caught.value)
    with pytest.raises(PolicyError):
        oracle(small(workers=2), Script(prefill_stage([0]), others=[steps]))


@pytest.mark.parametrize("workers", [1, 2])
def test_nobody_is_asked_for_an_instance_without_requests(workers):
    class Unasked(Script):
        def decide(self, view):
            raise AssertionError("there is nothing to decide")

    instance = small(workers=workers).replace(requests=Requests([], []))
    assert len(simulate_policy(instance, Unasked(others=[[]])).schedule.steps) == 0


def test_workers_that_all_wait_are_refused():
    for execute in (simulate_policy, oracle):
        policy = Script(prefill_stage([0]), decode_rounds(), others=[[None]])
        words = "waits, but 2 requests are unfinished" if execute is simulate_policy else None
        with pytest.raises(PolicyError, match=words):
            execute(small(workers=2), policy)


def test_a_policy_for_one_worker_is_refused_on_several():
    with pytest.raises(PolicyError, match="fcfs is for one worker, the instance has 2"):
        simulate_policy(small(workers=2), FirstComeFirstServed())
    assert len(simulate_policy(small(), FirstComeFirstServed()).schedule.steps)


@pytest.mark.parametrize("arrivals", [[0, 0, 0], [0, 0, 5_000_000]])
@pytest.mark.parametrize("worker", [2, -1, 0.5, "b"])
def test_a_worker_that_does_not_exist_gets_no_request(arrivals, worker):
    class Lost(Policy):
        name, many_workers, assigns = "lost", True, True

        def on_arrival(self, view, request):
            return worker if request == 2 else 0

        def decide(self, view):
            return None

    requests = Requests([1, 1, 1], [1, 1, 1], arrival_ns=arrivals)
    instance = Instance(requests, [Worker(1), Worker(1, name="b")], first_token="decode")
    with pytest.raises(PolicyError, match=f"for worker {worker!r}, but the workers are 2"):
        simulate_policy(instance, Lost())


class Answers(OneByOne):
    """Gives ``running`` once a request runs, and ``first`` before."""

    name, many_workers = "answers", False

    def __init__(self, first=None, running=None):
        super().__init__()
        self.first, self.running = first, running

    def decide(self, view):
        given = self.running if view.running else self.first
        return super().decide(view) if given is None else given


@pytest.fixture
def instance():
    return orsched.load("two-by-two")


NO_STAGE = {
    "step 0 at 0 ns": [
        ("abc", "'abc' (str), which is not a Step"), (7, "7 (int), which is not a Step"),
        ((1, 2), "not a Step"), (prefill_stage("ab"), "prefill is 'ab' (str)"),
        (prefill_stage(3), "prefill is 3 (int)"),
        (prefill_stage([0.0]), "prefill holds 0.0 (float)"),
        (prefill_stage(["0"]), "prefill holds '0' (str)"),
        (prefill_stage(np.array([0])), "(ndarray)"), (prefill_stage(np.array([0, 1])), "(ndarray)"),
        (prefill_stage([0], "a"), "clients is 'a' (str)"),
        (prefill_stage([0], 1), "clients is 1 (int)"), (prefill_stage([]), "without a request"),
        (prefill_stage([10**30]), "does not exist"),
    ],
    "step 1 at": [
        (decode_rounds(1.5), "rounds is 1.5 (float)"), (decode_rounds("x"), "rounds is 'x' (str)"),
        (decode_rounds(-1), "a decode stage of -1 rounds"), (Step(until="x"), "until is 'x' (str)"),
    ],
}  # fmt: skip
NO_STAGES = [(when, *row) for when, rows in NO_STAGE.items() for row in rows]


@pytest.mark.parametrize(("when", "answer", "named"), NO_STAGES)
def test_what_is_no_step_is_named(instance, when, answer, named):
    given = {"first" if when == "step 0 at 0 ns" else "running": answer}
    with pytest.raises(PolicyError, match=f"policy answers, {when}") as raised:
        simulate_policy(instance, Answers(**given))
    assert named in str(raised.value)


def test_a_policy_s_own_errors_are_left_as_they_are(instance):
    class Own(Answers):
        def decide(self, view):
            raise TypeError("mine")

    class Hook(Answers):
        def on_finish(self, view, request, client):
            raise ValueError("mine")

    for policy, kind in ((Own(), TypeError), (Hook(), ValueError)):
        with pytest.raises(kind, match="mine"):
            simulate_policy(instance, policy)


@pytest.mark.parametrize("kind", [np.int64, np.int32, np.uint8])
def test_numpy_numbers_in_lists_count_as_whole_numbers(instance, kind):
    class Numbers(Answers):
        def decide(self, view):
            step = super().decide(view)
            stage = prefill_stage([self.kind(request) for request in step.prefill])
            return stage if step.prefill else decode_rounds(self.kind(3))

    schedules = []
    for Numbers.kind in (int, kind):
        schedules.append(simulate_policy(instance, Numbers()).schedule)
    assert schedules[0] == schedules[1]


def test_the_deadline_is_asked_while_requests_arrive():
    instance = generate("gsm8k", requests=5000, clients=2)
    asked = []

    def stop():
        asked.append(True)
        raise orsched.TimeLimitError("over")

    class Late(Answers):
        def decide(self, view):
            raise AssertionError("the time was over before")

    with pytest.raises(orsched.TimeLimitError):
        simulate_policy(instance, Late(), deadline=stop)
    assert asked == [True]
