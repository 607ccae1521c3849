"""For each kind of violation: a valid schedule is broken in that way."""

import json

import pytest

from orsched import BlockMemory, InputError, LevelsCost, Steps, Work, summarise
from orsched.checker import Violation, ViolationKind, check
from orsched.models.bounds.bounds import makespan_bound
from tests.checker import valid
from tests.checker.valid import built, edited, kinds, leaves, problem, with_leaf, with_step
from tests.simulator.instances import ContextCost

# Three requests on two clients: worker, phase, idle time before, duration, rounds.
STEPS = (
    (0, 0, 0, 48, 1),  # prefill of requests 0 and 1: 30 + 2 (4 + 5)
    (0, 1, 0, 54, 2),  # 2 (17 + 5 * 2); request 0 is done
    (0, 0, 0, 42, 1),  # prefill of request 2 on client 0: 30 + 2 * 6
    (0, 1, 0, 27, 1),  # request 1 is done
    (0, 1, 0, 22, 1),
)
# Request, client, phase, first and last step, tokens.
WORK = (
    (0, 0, 0, 0, 0, 4), (0, 0, 1, 1, 1, 1), (1, 1, 0, 0, 0, 5), (1, 1, 1, 1, 3, 1),
    (2, 0, 0, 2, 2, 6), (2, 0, 1, 3, 4, 1),
)  # fmt: skip
RESULTS = {
    "makespan_ns": 193,
    "busy_client_ns": 322,  # (48 + 54) + (48 + 54 + 27) + (42 + 27 + 22)
    "slot_utilization": 322 / 386,
    # Request 1 sits through the second prefill; client 1 is done 22 ns before the end.
    "bubble_ns": {
        "waiting_for_prefill": 0, "other_prefill": 42, "no_request": 0, "tail": 22, "invalid": 0,
    },
    "prefill_stages": 2, "mixed_steps": 0, "decode_rounds": 4, "prompt_tokens": 15,
    "output_tokens": 7, "invalid_tokens": 0, "pad_tokens": 0, "restarts": 0,
    "batch_size": {"prefill": 3 / 2, "decode": 7 / 4},  # rounds of 2, 2, 2 and 1
    "worker_end_ns": {"min": 193, "max": 193, "std": 0.0},
    "kv_blocks": None,
    "tokens_per_s": 7 * 10**9 / 193,
    "ttft_ns": {"mean": 321 / 3, "p50": 75, "p90": 171, "p95": 171, "p99": 171, "max": 171},
    "jct_ns": {"mean": 466 / 3, "p50": 171, "p90": 193, "p95": 193, "p99": 193, "max": 193},
    "tpot_ns": {"mean": 97 / 3, "p50": 27, "p90": 48, "p95": 48, "p99": 48, "max": 48},
    "slo": {"ttft_ns": 100, "tpot_ns": 27, "attained": 1, "attainment": 1 / 3},
    "bound_ns": None, "gap": None,
}  # fmt: skip


def by_hand(steps=None, work=None, **fields):
    """The problem and the schedule of the tables above, with rows changed."""
    instance = problem()
    return instance, built(instance, edited(STEPS, steps), edited(WORK, work), **fields)


def test_the_schedule_by_hand_is_valid():
    """INV-15: and its numbers are those worked out by hand."""
    assert check(*by_hand(results=RESULTS)) == []
    assert RESULTS["busy_client_ns"] + sum(RESULTS["bubble_ns"].values()) == 2 * 193


def broken(told, steps=None, work=None, **fields):
    """Kinds of violations; another problem, or a schedule with other rows."""
    instance = problem(**fields)
    return set(told.split()), instance, built(instance, edited(STEPS, steps), edited(WORK, work))


