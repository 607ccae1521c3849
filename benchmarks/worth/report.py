"""The tables of the page, all computed from the rows."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from benchmarks.worth import corpus
from benchmarks.worth.cells import number, shown
from benchmarks.worth.rows import LOADS, NO_PREDICTION
from benchmarks.worth.shares import KEPT, WORTH, Case, cases
from orsched.calibration.intervals import mean_interval

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.worth.rows import Row

    Table = list[list[str]]
    """Rows of cells, the header first."""

PREDICTORS = ("prompt length", "five classes", "noise 1", "noise 0.5")
"""Those between none and the oracle; the measured ones are the five classes."""

MEASURED = "five classes"

LEAST = 0.01
"""The oracle's gain below which the table shows no shares of it: they would be noise."""


def tables(rows: Sequence[Row]) -> dict[str, Table]:
    """Return the tables that follow from the rows, by name; none of workloads without rows."""
    found = cases(row for row in rows if row.workload != corpus.WORKLOAD)
    prompts = cases(row for row in rows if row.workload == corpus.WORKLOAD)
    made: dict[str, Table] = {}
    if found:
        made = {"answers": answers(found), "unpredicted": unpredicted(found),
                "gains": gains(found), "shares": shares(found, PREDICTORS, MEASURED),
                "claim": claim(found), "kept": kept(found, PREDICTORS)}  # fmt: skip
    if prompts:
        made["corpus"] = shares(prompts, corpus.PREDICTORS, "lexical")
        made["corpus-kept"] = kept(prompts, corpus.PREDICTORS)
    return made


def answers(found: Sequence[Case]) -> Table:
    """Return what the oracle and the measured predictor gain, by policy and load over workloads."""
    table = [["policy", "load", "oracle, %", f"{MEASURED}, %",
              f"at least {100 * WORTH:.0f} % on", "more than 0 on (95 %)"]]  # fmt: skip
    for family in _families(found):
        for load in LOADS:
            here = [case for case in found if (case.family, case.load) == (family, load)]
            if here:
                ours = [(case.workload, case.gain(MEASURED)) for case in here]
                good = [name for name, gain in ours if gain.mean >= WORTH]
                proven = [name for name, gain in ours if gain.low is not None and gain.low > 0]
                spans = [_range([100 * case.gain(told).mean for case in here])
                         for told in ("oracle", MEASURED)]  # fmt: skip
                table.append([family, load, *spans, _listed(good), _listed(proven)])
    return table


def unpredicted(found: Sequence[Case]) -> Table:
    """Return in how many cases ``gittins`` without predictions beats shortest first with them."""
    known = [case for case in found if case.family == "shortest first"]
    other = {case[:2]: case for case in found if case.family == "gittins"}
    pairs = [(case, other[case[:2]]) for case in known if case[:2] in other]
    table = [["shortest first has", "cases", "gittins without predictions has less mean JCT in"]]
    for told in ("oracle", MEASURED):
        less = sum(_mean(mine, NO_PREDICTION) < _mean(case, told) for case, mine in pairs)
        table.append([told, str(len(pairs)), str(less)])
    return table


def gains(found: Sequence[Case]) -> Table:
    """Return what the measured predictor gains, by workload and policy over the loads."""
    loads = [load for load in LOADS if any(case.load == load for case in found)]
    table = [["workload", "policy", *loads]]
    for family in _families(found):
        for name in dict.fromkeys(case.workload for case in found):
            here = {c.load: c for c in found if (c.workload, c.family) == (name, family)}
            cells = [_gain(here[load]) if load in here else "" for load in loads]
            table.append([name, family, *cells])
    return table


def _gain(case: Case) -> str:
    text = shown(case.gain(MEASURED))
    good = case.gain(MEASURED).mean >= WORTH and case.tail_no_worse(MEASURED)
    return f"**{text}**" if good else text


def claim(found: Sequence[Case]) -> Table:
    """Return in how many cases the measured predictor keeps enough of a gain worth having."""
    table = [["policy", "cases", f"oracle gains {100 * WORTH:.0f} %", f"{100 * KEPT:.0f} % kept",
              "p99 no worse", "both", "p99 no worse with the oracle"]]  # fmt: skip
    for family in _families(found):
        every = [case for case in found if case.family == family]
        here = [case for case in every if case.worth]
        enough = [case for case in here if case.keeps(MEASURED)]
        tail = [case for case in here if case.tail_no_worse(MEASURED)]
        both = [case for case in enough if case in tail]
        perfect = [case for case in here if case.tail_no_worse("oracle")]
        counts = [len(each) for each in (every, here, enough, tail, both, perfect)]
        table.append([family, *map(str, counts)])
    return table


def kept(found: Sequence[Case], predictors: Sequence[str]) -> Table:
    """Return the shares that predictors keep where the oracle gains enough."""
    table = [["predictor", "cases", "median share, %", "least, %", "most, %",
              f"{100 * KEPT:.0f} % kept", "p99 no worse"]]  # fmt: skip
    for told in predictors:
        pairs = [(case, share) for case in found if case.worth and (share := case.share(told))]
        means = sorted(share.mean for _, share in pairs)
        if means:
            counts = (sum(mean >= KEPT for mean in means),
                      sum(case.tail_no_worse(told) for case, _ in pairs))  # fmt: skip
            spread = [number(100 * x, 0) for x in (median(means), means[0], means[-1])]
            table.append([told, str(len(pairs)), *spread, *map(str, counts)])
    return table


def shares(found: Sequence[Case], predictors: Sequence[str], measured: str) -> Table:
    """Return the oracle's gain, the share of it that each predictor keeps, and changes of p99."""
    table = [["workload", "load", "policy", "oracle's gain %", *predictors, f"p99 %, {measured}",
              "p99 %, oracle"]]  # fmt: skip
    for case in found:
        cells = [_share(case, told) for told in predictors]
        tails = [shown(case.gain(told, "p99_s"), -1) for told in (measured, "oracle")]
        table.append([*case[:3], shown(case.gain("oracle")), *cells, *tails])
    return table


def _share(case: Case, told: str) -> str:
    share = case.share(told) if case.gain("oracle").mean >= LEAST else None
    return "–" if share is None else shown(share, digits=0)


def _families(found: Sequence[Case]) -> list[str]:
    return list(dict.fromkeys(case.family for case in found))


def _mean(case: Case, told: str) -> float:
    return mean_interval(case.values(told, "mean_s")).mean


def _range(values: Sequence[float]) -> str:
    return f"{number(min(values), 1)} to {number(max(values), 1)}"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"
