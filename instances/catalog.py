"""Shipped instances and generators, by name; small ones with an optimum that is found by hand.

Small instances have one worker that prefills whole prompts and decodes all running requests, one
stage at a time. Unless said otherwise a prefill stage takes 10 ms + 1 ms a token, a round 20 ms +
1 ms an active client. Token-dependent time is then the same in every schedule, so with all arrivals
at 0 ``makespan = sum N^p + sum N^d + 10 K + 20 R`` ms (K prefill stages, R rounds), and the proofs
are about K and R only.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from orsched.common.errors import InputError, known_names
from orsched.common.units import NS_PER_MS
from orsched.costs import AffineCost
from orsched.costs.affine import LevelsCost
from orsched.data.instance import Instance
from orsched.data.memory import BlockMemory
from orsched.data.requests import Requests
from orsched.data.workers import Worker
from orsched.instances.conversations import chats, tool_rollouts
from orsched.instances.rollouts import rollouts
from orsched.instances.sources import sources
from orsched.instances.synthetic import gsm8k, pang_case, peers_workload, uniform

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


class KnownOptimum(NamedTuple):
    """An optimal makespan and why no schedule has a smaller one."""

    makespan_ns: int
    why: str


def affine_ms(
    prefill: int = 10, token: int = 1, one_round: int = 20, client: int = 1
) -> AffineCost:
    """Return an affine cost model from whole milliseconds."""
    return AffineCost(
        prefill_fixed_ns=prefill * NS_PER_MS,
        prefill_token_ns=token * NS_PER_MS,
        round_fixed_ns=one_round * NS_PER_MS,
        round_client_ns=client * NS_PER_MS,
    )


def _small(
    name: str,
    prompts: Sequence[int],
    outputs: Sequence[int],
    clients: int,
    *,
    arrivals_ms: Sequence[int] | None = None,
    first_token: str = "decode",
    **worker: Any,
) -> Instance:
    arrivals = [0] * len(prompts) if arrivals_ms is None else [a * NS_PER_MS for a in arrivals_ms]
    return Instance(
        Requests(list(prompts), list(outputs), arrival_ns=arrivals, predicted_tokens=list(outputs)),
        (Worker(clients, **{"cost": affine_ms(), **worker}),),
        first_token=first_token,
        name=name,
        description=KNOWN_OPTIMA[name].why,
        source="made by hand",
        licence="Apache-2.0",
    )


def one_request() -> Instance:
    """One request on one client."""
    return _small("one-request", [5], [3], 1)


def two_on_one_client() -> Instance:
    """Two requests, one after the other on the only client."""
    return _small("two-on-one-client", [5, 2], [3, 4], 1)


def all_fit() -> Instance:
    """Fewer requests than clients: nothing to decide."""
    return _small("all-fit", [4, 1, 2], [2, 3, 5], 4)


def two_by_two() -> Instance:
    """Four requests on two clients: equal lengths belong into one bin."""
    return _small("two-by-two", [1, 1, 1, 1], [3, 5, 3, 5], 2)


def three_jobs_two_clients() -> Instance:
    """A long request beside two short ones."""
    return _small("three-jobs-two-clients", [2, 2, 2], [3, 3, 6], 2)


def packing() -> Instance:
    """Five requests that fill two clients exactly in one way only."""
    return _small("packing", [1, 1, 1, 1, 1], [3, 3, 2, 2, 2], 2)


def gate() -> Instance:
    """The lengths of ``packing``, but a prefill stage is expensive: waiting pays."""
    return _small("gate", [1, 1, 1, 1, 1], [3, 2, 3, 2, 2], 2, cost=affine_ms(prefill=50))


def prefill_cap() -> Instance:
    """Two prompts that do not fit into one prefill stage."""
    return _small("prefill-cap", [6, 6], [3, 3], 2, prefill_cap_tokens=8)


def memory_bound() -> Instance:
    """Two requests that do not fit into memory together."""
    return _small("memory-bound", [6, 6], [4, 4], 2, memory=BlockMemory(3, 8, "whole"))


def first_token_prefill() -> Instance:
    """The prefill stage yields the first token."""
    return _small("first-token-prefill", [4, 2], [1, 3], 2, first_token="prefill")


def with_arrivals() -> Instance:
    """A second request arrives a moment after the first: waiting for it pays."""
    return _small("with-arrivals", [5, 5], [2, 2], 2, arrivals_ms=[0, 4])


def levels() -> Instance:
    """Prefill levels: three small stages are cheaper than a large one."""
    cost = LevelsCost(
        levels=((4, 10 * NS_PER_MS), (8, 30 * NS_PER_MS), (12, 70 * NS_PER_MS)),
        round_fixed_ns=20 * NS_PER_MS,
    )
    return _small("levels", [3, 3, 3], [2, 2, 2], 3, cost=cost)


KNOWN_OPTIMA = {
    "one-request": KnownOptimum(
        78 * NS_PER_MS,
        "One prefill stage of 10 + 5 ms and three rounds of 21 ms, with no other choice.",
    ),
    "two-on-one-client": KnownOptimum(
        174 * NS_PER_MS,
        "One client serves them one by one: K = 2 and R = 3 + 4 = 7 in either order; "
        "7 + 7 + 20 + 140 ms.",
    ),
    "all-fit": KnownOptimum(
        127 * NS_PER_MS,
        "One prefill stage starts all, and the longest request needs R = 5: both are least; "
        "7 + 10 + 10 + 100 ms. No queue, so no order can do better.",
    ),
    "two-by-two": KnownOptimum(
        200 * NS_PER_MS,
        "R >= 16 tokens / 2 clients = 8 and K >= 4 / 2 = 2; the bins {3, 3} and {5, 5} reach both; "
        "4 + 16 + 20 + 160 ms.",
    ),
    "three-jobs-two-clients": KnownOptimum(
        158 * NS_PER_MS,
        "R >= 6, the longest, and K >= 2; starting 6 and 3, then the other 3 after three rounds "
        "reaches both; 6 + 12 + 20 + 120 ms.",
    ),
    "packing": KnownOptimum(
        177 * NS_PER_MS,
        "R = 12 tokens / 2 clients = 6 needs 3 + 3 on one client and 2 + 2 + 2 on the other, so "
        "stages at rounds 0, 2, 3, 4: K = 4; 5 + 12 + 40 + 120 ms. With K = 3, the least for five "
        "requests, R is at least 7 (6 forces K = 4), which costs 20 ms more and saves 10.",
    ),
    "gate": KnownOptimum(
        307 * NS_PER_MS,
        "As in packing, K = 4 with R = 6 (337 ms) or K = 3 with R >= 7; here the bins {3, 3}, "
        "{2, 2}, {2} reach K = 3, R = 7, and the saved stage of 50 ms outweighs the round of 20: "
        "5 + 12 + 150 + 140 ms. K = 3 is the least for five requests on two clients.",
    ),
    "prefill-cap": KnownOptimum(
        98 * NS_PER_MS,
        "12 prompt tokens under a cap of 8 need K = 2; R >= 3 is reached by prefilling both before "
        "decoding; 12 + 6 + 20 + 60 ms.",
    ),
    "memory-bound": KnownOptimum(
        200 * NS_PER_MS,
        "Each request holds 2 of the 3 blocks of 8 tokens, so they run one by one: K = 2, "
        "R = 8; 12 + 8 + 20 + 160 ms. Two free clients do not help.",
    ),
    "first-token-prefill": KnownOptimum(
        58 * NS_PER_MS,
        "One stage of 10 + 6 ms yields both first tokens and ends the first request; the other "
        "needs two rounds of 21 ms.",
    ),
    "with-arrivals": KnownOptimum(
        68 * NS_PER_MS,
        "The second request arrives at 4 ms. Waiting for it: one stage of 10 + 10 ms, two rounds "
        "of 22 ms, 68 ms in all. Any other schedule has K = 2: at least 20 + 10 ms of prefill, and "
        "rounds of 2 x 20 + 4 ms: 74 ms.",
    ),
    "levels": KnownOptimum(
        70 * NS_PER_MS,
        "Levels of 4, 8 and 12 tokens take 10, 30 and 70 ms; a round takes 20 ms. Three prompts of "
        "3 tokens cost 3 x 10 ms alone, 30 + 10 ms as a pair and one, 70 ms together; R >= 2, and "
        "prefilling all before decoding reaches it: 30 + 40 ms.",
    ),
}
"""Optimal makespans of the small instances, by name."""

SMALL: dict[str, Callable[[], Instance]] = {
    "one-request": one_request,
    "two-on-one-client": two_on_one_client,
    "all-fit": all_fit,
    "two-by-two": two_by_two,
    "three-jobs-two-clients": three_jobs_two_clients,
    "packing": packing,
    "gate": gate,
    "prefill-cap": prefill_cap,
    "memory-bound": memory_bound,
    "first-token-prefill": first_token_prefill,
    "with-arrivals": with_arrivals,
    "levels": levels,
}
"""The small instances, by name."""


__all__ = ["GENERATORS", "KNOWN_OPTIMA", "generate", "load_named", "names"]


def _gsm8k_llama65b() -> Instance:
    """Pang's main case: 1,319 requests on 200 clients, seed 0."""
    return gsm8k(seed=0, name="gsm8k-llama65b")