BROKEN = {
    "a request is missing": broken("completeness", prompts=(4, 5, 6, 1), outputs=(2, 3, 2, 1)),
    "a request is never decoded": broken("completeness time empty_stage", work={5: None}),
    "an unknown request": broken("completeness time empty_stage", prompts=(4, 5), outputs=(2, 3)),
    "a request is prefilled twice": broken(
        "completeness contiguity", {2: (0, 0, 0, 50, 1)},
        (*WORK[:2], (0, 2, 0, 2, 2, 4), *WORK[2:]), clients=3,
    ),
    "too few rounds in two rows": broken(
        "completeness", {1: (0, 1, 0, 27, 1)},
        (*WORK[:3], (1, 1, 1, 1, 1, 1), (1, 1, 1, 3, 3, 1), *WORK[4:]),
    ),
    "too few output tokens": broken("completeness", outputs=(2, 3, 3)),
    "too many output tokens": broken("completeness", outputs=(2, 3, 1)),
    "the first token comes from the prefill": broken("completeness", rule="prefill"),
    "a part of the prompt": broken("completeness time", work={0: (0, 0, 0, 0, 0, 3)}),
    "two tokens a round": broken("completeness", work={1: (0, 0, 1, 1, 1, 2)}),
    "two requests on a client": broken(
        "client_overlap", work={4: (2, 1, 0, 2, 2, 6), 5: (2, 1, 1, 3, 4, 1)}
    ),
    "two requests on a client from their prefills": broken(
        "client_overlap", ((0, 0, 0, 38, 1), (0, 0, 0, 40, 1), (0, 1, 0, 54, 2)),
        ((0, 0, 0, 0, 0, 4), (0, 0, 1, 2, 2, 1), (1, 0, 0, 1, 1, 5), (1, 0, 1, 2, 2, 1)),
        prompts=(4, 5), outputs=(2, 2),
    ),
    "a client that does not exist": broken(
        "client_range", work={4: (2, 2, 0, 2, 2, 6), 5: (2, 2, 1, 3, 4, 1)}
    ),
    "a worker that does not exist": broken(
        "worker_range empty_stage", tuple((1, *step[1:]) for step in STEPS)
    ),
    "steps that overlap": broken("stage_exclusivity", {2: (0, 0, -1, 42, 1)}),
    "a step that ends before it starts": broken("stage_exclusivity time", {4: (0, 1, 0, -1, 1)}),
    "a prefill stage for nobody": broken("empty_stage", (*STEPS, (0, 0, 0, 30, 1))),
    "a prefill stage for nobody amid decoding": broken(
        "empty_stage", (*STEPS[:2], (0, 0, 0, 5, 1), *STEPS[2:]),
        (*WORK[:3], (1, 1, 1, 1, 4, 1), (2, 0, 0, 3, 3, 6), (2, 0, 1, 4, 5, 1)),
    ),
    "a decode stage for nobody": broken("empty_stage", (*STEPS, (0, 1, 0, 17, 1))),
    "a prefill stage of two rounds": broken("phase", {0: (0, 0, 0, 48, 2)}),
    "decoding in a prefill step": broken(
        "phase order time empty_stage", work={5: (2, 0, 1, 2, 4, 1)}
    ),
    "a prefill over several steps": broken(
        "phase time contiguity", work={0: (0, 0, 0, 0, 2, 4)}
    ),
    "a stay without a prefill": broken(
        "contiguity completeness empty_stage", work={4: None, 5: (2, 0, 1, 3, 4, 1)}
    ),
    "another client for decoding": broken("contiguity", work={5: (2, 2, 1, 3, 4, 1)}, clients=3),
    "decoding before the prefill": broken(
        "contiguity", ((0, 0, 0, 38, 1), (0, 1, 0, 27, 1), (0, 0, 0, 40, 1)),
        ((0, 0, 0, 0, 0, 4), (0, 0, 1, 1, 1, 1), (1, 1, 1, 1, 1, 1), (1, 1, 0, 2, 2, 5)),
        prompts=(4, 5), outputs=(1, 1),
    ),
    "over the prefill cap": broken("prefill_cap", prefill_cap_tokens=8),
    "over the cost model's limit": broken(
        "prefill_cap time", cost=LevelsCost(levels=((8, 48),), round_fixed_ns=27)
    ),
    "over memory": broken("memory", memory=BlockMemory(3, 4, "whole")),
    "before the arrival": broken("arrival", arrivals=(0, 0, 103)),
    "a decode stage too long": broken("time", {1: (0, 1, 0, 55, 2)}),
    "a prefill stage too short": broken("time", {2: (0, 0, 0, 41, 1)}),
    "rows out of order": broken("order", work=(WORK[1], WORK[0], *WORK[2:])),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN)
def test_broken_schedules_are_told_apart(case):
    """INV-1 to INV-7: what breaks one of them is called by its name (and its consequences)."""
    expected, instance, schedule = BROKEN[case]
    assert kinds(check(instance, schedule)) == expected


@pytest.mark.parametrize("fields", [
    {"prefill_cap_tokens": 9}, {"memory": BlockMemory(4, 4, "whole")}, {"arrivals": (0, 0, 102)},
    {"cost": LevelsCost(levels=((6, 42), (9, 48)), round_fixed_ns=27)},
])  # fmt: skip
def test_limits_that_are_just_met_are_kept(fields):
    steps = {4: (0, 1, 0, 27, 1)} if "cost" in fields else None
    assert check(*broken("", steps, **fields)[1:]) == []


