"""A lower bound on the rounds by stages that sees at which stages clients begin and end.

Let many requests have the greatest length L. A client's first short request ends at a stage, and
before it the client has served longs only: so where it ends, counted from the start and less the
longs, is the stage's place modulo L. K stages have few such places, and as few where a last short
request starts. So the first and the last short request of each client are rounded up to few
lengths, whatever is between them. Weights for lengths in each role prove that this does not fit:
a linear program finds them, and whole numbers re-derive the bound (docs/bounds.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from orsched.certificates.budget import Budget
from orsched.certificates.scope import PLAIN
from orsched.certificates.step_lower_bounds import decode_floor, prefill_floor
from orsched.certificates.windows import rounds_by_stages
from orsched.models.bounds.alignment_lp import Solver
from orsched.models.bounds.position_weights import shorts_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from orsched.certificates.jobs import Jobs
    from orsched.costs import Floor
    from orsched.data.workers import Worker
    from orsched.models.bounds.alignment_lp import Proof

MOST_ROUNDS = 10_000
_MOST_AHEAD = 8


def ends_certificate(
    worker: Worker, jobs: Jobs, joint: dict[str, Any], out_of_time: Callable[[], bool]
) -> dict[str, Any] | None:
    """Return a joint certificate with proofs (``ends``) that raise it, or None.

    Where the least time is at K stages and R rounds, it is proven that K stages need more rounds,
    as long as that can be done; or that more stages do, if these would be next.
    """
    shorts = shorts_of(jobs)
    floor = PLAIN.floor_of(worker)
    if floor is None or not floor.by_counts or shorts is None:
        return None
    known = rounds_by_stages(jobs, joint, Budget())
    if max(known) > MOST_ROUNDS:
        return None
    trade = _Trade(floor, jobs, joint, known, [])
    solver = Solver(shorts, out_of_time)
    failed: set[tuple[int, int]] = set()
    while (goal := trade.goal(failed)) is not None:
        proof = solver.prove(*goal)
        if proof is None:
            failed.add(goal)
        else:
            trade.proofs.append(proof)
    return trade.certificate()


@dataclass
class _Trade:
    """The least rounds known for each number of stages."""

    floor: Floor
    jobs: Jobs
    joint: dict[str, Any]
    known: list[int]
    proofs: list[Proof]

    def _rounds(self, stages: int, proofs: list[Proof]) -> int:
        at = stages - int(self.joint["prefill_stages"]["value"])
        proven = (r for proof in proofs for k, r in proof.proves if k >= stages)
        return max([self.known[min(at, len(self.known) - 1)], *proven])

    def _time(self, stages: int, rounds: int) -> int:
        prefill = prefill_floor(self.floor, self.jobs, stages)
        return prefill + decode_floor(self.floor, self.jobs, rounds)

    def _times(self, proofs: list[Proof]) -> Iterator[tuple[int, int, int]]:
        """Yield the time, the number of stages and the rounds, as far as it matters."""
        first: int = self.joint["prefill_stages"]["value"]
        last = max([0, *(stages for proof in proofs for stages, _ in proof.proves)])
        for stages in range(first, max(last + 1, first + len(self.known) - 1) + 1):
            rounds = self._rounds(stages, proofs)
            yield self._time(stages, rounds), stages, rounds

    def goal(self, failed: set[tuple[int, int]]) -> tuple[int, int] | None:
        """Return the stages and rounds of the least time; None where no proof has been found.

        More stages, of as many rounds, if their time is next then: a proof is for fewer as well.
        """
        _, stages, rounds = min(self._times(self.proofs))
        if (stages, rounds) in failed:
            return None
        more, then = stages, self._time(stages, rounds + 1)
        while self._rounds(more + 1, self.proofs) == rounds and self._time(more + 1, rounds) < then:
            more += 1
            if more == stages + _MOST_AHEAD:
                break
        ahead = [k for k in range(more, stages, -1) if (k, rounds) not in failed]
        return (ahead[0] if ahead else stages), rounds

    def certificate(self) -> dict[str, Any] | None:
        """Return the certificate with the proofs that it takes; None where they prove nothing."""
        best, *_ = min(self._times(self.proofs))
        if best <= min(self._times([]))[0]:
            return None
        kept = list(self.proofs)
        for proof in self.proofs:
            without = [other for other in kept if other is not proof]
            if min(self._times(without))[0] == best:
                kept = without
        ends = [
            {**weights.to_dict(), "proves": [list(pair) for pair in proves]}
            for weights, proves in kept
        ]
        value = self.joint["released_ns"] + best
        plain = {k: v for k, v in self.joint.items() if k not in ("prefill_ns", "decode_ns")}
        prices = {"prices": self.joint.get("prices", [])}
        return plain | {"bound": "joint"} | prices | {"ends": ends, "value_ns": value}
