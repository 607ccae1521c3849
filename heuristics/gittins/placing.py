"""Where a request is served, and when: what one decision of a worker asks of each request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orsched.policy import ClairvoyantView

if TYPE_CHECKING:
    from orsched.heuristics.gittins.policy import Gittins
    from orsched.heuristics.gittins.site import Site
    from orsched.policy import View


class Placing:
    """One decision: whether its worker is the one to take a waiting request, and now.

    What is the same for all requests is worked out once.
    """

    __slots__ = (
        "arrival_ns", "client_ns", "finishes_ns", "gate", "gate_aging", "groups", "lengths",
        "now_ns", "outputs", "pace_ns", "policy", "prompts", "round_ns", "running", "site",
        "stage_round_ns", "token_ns",
    )  # fmt: skip

    def __init__(self, policy: Gittins, view: View, site: Site, decoding: int) -> None:
        prices, params = site.prices, policy.params
        self.policy, self.site = policy, site
        self.now_ns, self.arrival_ns = view.now_ns, view.arrival_ns
        self.prompts = view.prompt_tokens
        self.outputs = view.output_tokens if isinstance(view, ClairvoyantView) else None
        self.groups, self.lengths = policy.groups, policy.model.groups
        self.pace_ns, self.running = site.pace.ns, len(site.view.running)
        self.token_ns, self.client_ns = prices.token_ns, prices.client_ns
        self.round_ns = prices.round_ns
        self.gate, self.gate_aging = params.gate, params.gate_aging
        self.finishes_ns = decoding / policy.model.all.mean * prices.token_ns
        self.stage_round_ns = prices.round_ns + prices.client_ns * decoding

    def suits(self, request: int, left: int, joined: int) -> bool:
        """Say so of a request with so many tokens to prefill, beside others that join now.

        What serving it costs: its rounds at the worker's present pace; and each of the others
        there is delayed by its prefill and by its part of each round, as much more as the pace is
        slower than rounds alone.
        """
        tokens = self._tokens(request, left)
        if self.finishes_ns and self._delays(request, left, tokens):
            return False
        policy, now, pace = self.policy, self.now_ns, self.pace_ns
        work = self.token_ns * left + self.client_ns * tokens
        own = tokens * pace + (self.running + joined) * work * pace / self.round_ns
        theirs = min(joined, policy.queue.count // len(policy.sites))  # they will find some as well
        stamp, tight, alike = policy.stamps[request], request in policy.tight, policy.alike
        others = self.site.others
        for place, other in enumerate(others):
            count = len(other.view.running)
            if count >= other.clients or stamp <= other.slept:
                continue
            if not alike:
                work = other.prices.token_ns * left + other.prices.client_ns * tokens
            delay = 0
            if stamp <= other.seen or other.prefills:  # else its rounds ended with the arrival
                delay = max(0, other.until_ns - now)
            if (
                delay + tokens * other.pace.ns + (count + theirs) * work * other.weight < own
                and not (tight and not policy.able(other, request))
                and other.has_room(request, left)
            ):
                if place:  # asked first next time, when it may well be the one again
                    others.insert(0, others.pop(place))
                return False
        return True

    def _tokens(self, request: int, left: int) -> float:
        """Return the expected tokens to come."""
        yielded = left - self.prompts[request]
        if self.outputs is not None:
            return float(self.outputs[request] - yielded)
        lengths = self.lengths[self.groups[request]]
        return lengths.left(yielded) if yielded else lengths.mean

    def _delays(self, request: int, left: int, tokens: float) -> bool:
        """Whether the gate is closed: the prefill would cost those that decode too much.

        Before a round, it delays the finishes of that round by its own time; after it, the request
        is one round behind. Each loses the more, the longer it waits.
        """
        waited = (self.now_ns - self.arrival_ns[request]) / (tokens * self.pace_ns)
        gate = self.gate * (1 + self.gate_aging * waited)
        return self.finishes_ns * left > gate * self.stage_round_ns