def test_an_idle_worker_is_no_violation():
    """Time in which no step runs is allowed, and told apart among the bubbles."""
    instance, schedule = by_hand({2: (0, 0, 100, 42, 1), 4: (0, 1, 10, 22, 1)})
    results = summarise(instance, schedule)
    assert check(instance, schedule.replace(results=results)) == []
    # Client 0 is free for 100 ns and holds request 2 for 10; client 1 holds request 1 for 100.
    assert results["bubble_ns"] == {
        "waiting_for_prefill": 0, "other_prefill": 42, "no_request": 210, "tail": 32, "invalid": 0,
    }  # fmt: skip


def test_steps_are_in_order_of_start_then_worker():
    instance, schedule = valid.two_workers()
    first_two = schedule.steps.start_ns[:2].tolist(), schedule.steps.worker[:2].tolist()
    assert first_two == ([0, 0], [0, 1])
    swap = {0: 1, 1: 0}
    steps, work = schedule.steps, schedule.work
    order = [1, 0, *range(2, len(steps))]
    columns = {name: column[order] for name, column in vars(steps).items()}
    names = ("first_step", "last_step")
    places = {name: [swap.get(s, s) for s in getattr(work, name).tolist()] for name in names}
    work = Work(**{**vars(work), **places})
    changed = schedule.replace(steps=Steps(**columns), work=work, results={})
    assert kinds(check(instance, changed)) == {"stage_exclusivity"}


def test_a_request_stays_on_its_worker():
    instance, schedule = valid.two_workers()
    work = schedule.work
    rows = [row for row in range(len(work)) if work.phase[row] == 1]
    a, b = rows[0], next(r for r in rows if work.request[r] >= 5)
    columns = {name: column.copy() for name, column in vars(work).items()}
    for name in ("first_step", "last_step"):
        columns[name][[a, b]] = columns[name][[b, a]]
    found = check(instance, schedule.replace(work=Work(**columns), results={}))
    assert ViolationKind.CONTIGUITY in kinds(found)


def test_another_instance():
    instance, schedule = by_hand()
    (violation,) = check(instance, schedule.replace(instance_sha256="0" * 64))
    assert violation.to_dict() == {
        "kind": "instance", "message": "the schedule is for another instance",
        "field": "instance_sha256", "expected": instance.sha256, "found": "0" * 64,
    }  # fmt: skip


@pytest.mark.parametrize(("method", "information", "expected"), [
    ("online", "none", set()), ("online", "clairvoyant", {"information"}),
    ("somebody's policy", "clairvoyant", set()),
])  # fmt: skip
def test_a_method_that_knows_more_than_it_declares(method, information, expected):
    assert kinds(check(*by_hand(method=method, information=information))) == expected


def test_every_reported_number():
    """A wrong leaf of the results is one violation, which names it."""
    for path, value in leaves(RESULTS):
        wrong = with_leaf(RESULTS, path, 7 if value is None else value + 1)
        violations = check(*by_hand(results=wrong))
        if path[0] == "slo" and path[1].endswith("_ns"):
            continue  # another objective, under which the same requests may attain
        (violation,) = violations
        assert violation.kind is ViolationKind.RESULT
        assert violation.field == ".".join(("results", *path))
        assert violation.expected == value


def test_results_are_whole_or_absent():
    for name in RESULTS:
        part = {key: value for key, value in RESULTS.items() if key != name}
        (violation,) = check(*by_hand(results=part))
        assert (violation.kind, violation.field) == (ViolationKind.RESULT, f"results.{name}")
    assert check(*by_hand(results={})) == []
    more = check(*by_hand(results={**RESULTS, "speed": 1}))
    assert [v.field for v in more] == ["results.speed"]


def test_objectives_decide_what_is_attained():
    """TTFT is 75, 75 and 171; TPOT 27, 48 and 22."""
    for ttft, tpot, attained in [(75, 27, 1), (74, 99, 0), (75, 48, 2), (171, 48, 3), (171, 21, 0)]:
        slo = {"ttft_ns": ttft, "tpot_ns": tpot, "attained": attained, "attainment": attained / 3}
        assert check(*by_hand(results={**RESULTS, "slo": slo})) == []


