"""Random instances far from the typical ones: every cost model, extreme coefficients and limits.

Drawn from a seed, without Hypothesis: for long sweeps where no failing case needs to be shrunk.
"""

from contextlib import suppress
from dataclasses import replace

from orsched import BlockMemory, InputError, Instance, Requests, Worker
from orsched.costs import AffineCost, BilinearCost, LevelsCost, PoolingCost, RooflineCost
from tests.in_order import in_order

_SIZES = {"none": 0, "one": 1, "small": 20, "middle": 10**4, "large": 10**8, "huge": 10**16}
_MIXTURES = (
    ("none", "small"), ("one",), ("small", "middle"), ("none", "one", "small", "middle", "large"),
    ("large",), ("none", "huge"),
)  # fmt: skip


def random_instance(rng, most=5, longest=6):
    """Return a feasible instance; its times fit, whatever the coefficients."""
    while True:
        with suppress(InputError):  # too long for 64 bits
            return _instance(rng, rng.randint(1, most), longest)


def _instance(rng, n, longest):
    prompts = _column(rng, n, rng.choice((1, 3, 9, 30, 300)))
    outputs = _column(rng, n, rng.choice((1, 2, longest)))
    cost = _cost(rng, max(prompts))
    arrivals = [0] * n
    if rng.random() < 0.6:
        unit = 1 + cost.prefill_ns([1]) + cost.round_ns(1, 2, 2)
        spread = rng.choice((1, 3, 20)) * unit
        arrivals = [rng.choice((0, rng.randint(0, spread))) for _ in range(n)]
        arrivals[0] = arrivals[-1]
    limit = max(outputs) + rng.choice((0, 0, rng.randint(0, 10)))
    memory = None
    if rng.random() < 0.4:
        tokens = rng.choice((1, 2, 5, 16))
        least = -(-(max(prompts) + limit) // tokens)
        memory = BlockMemory(rng.randint(least, 3 * least), tokens, "whole")
    cap = rng.choice((None, rng.randint(max(prompts), 3 * max(prompts))))
    worker = Worker(rng.choice((1, 2, 3, n, n + 3, 50)), cost, cap, memory)
    predicted = [rng.choice((1, rng.randint(1, 3 * longest), 10**6)) for _ in range(n)]
    requests = Requests(prompts, outputs, arrival_ns=arrivals, predicted_tokens=predicted)
    return Instance(requests, worker, rng.choice(("decode", "prefill")), output_limit_tokens=limit)


def random_batching_instance(rng, most=8, longest=6):
    """Return a feasible instance with 1 to 4 workers of every kind: padding, pages, tight memory.

    Every worker can hold every request, the largest of them perhaps only alone.
    """
    n = rng.randint(1, most)
    prompts = _column(rng, n, rng.choice((1, 3, 9, 30)))
    outputs = _column(rng, n, rng.choice((1, longest, longest, 3 * longest)))
    limit = max(outputs) + rng.choice((0, 0, rng.randint(0, 10)))
    prompt = max(prompts)
    workers = [
        _batching_worker(rng, n, prompt, prompt + limit, f"worker-{index}")
        for index in range(rng.choice((1, 1, 1, 2, 2, 3, 4)))
    ]
    if rng.random() < 0.3:
        workers = workers[:1] * len(workers)
    units = [1 + w.cost.prefill_ns([1]) + w.cost.round_ns(1, 2, 2) for w in workers]
    arrivals = [0] * n
    if rng.random() < 0.7:
        unit = rng.choice(units)
        moments = [rng.randint(0, rng.choice((1, 3, 20)) * unit) for _ in range(rng.randint(1, 4))]
        arrivals = [rng.choice((0, *moments)) for _ in range(n)]
    predicted = _column(rng, n, 3 * longest)
    requests = Requests(prompts, outputs, arrival_ns=arrivals, predicted_tokens=predicted)
    rule = rng.choice(("decode", "prefill"))
    return Instance(requests, tuple(workers), rule, output_limit_tokens=limit)


def _batching_worker(rng, n, prompt, most, name):
    mixtures = _MIXTURES[:-1]  # evictions make schedules long: the largest times would not fit
    memory = None
    allocation = rng.choice((None, "whole", "paged", "paged"))
    if allocation is not None:
        tokens = rng.choice((1, 2, 5, 16))
        least = -(-most // tokens)
        more = rng.choice((0, 0, 1, rng.randint(0, 2 * least)))
        memory = BlockMemory(least + more, tokens, allocation)
    return Worker(
        rng.choice((1, 2, 3, 3, 5, n + 1)), _cost(rng, prompt, mixtures),
        rng.choice((None, prompt, rng.randint(prompt, 3 * prompt))), memory, name,
        padding=rng.random() < 0.4,
    )  # fmt: skip


def _column(rng, n, most):
    return [rng.randint(1, most) for _ in range(n)]


def _cost(rng, longest_prompt, mixtures=_MIXTURES):
    mixture = rng.choice(mixtures)

    def draw(count):
        return [rng.randint(0, _SIZES[rng.choice(mixture)]) for _ in range(count)]

    model = rng.randrange(5)
    if model == 0:
        return in_order(AffineCost, *draw(4))
    if model == 1:
        caps = {rng.randint(longest_prompt, 4 * longest_prompt + 8) for _ in range(3)}
        caps |= {rng.randint(1, longest_prompt)}
        levels = tuple(zip(sorted(caps), sorted(draw(len(caps))), strict=True))
        cost = in_order(LevelsCost, levels, *draw(1))
    elif model == 2:
        cost = in_order(BilinearCost, *draw(8))
    elif model == 3:
        cost = in_order(PoolingCost, *draw(5))
    else:
        cost = in_order(RooflineCost, *draw(5))
    return cost.scaled(rng.choice((1, 1, 7)))


def unpadded(instance):
    """The instance with workers that do not pad: what iteration-level policies serve."""
    return instance.replace(workers=tuple(replace(w, padding=False) for w in instance.workers))
