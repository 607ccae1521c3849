"""The tables and the statements of the page, all computed from the rows."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from benchmarks.worth import corpus, corpus_report
from benchmarks.worth.cells import line, number, plain, shown
from benchmarks.worth.rows import LOADS, NO_PREDICTION
from benchmarks.worth.shares import KEPT, WORTH, Case, cases
from orsched.calibration.intervals import mean_interval

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from benchmarks.worth.rows import Row

PREDICTORS = ("prompt length", "five classes", "noise 1", "noise 0.5")
"""Those between none and the oracle; the measured ones are the five classes."""

MEASURED = "five classes"

LEAST = 0.01
"""The oracle's gain below which the table shows no shares of it: they would be noise."""


def sections(rows: Sequence[Row]) -> str:
    """Return the sections of the page that follow from the rows, as Markdown."""
    with_prompts = [row for row in rows if row.workload == corpus.WORKLOAD]
    found = cases(row for row in rows if row.workload != corpus.WORKLOAD)
    seeds = len({row.seed for row in rows})
    parts: list[tuple[str, Iterable[str]]] = []
    if found:
        parts = _without_prompts(found, seeds)
    if with_prompts:
        parts.append((corpus_report.HEAD, corpus_report.section(cases(with_prompts))))
    return "\n\n".join(f"## {head}\n\n" + "\n".join(lines) for head, lines in parts) + "\n"


def _without_prompts(found: Sequence[Case], seeds: int) -> list[tuple[str, Iterable[str]]]:
    return [
        ("Is it worth it?", [*answers(found), *workload_answers(found), "", *by_workload(found)]),
        ("80 % of the oracle's gain?", claim(found)),
        ("The share that a predictor keeps", [f"{seeds} seeds.", "", *share_table(found)]),
        ("Mean, tail and makespan", figures_table(found)),
    ]


def answers(found: Sequence[Case]) -> Iterator[str]:
    """Yield one sentence a family and load, and one on doing without predictions."""
    for family in _families(found):
        for load in LOADS:
            here = [case for case in found if (case.family, case.load) == (family, load)]
            if here:
                yield f"* {_at(family, load)} {_answer(here)}"
    known = [case for case in found if case.family == "shortest first"]
    other = {case[:2]: case for case in found if case.family == "gittins"}
    pairs = [(case, other[case[:2]]) for case in known if case[:2] in other]
    for name, told in (("the oracle", "oracle"), ("the five classes", MEASURED)):
        less = sum(_mean(mine, NO_PREDICTION) < _mean(case, told) for case, mine in pairs)
        yield (
            f"* `gittins` without any prediction has less mean JCT than shortest first with {name} "
            f"in {less} of {len(pairs)} cases."
        )


def _answer(here: Sequence[Case]) -> str:
    oracle = [100 * case.gain("oracle").mean for case in here]
    measured = [100 * case.gain(MEASURED).mean for case in here]
    names = [case.workload for case in here if case.gain(MEASURED).mean >= WORTH]
    proven = [c.workload for c in here if (low := c.gain(MEASURED).low) is not None and low > 0]
    return (
        f"the oracle gains {_range(oracle)} % of mean JCT and the measured five classes "
        f"{_range(measured)} %: at least {100 * WORTH:.0f} % on {_listed(names)}, "
        f"more than 0 by the 95 % interval on {_listed(proven)}."
    )


def _at(family: str, load: str) -> str:
    return f"`{family}`, {load if load.startswith('all') else f'load {load}'}:"


def workload_answers(found: Sequence[Case]) -> Iterator[str]:
    """Yield one sentence a workload: where the five classes are worth having, and at what p99."""
    for name in dict.fromkeys(case.workload for case in found):
        good = [c for c in found if c.workload == name and c.gain(MEASURED).mean >= WORTH]
        free = [case for case in good if case.tail_no_worse(MEASURED)]
        paid = [case for case in good if case not in free]
        most = max((-100 * case.gain(MEASURED, "p99_s").mean for case in paid), default=0.0)
        price = f", which is up to {number(most, 1)} % more" if paid else ""
        yield (
            f"* {name}: the five classes gain at least {100 * WORTH:.0f} % of mean JCT at a p99 no "
            f"worse with {_policies(free)}; at the price of p99{price}, with {_policies(paid)}."
        )


def _policies(found: Sequence[Case]) -> str:
    """Return the policies of cases with their loads."""
    at = {family: [c.load for c in found if c.family == family] for family in _families(found)}
    return "; ".join(f"`{family}` ({', '.join(loads)})" for family, loads in at.items()) or "none"


def by_workload(found: Sequence[Case]) -> Iterator[str]:
    """Yield a table: what the five classes gain, by workload and family over the loads."""
    loads = [load for load in LOADS if any(case.load == load for case in found)]
    yield "The gain in mean JCT with the measured five classes, per cent; in bold where it is"
    yield f"at least {100 * WORTH:.0f} % and p99 is no worse than without predictions:"
    yield ""
    yield line(["workload", "policy", *loads])
    yield line(["---", "---", *["---:"] * len(loads)])
    for family in _families(found):
        for name in dict.fromkeys(case.workload for case in found):
            here = {c.load: c for c in found if (c.workload, c.family) == (name, family)}
            cells = [_gain(here[load]) if load in here else "" for load in loads]
            yield line([name, family, *cells])