def _pang_100x20() -> Instance:
    """The size at which Pang solves the full MIP: the first 100 requests on 20 clients."""
    return gsm8k(seed=0, requests=100, clients=20, name="pang-100x20")


SHIPPED: dict[str, Callable[[], Instance]] = {
    "gsm8k-llama65b": _gsm8k_llama65b,
    "pang-100x20": _pang_100x20,
    **SMALL,
}

GENERATORS: dict[str, Callable[..., Instance]] = {
    "chats": chats,
    "gsm8k": gsm8k,
    "pang-case": pang_case,
    "peers": peers_workload,
    "rollouts": rollouts,
    "sources": sources,
    "tool-rollouts": tool_rollouts,
    "uniform": uniform,
}
"""Generators of instances, by name; their arguments are those of the functions."""


def names() -> list[str]:
    """Return the names of the shipped instances."""
    return list(SHIPPED)


@cache
def _made(name: str) -> Instance:
    return SHIPPED[name]()


def load_named(name: str) -> Instance:
    """Return a shipped instance; ``InputError`` lists the names where there is none of this one."""
    if name in GENERATORS and name not in SHIPPED:
        raise InputError(
            f"{name!r} is a generator, and no instance",
            field="name",
            remedy=f"orsched generate {name} -o {name}.json makes one; compare takes --seeds 0:10",
        )
    if name not in SHIPPED:
        raise _unknown("shipped instance", name, SHIPPED)
    return _made(name)


def generate(name: str, /, **parameters: Any) -> Instance:
    """Return an instance of a generator (``GENERATORS``), with the arguments of its function.

    Raises ``InputError`` if the generator or an argument is unknown, missing or wrong.
    """
    if not isinstance(name, str) or name not in GENERATORS:
        raise _unknown("generator", str(name), GENERATORS)
    from inspect import signature

    known = signature(GENERATORS[name])
    for parameter in parameters:
        if parameter not in known.parameters:
            raise InputError(
                f"generator {name} has no argument {parameter!r}",
                field="parameters",
                remedy=known_names(parameter, known.parameters, "known arguments: "),
            )
    try:
        known.bind(**parameters)
    except TypeError as error:
        raise InputError(
            f"generator {name}: {error}",
            field="parameters",
            remedy=f"known arguments: {', '.join(known.parameters)}",
        ) from None
    return GENERATORS[name](**parameters)


def _unknown(kind: str, name: str, known: Mapping[str, object]) -> InputError:
    return InputError(f"unknown {kind} {name!r}", field="name", remedy=known_names(name, known))
