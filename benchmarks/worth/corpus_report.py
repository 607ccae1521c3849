"""The page's section on the seeded corpus, the workload with prompts: computed from the rows."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from benchmarks.worth.cells import line, number, shown
from benchmarks.worth.corpus import PREDICTORS
from benchmarks.worth.rows import NO_PREDICTION
from benchmarks.worth.shares import KEPT, WORTH

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmarks.worth.shares import Case

HEAD = "With prompts: predictors that read them"
LEAST = 0.01
"""The oracle's gain below which the table shows no shares of it, as in the other tables."""


def section(found: Sequence[Case]) -> Iterator[str]:
    """Yield sentences and the table."""
    yield from answers(found)
    yield ""
    yield from share_table(found)


def answers(found: Sequence[Case]) -> Iterator[str]:
    """Yield one sentence a predictor: the share kept where the oracle's gain is worth having."""
    here = [case for case in found if case.worth]
    yield (
        f"* The oracle gains at least {100 * WORTH:.0f} % of mean JCT in {len(here)} of "
        f"{len(found)} cases: {_cases(here)}."
    )
    for told in PREDICTORS:
        kept = [(case, share) for case in here if (share := case.share(told)) is not None]
        if not kept:
            continue
        means = sorted(share.mean for _, share in kept)
        enough = sum(mean >= KEPT for mean in means)
        tail = sum(case.tail_no_worse(told) for case, _ in kept)
        yield (
            f"* {told}: there it keeps {_percent(median(means))} % of that gain at the median, "
            f"from {_percent(means[0])} to {_percent(means[-1])} %: at least {100 * KEPT:.0f} % in "
            f"{enough} of {len(kept)}, at a p99 no worse than {NO_PREDICTION} in {tail}."
        )


def _cases(found: Sequence[Case]) -> str:
    return "; ".join(f"`{case.family}` {case.load}" for case in found) or "none"


def _percent(value: float) -> str:
    return number(100 * value, 0)


def share_table(found: Sequence[Case]) -> Iterator[str]:
    """Yield the table of the oracle's gain, of the share kept, and of the change of p99."""
    heads = ["load", "policy", "oracle's gain %", *PREDICTORS, "p99 %, lexical", "p99 %, oracle"]
    yield line(heads)
    yield line(["---"] * 2 + ["---:"] * (len(heads) - 2))
    for case in found:
        shares = [_share(case, told) for told in PREDICTORS]
        tails = [shown(case.gain(told, "p99_s"), -1) for told in ("lexical", "oracle")]
        yield line([case.load, case.family, shown(case.gain("oracle")), *shares, *tails])


def _share(case: Case, told: str) -> str:
    kept = case.share(told) if case.gain("oracle").mean >= LEAST else None
    return "–" if kept is None else shown(kept, digits=0)