def _gain(case: Case) -> str:
    text = shown(case.gain(MEASURED))
    good = case.gain(MEASURED).mean >= WORTH and case.tail_no_worse(MEASURED)
    return f"**{text}**" if good else text


def claim(found: Sequence[Case]) -> Iterator[str]:
    """Yield whether the measured predictions keep enough where the oracle gains enough."""
    yield (
        "The claim: with the measured five classes policies keep at least "
        f"{100 * KEPT:.0f} % of the oracle's gain in mean JCT where the oracle gains at least "
        f"{100 * WORTH:.0f} %, at a p99 no worse than without predictions."
    )
    yield ""
    for family in _families(found):
        yield _verdict(family, [case for case in found if case.family == family])
    here = [case for case in found if case.worth]
    for told in PREDICTORS:
        shares = sorted(kept.mean for case in here if (kept := case.share(told)) is not None)
        if shares:
            yield (
                f"* {told}: the share kept in {len(shares)} of these {len(here)} cases, those "
                f"where the oracle's interval is above 0, is {_percent(median(shares))} % at the "
                f"median, from {_percent(shares[0])} to {_percent(shares[-1])} %."
            )


def _verdict(family: str, every: Sequence[Case]) -> str:
    here = [case for case in every if case.worth]
    if not here:
        return f"* `{family}`: in none of {len(every)} cases does the oracle gain that much."
    kept = [case for case in here if case.keeps(MEASURED)]
    tail = [case for case in here if case.tail_no_worse(MEASURED)]
    both = [case for case in kept if case in tail]
    perfect = [case for case in here if case.tail_no_worse("oracle")]
    holds = "holds" if len(both) == len(here) else "does not hold"
    return (
        f"* `{family}`: it **{holds}**. The oracle gains that much in {len(here)} of "
        f"{len(every)} cases; there the five classes keep {100 * KEPT:.0f} % in {len(kept)} "
        f"({_cases(kept)}), p99 is no worse in {len(tail)} ({_cases(tail)}), and both hold in "
        f"{len(both)} ({_cases(both)}). With the oracle itself p99 is no worse in "
        f"{len(perfect)} of them."
    )


def _percent(value: float) -> str:
    return number(100 * value, 0)


def share_table(found: Sequence[Case]) -> Iterator[str]:
    """Yield the table of the oracle's gain and of the share of it that each predictor keeps."""
    head = ["workload", "load", "policy", "oracle's gain %", *PREDICTORS, "p99 %, five classes",
            "p99 %, oracle"]  # fmt: skip
    yield line(head)
    yield line(["---"] * 3 + ["---:"] * (len(head) - 3))
    for case in found:
        shares = [_share(case, told) for told in PREDICTORS]
        tails = [shown(case.gain(told, "p99_s"), -1) for told in (MEASURED, "oracle")]
        yield line([*case[:3], shown(case.gain("oracle")), *shares, *tails])


def _share(case: Case, told: str) -> str:
    kept = case.share(told) if case.gain("oracle").mean >= LEAST else None
    return "–" if kept is None else shown(kept, digits=0)


def figures_table(found: Sequence[Case]) -> Iterator[str]:
    """Yield mean and p99 JCT, makespan and the gaps to the bounds without, with, with perfect."""
    told = (NO_PREDICTION, MEASURED, "oracle")
    yield line(["workload", "load", "policy", "predictor", "mean JCT s", "over its bound",
                 "p99 s", "makespan s", "gap %"])  # fmt: skip
    yield line(["---"] * 4 + ["---:"] * 5)
    for case in found:
        for each in told:
            means = [mean_interval(case.values(each, name)) for name in
                     ("mean_s", "over_bound", "p99_s", "makespan_s", "gap")]  # fmt: skip
            mean, over, tail, end, gap = means
            yield line([
                case.workload, case.load, case.family, each, plain(mean), plain(over, 2),
                plain(tail), plain(end, 0), shown(gap),
            ])  # fmt: skip


def _families(found: Sequence[Case]) -> list[str]:
    return list(dict.fromkeys(case.family for case in found))


def _mean(case: Case, told: str) -> float:
    return mean_interval(case.values(told, "mean_s")).mean


def _range(values: Sequence[float]) -> str:
    return f"{number(min(values), 1)} to {number(max(values), 1)}"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"


def _cases(found: Sequence[Case]) -> str:
    """Return the workloads of cases with their loads."""
    loads: dict[str, list[str]] = {}
    for case in found:
        loads.setdefault(case.workload, []).append(case.load)
    return "; ".join(f"{name} {', '.join(at)}" for name, at in loads.items()) or "none"