def test_bounds():
    """INV-10: a bound is certified, not above the makespan, and agrees with the results."""
    bound = makespan_bound(problem()).to_dict()
    value = bound["value_ns"]
    assert 0 < value <= 193
    results = {**RESULTS, "bound_ns": value, "gap": (193 - value) / value}
    instance, good = by_hand(results=results, bound=bound)
    assert check(instance, good) == []
    for wrong in (
        *({**bound, **more} for more in ({"value_ns": value + 1}, {"value_ns": float(value)})),
        *({**bound, **more} for more in ({"name": "optimum"}, {"certificate": {}}, {"proof": 1})),
        {"name": bound["name"], "value_ns": value},
        with_leaf(bound, ("certificate", "requests"), 3.0),
        [bound],
    ):
        assert "bound" in kinds(check(instance, good.replace(bound=wrong)))
    assert kinds(check(instance, good.replace(bound=None))) == {"result"}


def test_a_bound_above_the_makespan():
    found = check(*by_hand(bound={"name": "too much", "value_ns": 194, "certificate": {}}))
    assert next(v for v in found if v.field == "bound.value_ns").expected == 193


def test_measured_times_are_taken_as_they_are():
    """The first token of a measured decode stage comes after an equal share of its time."""
    instance, schedule = by_hand({1: (0, 1, 3, 61, 2)})
    assert kinds(check(instance, schedule)) == {"time"}
    assert check(instance, schedule, times="measured") == []
    results = summarise(instance, schedule)
    assert check(instance, schedule.replace(results=results), times="measured") == []
    assert results["ttft_ns"]["p50"] == 48 + 3 + 30
    wrong = with_leaf(results, ("ttft_ns", "p50"), 48 + 3 + 31)
    assert kinds(check(instance, schedule.replace(results=wrong), times="measured")) == {"result"}


def test_a_measured_makespan_may_be_below_the_bound_of_the_model():
    bound = makespan_bound(problem()).to_dict()
    instance, fast = by_hand([(w, p, 0, 2 * r, r) for w, p, _, _, r in STEPS], bound=bound)
    assert check(instance, fast, times="measured") == []
    assert "bound" in kinds(check(instance, fast))


def test_unknown_times_are_refused():
    with pytest.raises(InputError, match="model or measured"):
        check(*by_hand(), times="guessed")


def test_rounds_are_priced_one_by_one_by_their_contexts():
    """Contexts are prompt plus rounds taken part in, this one included."""
    instance = problem((3, 2), (2, 3), cost=ContextCost(fixed=0, client=0, total=1, most=100))
    first, second, third = 4 + 3 + 400, 5 + 4 + 500, 5 + 500
    work = ((0, 0, 0, 0, 0, 3), (0, 0, 1, 1, 1, 1), (1, 1, 0, 0, 0, 2), (1, 1, 1, 1, 2, 1))
    steps = ((0, 0, 0, 20, 1), (0, 1, 0, first + second, 2), (0, 1, 0, third, 1))
    schedule = built(instance, steps, work)
    results = summarise(instance, schedule)
    assert results["ttft_ns"]["max"] == 20 + first
    assert check(instance, schedule.replace(results=results)) == []
    late = edited(steps, {1: (0, 1, 0, first + second + 1, 2)})
    (violation,) = check(instance, built(instance, late, work))
    assert (violation.kind, violation.step) == (ViolationKind.TIME, 1)
    assert (violation.expected, violation.found) == (first + second, first + second + 1)


def test_an_empty_instance():
    instance = problem((), ())
    schedule = built(instance, (), ())
    results = summarise(instance, schedule)
    assert results["ttft_ns"] is None
    assert check(instance, schedule.replace(results=results)) == []
    assert kinds(check(instance, built(instance, STEPS, WORK))) == {
        "completeness", "empty_stage",
    }  # fmt: skip


def test_many_violations_are_counted():
    instance = problem([4] * 500, [1] * 500)
    empty = built(instance, (), ())
    found = check(instance, empty)
    assert len(found) == 101
    assert found[-1].found == 400
    assert [v.request for v in found[:100]] == list(range(100))
    assert len(check(instance, empty, limit=None)) == 500
    assert check(instance, empty, limit=0)[0].found == 500


def test_violations_are_plain_json():
    for instance, schedule in valid.valid_schedules().values():
        broken = with_step(schedule, "end_ns", 0, 1).replace(bound=3)
        found = check(instance, broken)
        assert found
        for violation in found:
            assert isinstance(violation, Violation)
            text = json.dumps(violation.to_dict(), allow_nan=False)
            assert json.loads(text)["kind"] in set(ViolationKind)
            assert violation.kind.value in str(violation)


def test_every_kind_is_tested_here():
    told = set().union(*(expected for expected, *_ in BROKEN.values()))
    elsewhere = {"instance", "information", "result", "bound", "prefix_cache", "availability"}
    elsewhere |= {"transfer", "role"}
    assert told | elsewhere == set(ViolationKind)
