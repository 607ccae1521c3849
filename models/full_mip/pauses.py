"""Where pauses cannot help: which of the classes of schedules an exact search has searched.

The searches of this folder enumerate whole prefills, waits, and rounds in which every request takes
part that is prefilled and not done (``WITHOUT_PAUSES``). A schedule with pauses may still be no
better than all of these. Let a round take a + b y with y requests in it.

**The makespan.** Let each request take part in the first rounds behind its prefill, as many as it
needs. Each stage and round stays in its place, and those from any moment on serve no more than
before, so that what follows an arrival takes no longer. No request ends later. So the makespan has
an optimal schedule without pauses, whatever a and b.

**Sums of times.** Take a round q that leaves out a request s which is on a client, and let s be
in q in place of its last round e. What comes between q and e comes b later at most, since every
step begins as early as the one before it and the arrivals let it; from the end of e on nothing is
late. The last token of s is yielded in a round before e, so it comes a earlier at least: the time
of e, less b. Its first token comes no later. So nothing is lost where, with the coefficients f of
last tokens and g of first ones,

    a f_s >= b sum of (f_i + g_i) over all i other than s, for each s that has rounds.

Each such move lowers the sum of the numbers of the rounds in which requests are, so they end. With
b = 0 the condition always holds. For the mean JCT of n requests it is a >= b (n - 1). For the mean
TTFT alone it holds with b = 0 only: who has a first token may pause at no cost, and then slows no
one. Where it does not hold a pause may help, and the search says nothing of schedules with pauses.

**Attainment.** A pause can make rounds short enough for a limit on TPOT. Only where every request
meets its limits no other schedule can be better.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orsched.models.full_mip.aim import MakespanAim, TimesAim

if TYPE_CHECKING:
    from orsched.models.full_mip.aim import Aim, Terms
    from orsched.models.full_mip.problem import Problem


def pauses_cannot_help(problem: Problem, aim: Aim) -> bool:
    """Return whether the least value without pauses is the least with them, too."""
    if isinstance(aim, MakespanAim):
        return True
    return isinstance(aim, TimesAim) and _cannot_help_sums(problem, aim.terms)


def _cannot_help_sums(problem: Problem, terms: Terms) -> bool:
    both = [f + g for f, g in zip(terms.finish, terms.first, strict=True)]
    total = sum(both)
    return all(
        problem.round_fixed * f >= problem.round_client * (total - own)
        for f, own, needed in zip(terms.finish, both, problem.needed, strict=True)
        if needed
    )
