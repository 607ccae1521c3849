"""Steps as long as the slack of the interactive requests allows, filled with bulk work by rate."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orsched.common.columns import whole_number
from orsched.common.scalars import require_number, require_one_of
from orsched.common.units import MAX_TOKENS, seconds_to_ns
from orsched.heuristics.colocation.draft import UNLIMITED, PrefixGroups
from orsched.heuristics.colocation.policy import (
    IN_RANGE,
    Colocation,
    ColocationParams,
    require_seconds,
)
from orsched.heuristics.echo import MemoryForecast
from orsched.heuristics.forecast import SortedLengths
from orsched.heuristics.policy_method import PolicyMethod
from orsched.simulator.policy import Information

if TYPE_CHECKING:
    from orsched.data.instance import Instance
    from orsched.data.step import Step
    from orsched.data.workers import Worker
    from orsched.heuristics.colocation.draft import Draft, Room
    from orsched.simulator.policy import View


@dataclass(frozen=True)
class SlackParams(ColocationParams):
    """Parameters of ``slack``.

    Attributes:
        max_num_batched_tokens: the token budget of a step; time usually limits it first.
        quantile: the slack of an interactive request is spread over the tokens that it still yields
            at this quantile of the answers seen so far; longer answers may be late at their end.
        idle_step_s: longest step in seconds while no interactive request runs.
        late_pace: multiple of its TPOT at which a request with a late token is served.
        margin_s: seconds between the end of a step and the earliest due token.
        window_s, sigmas: bulk requests leave blocks free for interactive ones: up to the mean plus
            ``sigmas`` deviations of what these held over the last ``window_s`` seconds.
        order: ``rate``: the group of bulk requests with a common prefix that yields most tokens per
            second of its computation is next; ``tree``: the next one in a walk of the prefix tree.
        groups: most groups whose rates are compared; the largest ones.
    """

    max_num_batched_tokens: int = 16_384
    quantile: float = 0.9
    idle_step_s: float = 0.25
    late_pace: float = 2.0
    margin_s: float = 0.0
    window_s: float = 60.0
    sigmas: float = 2.0
    order: str = "rate"
    groups: int = 256

    def __post_init__(self) -> None:
        super().__post_init__()
        require_number(self.quantile, "quantile", 0, 1, remedy=IN_RANGE)
        require_number(self.late_pace, "late_pace", 0, 1000.0, remedy=IN_RANGE)
        require_number(self.sigmas, "sigmas", 0, 100.0, remedy=IN_RANGE)
        for name in ("idle_step_s", "margin_s", "window_s"):
            require_seconds(getattr(self, name), name)
        require_one_of(self.order, "order", ("rate", "tree"))
        whole_number(self.groups, "groups", minimum=1, maximum=MAX_TOKENS)


class GroupRates:
    """Tokens per second of computation that the waiting groups yield, and the group at work, which
    is left when none of it waits. A group with n requests of prompts p, of which s tokens are
    shared and c of these are cached, yields sum(p + d) tokens for the time of s - c + sum(p - s)
    prompt tokens and n d decoded ones, where d is the mean answer. Groups one after the other by
    this rate, highest first, is Smith's rule: at any moment most tokens are done."""

    def __init__(self, instance: Instance, worker: Worker) -> None:
        self.pool = PrefixGroups(instance)
        self.prompts: list[int] = instance.requests.prompt_tokens.tolist()
        prefixes = instance.requests.prefixes
        self.size = 0 if prefixes is None else prefixes.block_tokens
        cost = worker.cost
        some = min(worker.prefill_limit or 1024, 1024)
        self.token_ns = max(
            1.0, (cost.prefill_ns([some]) - cost.prefill_ns([1])) / max(1, some - 1)
        )
        self.cost = cost
        self.chain: bytes | None = None

    def decode_ns(self, context: int) -> float:
        """Return the time of a decoded token of this context beside others."""
        cost = self.cost
        return max(0, cost.round_ns(2, 2 * context, context) - cost.round_ns(1, context, context))

    def next(self, view: View, room: Room, answer: float, most: int) -> int:
        """Return the next request: of the group at work, else of the best one."""
        groups = self.pool.groups
        if self.chain is None or self.chain not in groups:
            self.chain = self._best(view, room, answer, most)
        return groups[self.chain][0]

    def _best(self, view: View, room: Room, answer: float, most: int) -> bytes:
        groups = self.pool.groups
        chains = self.pool.chains
        if len(chains) > most:
            chains = sorted(chains, key=lambda chain: (-len(groups[chain]) * len(chain), chain))
        return max(chains[:most], key=lambda chain: self.rate(view, room, chain, answer))

    def rate(self, view: View, room: Room, chain: bytes, answer: float) -> float:
        """Return the tokens per nanosecond of a group."""
        group = self.pool.groups[chain]
        count, first = len(group), group[0]
        prompts = sum(map(self.prompts.__getitem__, group))
        shared = len(chain) // 8 * self.size
        hit = min(shared, room.peek(first)[0])
        computed = max(1, prompts - (count - 1) * shared - hit)
        decode = count * answer * self.decode_ns(prompts // count)
        return (prompts + count * answer) / (computed * self.token_ns + decode)


LEAST = 20  # so many answers are needed before their quantiles count


class AnswerLengths(SortedLengths):
    """The newest answer lengths; none is longer than the limit."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self.limit = limit

    @property
    def mean(self) -> float:
        """The mean length, 1 before any was seen."""
        return self.total / self.size if self.size else 1.0

    def rest(self, yielded: int, quantile: float) -> int:
        """Return the tokens still to come, at least 1, at a quantile of those longer than what was
        yielded; up to the limit before enough answers were seen, or where none was longer."""
        lengths = self.lengths
        first = bisect_right(lengths, yielded)
        longer = len(lengths) - first
        if len(lengths) < LEAST or not longer:
            return max(1, self.limit - yielded)
        place = min(longer - 1, int(quantile * longer))
        return lengths[first + place] - yielded


class Slack(Colocation):
    """Bulk work in the slack of interactive requests, by rate and shared prefix.

    Rounds cost their fixed time each, so bulk work gains from long steps. A request whose tokens
    are due at TTFT + i TPOT has slack from the moment its first token is early; it is spread evenly
    over the tokens that it still yields (at a quantile of the answers seen): a step lasts at most
    TPOT + slack / rest for each request in it, by the worker's cost model, exactly. Requests with a
    late token have lost their limit and are served at a pace of their own. Bulk requests come in
    groups of one shared prefix, each group in a row, the group first that yields most tokens per
    second. They leave free what interactive requests may need.
    """

    def __init__(self, instance: Instance, params: SlackParams) -> None:
        self.own = params
        self.rates = GroupRates(instance, instance.workers[0])
        super().__init__("slack", instance, params, self.rates.pool)
        self.limited = True
        limit = instance.output_limit_tokens
        self.answers, self.bulk_answers = AnswerLengths(limit), AnswerLengths(limit)
        self.forecast = MemoryForecast(params.window_s, params.sigmas)
        self.origin: dict[int, int] = {}  # round from which the tokens of a decoding request count
        self.held_back = 0
        self.pace_ns = UNLIMITED
        self.idle_ns = seconds_to_ns(params.idle_step_s, "idle_step_s")
        self.margin_ns = seconds_to_ns(params.margin_s, "margin_s")
        self.tree_chain = b""

    def on_finish(self, view: View, request: int, client: int) -> None:
        """Learn the length of an answer."""
        lengths = self.bulk_answers if self.bulk[request] else self.answers
        origin = self.origin.pop(request, None)
        lengths.add(1 if origin is None else max(1, view.rounds - origin))

    def decide(self, view: View) -> Step | None:
        """Return the next step."""
        step = super().decide(view)
        rounds, generated = view.rounds, view.generated
        self.origin |= {each: rounds - generated(each) for each in self.decoding}
        return step

    def observe(self, view: View, room: Room) -> None:
        """Forget the pace, and let the memory forecast see what interactive requests hold."""
        self.pace_ns = UNLIMITED
        if room.size:
            self.held_back = self.forecast.beyond(view, self.bulk, room.size)

    def _note_due(self, view: View, draft: Draft, request: int) -> None:
        """Take note of how long a request lets the step last."""
        due, now = self.due_ns(view, request), view.now_ns
        if due >= UNLIMITED:
            return
        yielded = view.generated(request)
        _, tpot = self.deadlines.limits[self.deadlines.kind[request]]
        if due < now:
            self.pace_ns = min(self.pace_ns, int((tpot or 0) * self.own.late_pace))
            return
        draft.due_ns = min(draft.due_ns, due - self.margin_ns)
        if yielded and tpot:
            spare = due - now - tpot
            if spare > 0:
                rest = self.answers.rest(yielded, self.own.quantile)
                self.pace_ns = min(self.pace_ns, tpot + spare // rest)

    def bulk_limit_ns(self, view: View, draft: Draft) -> int:
        """Return the least that a request in the step allows."""
        limit = min(self.pace_ns, draft.due_ns - view.now_ns)
        return self.idle_ns if limit >= UNLIMITED // 2 else max(0, limit)

    def bulk_room(self, view: View, draft: Draft, room: Room) -> int:
        """Return what is left beside the blocks that interactive requests may need."""
        return super().bulk_room(view, draft, room) - self.held_back

    def next_bulk(self, view: View, draft: Draft, room: Room, limit_ns: int) -> int | None:
        """Return the next request of the group at work."""
        if self.own.order == "rate":
            return self.rates.next(view, room, self.bulk_answers.mean, self.own.groups)
        pool = self.pool
        assert isinstance(pool, PrefixGroups)
        request = pool.next_after(self.tree_chain)
        self.tree_chain = pool.chain(request)
        return request


SLACK = PolicyMethod(
    "slack",
    (Information.NONE,),
    "bulk work in the slack of interactive requests, by tokens per second of shared prefixes",
    lambda instance, params, information, seed: Slack(instance, params),
    SlackParams,
    rounds_at_once=lambda params: 1,
)
