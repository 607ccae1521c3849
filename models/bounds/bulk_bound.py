"""How much bulk work any schedule can do while enough requests meet their limits, at the most."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.certificates.bulk_parts import PRICE_SCALE, Demands
from orsched.certificates.bulk_program import BulkProgram, Question
from orsched.certificates.fields import Budget
from orsched.certificates.scope import Scope
from orsched.checker.certificates import bulk_violations
from orsched.common.columns import whole_number
from orsched.common.errors import InputError, OrschedError, known_names, unavailable
from orsched.common.units import NS_PER_S, seconds_to_ns
from orsched.data.instance import require_instance
from orsched.data.schedule import as_schedule
from orsched.data.schedule_classes import ALLOWANCES
from orsched.metrics.timeline import Timeline
from orsched.metrics.token_times import request_times

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from orsched.certificates.bulk_parts import Program
    from orsched.data.instance import Instance
    from orsched.data.schedule import Schedule, Scheduled

    Floats = NDArray[np.float64]


_WIDE = 10**6
"""Columns with larger upper bounds are priced out exactly: what is left of them would count."""
_PASSES = 3
_SCALINGS = 5


def prices_of(program: Program, seconds: float | None = None) -> list[tuple[int, int]] | None:
    """Return prices of a program's rows, those above 0; None where it has no solution. In parts of
    1 / ``PRICE_SCALE``, for ``Program.proven``. None too where the time is up. Raises
    ``MissingDependencyError``: ortools is not installed."""
    found = _solve(program, seconds)
    if found is None:
        return None
    whole = [int(price * PRICE_SCALE) if price > 0 else 0 for price in found]
    _price_out(program, whole)
    return [(row, price) for row, price in enumerate(whole) if price > 0]


def _solve(program: Program, seconds: float | None) -> list[float] | None:
    """Return the dual prices that GLOP finds, in units of gain a unit of each row's limit."""
    try:
        from ortools.linear_solver import pywraplp
    except ImportError as error:
        raise unavailable(error, "bulk bounds need ortools: pip install ortools") from None
    solver: Any = pywraplp.Solver.CreateSolver("GLOP")
    infinity = solver.infinity()
    values, row_scale, column_scale = _scaled(program)
    sizes = column_scale.tolist()
    # Without a bound on wide columns, rows carry all prices.
    tops = [
        infinity if upper > _WIDE else upper / size
        for upper, size in zip(program.upper, sizes, strict=True)
    ]
    columns = [solver.NumVar(0.0, top, "") for top in tops]
    objective = solver.Objective()
    for column, gain, size in zip(columns, program.gain, sizes, strict=True):
        if gain:
            objective.SetCoefficient(column, -gain * size)
    rows, entry = [], iter(values.tolist())
    for entries, limit, scale in zip(program.rows, program.limits, row_scale.tolist(), strict=True):
        row = solver.Constraint(-infinity, float(limit) * scale)
        for column, _ in entries:
            row.SetCoefficient(columns[column], next(entry))
        rows.append(row)
    objective.SetMinimization()
    if seconds is not None:
        solver.SetTimeLimit(max(1, int(seconds * 1000)))
    if solver.Solve() != pywraplp.Solver.OPTIMAL:
        return None
    return [-row.dual_value() * scale for row, scale in zip(rows, row_scale.tolist(), strict=True)]


def _scaled(program: Program) -> tuple[Floats, Floats, Floats]:
    """Return the entries row by row, scaled so that all are about 1, and the scales. By geometric
    means of the largest and the least of each row and of each column, some times."""
    counts = [len(row) for row in program.rows]
    at_row = np.repeat(np.arange(len(counts)), counts)
    at_column = np.array([column for row in program.rows for column, _ in row], np.int64)
    values = np.array([float(value) for row in program.rows for _, value in row])
    sizes, exponents = np.log2(np.abs(values)), [np.zeros(len(counts)), np.zeros(len(program.gain))]
    for _ in range(_SCALINGS):
        for places, found in zip((at_row, at_column), exponents, strict=True):
            most, least = np.full(len(found), -np.inf), np.full(len(found), np.inf)
            now = sizes + exponents[0][at_row] + exponents[1][at_column]
            np.maximum.at(most, places, now)
            np.minimum.at(least, places, now)
            some = np.isfinite(most)
            found[some] -= np.round((most[some] + least[some]) / 2)
    row_scale, column_scale = np.exp2(exponents[0]), np.exp2(exponents[1])
    return values * row_scale[at_row] * column_scale[at_column], row_scale, column_scale


def _price_out(program: Program, prices: list[int]) -> None:
    """Lower prices until no wide column is worth more than its entries are priced. Wide columns
    gain nothing themselves: where rounding leaves them worth something, the prices of the rows that
    they give room in are lowered in proportion."""
    wide = [c for c, upper in enumerate(program.upper) if upper > _WIDE]
    entries: dict[int, list[tuple[int, int]]] = {column: [] for column in wide}
    for number, of_row in enumerate(program.rows):
        for column, value in of_row:
            if column in entries:
                entries[column].append((number, value))
    for _ in range(_PASSES):
        for column in wide:
            paid = sum(prices[row] * value for row, value in entries[column] if value > 0)
            worth = -sum(prices[row] * value for row, value in entries[column] if value < 0)
            if worth > paid:
                for row, value in entries[column]:
                    if value < 0:
                        prices[row] = prices[row] * paid // worth


def bulk_tokens(
    instance: Instance,
    schedule: Schedule,
    moment_ns: int,
    prompt_weight: int = 1,
    output_weight: int = 1,
    credit: str = "output",
) -> int:
    """Return the tokens of bulk requests that are done by a moment, weighted. An output token
    counts when it is yielded. A prompt counts in proportion to the output so far (``credit``
    ``output``), or when its first prefill is complete (``prefill``). Of a run of rounds that goes
    on at the moment those count that have ended, as if all lasted equally long."""
    line, bulk, requests = Timeline(instance, schedule), instance.bulk, instance.requests
    yielded = _yielded_by(line, moment_ns)
    done = output_weight * int(yielded[bulk].sum())
    if credit == "prefill":
        ready = request_times(instance, schedule, line)["prefill_end_ns"]
        begun = bulk & (ready >= 0) & (ready <= moment_ns)
        return done + prompt_weight * int(requests.prompt_tokens[begun].sum())
    columns = (requests.prompt_tokens[bulk], yielded[bulk], requests.output_tokens[bulk])
    rows = zip(*(column.tolist() for column in columns), strict=True)
    prompts = sum((Fraction(p * some, output) for p, some, output in rows), Fraction(0))
    return done + prompt_weight * prompts.numerator // prompts.denominator


def _yielded_by(line: Timeline, moment_ns: int) -> np.ndarray:
    """Return the tokens that each request has yielded by a moment."""
    count = len(line.instance)
    start, end, rounds = line.start_ns, line.end_ns, line.rounds * line.has_rounds
    length = np.maximum(end - start, 1)
    done = np.where(end <= moment_ns, rounds, 0)
    going = (start < moment_ns) & (end > moment_ns)
    done[going] = (moment_ns - start[going]) * rounds[going] // length[going]
    before = np.concatenate([[0], np.cumsum(done)])
    rows = line.decodes
    yielded = np.zeros(count, np.int64)
    np.add.at(yielded, line.request[rows], before[line.last[rows] + 1] - before[line.first[rows]])
    if line.instance.first_token == "prefill":
        whole = line.prefills[line.cached_after[line.prefills] >= _due(line)[line.prefills]]
        whole = whole[line.end_ns[line.last[whole]] <= moment_ns]
        np.add.at(yielded, line.request[whole], 1)
    return yielded


def _due(line: Timeline) -> np.ndarray:
    """Return for each row the tokens that its stay has to prefill."""
    return line.due[line.stay_of]


MOST_WINDOWS = 256
CREDITS = ("output", "prefill")
MEASURES = ("attained", "in_time")
_MOST_SPANS = 60_000
_PIECES = 4


@dataclass(frozen=True)
class BulkBound:
    """A proven upper bound on bulk work, or proof that too few requests can meet their limits.

    Attributes:
        value: tokens of bulk requests done by the horizon, weighted, at most; 0 where no schedule
            reaches the attainment.
        feasible: False where it is proven that no schedule reaches the attainment. True says
            nothing of the contrary.
        attainment: share of the requests with limits that are to meet them.
        most_attained: requests that can meet their limits at most, where ``feasible`` is False.
        certificate: whole numbers that re-derive it without a solver.
    """

    value: int
    feasible: bool
    attainment: float
    most_attained: int | None
    certificate: dict[str, Any]
    _instance: Instance = field(repr=False, compare=False)

    @property
    def name(self) -> str:
        """``bulk``, or ``attained`` where the attainment is out of reach."""
        return str(self.certificate["bound"])

    @property
    def horizon_ns(self) -> int:
        """Until when work counts."""
        return int(self.certificate["windows"][-1])

    @property
    def horizon_s(self) -> float:
        """Until when work counts, in seconds."""
        return self.horizon_ns / NS_PER_S

    @property
    def tokens_per_s(self) -> float:
        """The bound divided by the horizon."""
        return self.value / self.horizon_s

    def done(self, schedule: Scheduled) -> int:
        """Return the same of a schedule: tokens of bulk requests done by the horizon, weighted."""
        claim = self.certificate
        (prompt, output), credit = claim.get("weights", [1, 1]), claim.get("credit", "output")
        return bulk_tokens(
            self._instance, as_schedule(schedule), self.horizon_ns, prompt, output, credit
        )

    def share(self, schedule: Scheduled) -> float:
        """Return ``done(schedule) / value``: what a schedule reaches of the bound.

        Of a schedule in which fewer requests meet their limits it may be above 1. 1.0 where both
        are 0.
        """
        done = self.done(schedule)
        return done / self.value if self.value else float(done == 0) or float("inf")

    def to_dict(self) -> dict[str, Any]:
        """Return name, value and certificate, as ``bulk_violations`` takes them."""
        return {"name": self.name, "value": self.value, "certificate": self.certificate}


def bulk_bound(
    instance: Instance,
    attainment: float = 0.9,
    horizon_s: float | None = None,
    *,
    prompt_weight: int = 1,
    output_weight: int = 1,
    credit: str = "output",
    measure: str = "attained",
    allows: Iterable[str] = ALLOWANCES,
    restarts: int | None = None,
    windows: int = MOST_WINDOWS,
    time_limit: float | None = None,
) -> BulkBound:
    """Return the most bulk work that any schedule can do while the others meet their limits.

    The instance's classes say which requests are bulk, and which limits the others have
    (``Instance.classes``). Each token of a bulk request's output counts when it is yielded,
    and brings its part of the prompt with it, computed or found in a cache: a finished request
    counts prompt and output. A linear program over time windows; docs/proofs.md has the proof.

    Args:
        instance: one or several workers, equal or not.
        attainment: share of the requests with limits, all classes together, that meet them.
        horizon_s: until when work counts; None: the last moment at which something is due.
        prompt_weight, output_weight: what a token counts; 0 and 1: output only.
        credit: ``output``, or ``prefill``: the whole prompt counts when its prefill is complete,
            which favours requests that are prefilled and never go on.
        measure: what meeting the limits means. ``attained``: the first token is in time, and the
            mean of the others; ``in_time``: each token i comes within ``ttft + i tpot``.
        allows: what schedules may do, as in ``bound``; by default everything.
        restarts: the bound is for schedules with so many evictions at most; None: any number.
        windows: time windows at most. More make the bound tighter and its proof longer.
        time_limit: seconds for each linear program; where it ends first, fewer windows are taken.

    Raises:
        InputError: a wrong argument, or cost models that state no floor under these schedules.

    >>> limits = orsched.ServiceClass("interactive", ttft_s=2, tpot_s=0.1)
    >>> requests = orsched.Requests([50, 50, 80], [20, 20, 60], service_class=[0, 0, 1])
    >>> classes = (limits, orsched.ServiceClass("batch"))
    >>> case = orsched.Instance(requests, orsched.Worker(clients=2), classes=classes)
    >>> orsched.bulk_bound(case, attainment=1, horizon_s=60).value >= 80 + 60
    True
    """
    share = _require_share(attainment)
    how = _how(instance, credit, measure, restarts, allows)
    instance = instance.admitted()
    question = _question(instance, share, horizon_s, (prompt_weight, output_weight), how, windows)
    while True:
        found = _bulk(instance, question, attainment, time_limit)
        if found is None and question.needed:
            found = _out_of_reach(instance, question, attainment, time_limit)
        if found is not None:
            return found
        if len(question.windows) <= 2:
            return _everything(instance, question, attainment)
        question = _with_windows(instance, question, (len(question.windows) - 1) // 2)


def _bulk(
    instance: Instance, question: Question, attainment: float, seconds: float | None
) -> BulkBound | None:
    program = BulkProgram(instance, question, Budget(None))
    prices = prices_of(program, seconds)
    if prices is None:
        return None
    return _bound(instance, question, attainment, program.proven(prices), prices)


def _bound(
    instance: Instance,
    question: Question,
    attainment: float,
    value: int,
    prices: list[tuple[int, int]],
) -> BulkBound:
    claim: dict[str, Any] = {"bound": "bulk", "needed": question.needed}
    claim["weights"] = [question.prompt_weight, question.output_weight]
    claim |= {
        "credit": question.credit,
        "pieces": question.pieces,
        **_stated(question, prices),
        "value": value,
    }
    return _proven(BulkBound(value, True, attainment, None, claim, instance))


def _out_of_reach(
    instance: Instance, question: Question, attainment: float, seconds: float | None
) -> BulkBound | None:
    """Return the proof that fewer requests meet their limits than are needed, or None."""
    most, claim = _attained(instance, question, seconds)
    if claim is None or question.needed is None or most >= question.needed:
        return None
    return _proven(BulkBound(0, False, attainment, most, claim, instance))


def _attained(
    instance: Instance, question: Question, seconds: float | None
) -> tuple[int, dict[str, Any] | None]:
    free = replace(question, needed=None, prompt_weight=0, output_weight=0, pieces=1)
    program = BulkProgram(instance, free, Budget(None))
    prices = prices_of(program, seconds)
    if prices is None:
        return len(program.demands.rows), None
    value = program.proven(prices)
    return value, {"bound": "attained", **_stated(free, prices), "value": value}


def _stated(question: Question, prices: list[tuple[int, int]]) -> dict[str, Any]:
    stated = question.scope.stated()
    if question.restarts is not None:
        stated["restarts"] = question.restarts
    return {
        **stated,
        "measure": question.measure,
        "windows": list(question.windows),
        "prices": [list(pair) for pair in prices],
    }


def _everything(instance: Instance, question: Question, attainment: float) -> BulkBound:
    """Return what no price is needed for: all bulk work that arrives in time."""
    value = BulkProgram(instance, question, Budget(None)).proven([])
    return _bound(instance, question, attainment, value, [])


def _proven(found: BulkBound) -> BulkBound:
    faults = bulk_violations(found._instance, found.to_dict(), None)
    if faults:
        raise OrschedError(f"the bulk bound is not proven: {faults[0]}")
    return found


def attainment_bound(
    instance: Instance,
    horizon_s: float | None = None,
    *,
    measure: str = "attained",
    allows: Iterable[str] = ALLOWANCES,
    restarts: int | None = None,
    windows: int = MOST_WINDOWS,
    time_limit: float | None = None,
) -> BulkBound:
    """Return how many requests can meet their limits at most (``most_attained``), in any schedule.

    The same linear program without bulk work; arguments and errors as in ``bulk_bound``. Its
    ``value`` is 0, and ``feasible`` says whether all of them can, as far as it knows.

    >>> limits = orsched.ServiceClass("interactive", ttft_s=2, tpot_s=0.1)
    >>> requests = orsched.Requests([50, 50, 80], [20, 20, 60], service_class=[0, 0, 1])
    >>> classes = (limits, orsched.ServiceClass("batch"))
    >>> case = orsched.Instance(requests, orsched.Worker(clients=2), classes=classes)
    >>> orsched.attainment_bound(case).most_attained
    2
    """
    how = _how(instance, "output", measure, restarts, allows)
    instance = instance.admitted()
    question = _question(instance, Fraction(1), horizon_s, (0, 0), how, windows)
    while True:
        most, claim = _attained(instance, question, time_limit)
        if claim is not None:
            everyone = most >= len(Demands.of(instance).rows)
            return _proven(BulkBound(0, everyone, 1.0, most, claim, instance))
        if len(question.windows) <= 2:
            free = _stated(question, [])
            claim = {"bound": "attained", **free, "value": most}
            return _proven(BulkBound(0, True, 1.0, most, claim, instance))
        question = _with_windows(instance, question, (len(question.windows) - 1) // 2)


# -- the question -----------------------------------------------------------------------------


def _how(
    instance: Instance, credit: str, measure: str, restarts: int | None, allows: Iterable[str]
) -> tuple[str, str, int | None, Scope]:
    """Return what counts and what schedules may do, read; ``InputError`` for what is unknown."""
    require_instance(instance)
    for name, value, known in (("credit", credit, CREDITS), ("measure", measure, MEASURES)):
        if value not in known:
            raise InputError(
                f"{value!r} is unknown", field=name, remedy=known_names(value, known, "one of: ")
            )
    if restarts is not None:
        restarts = whole_number(restarts, "restarts")
    scope = Scope.allowing(allows, instance)
    for worker in instance.workers:
        floor = scope.floor_of(worker)
        if floor is None or not floor.stage.grows:
            raise InputError(
                f"{type(worker.cost).__name__} states no floor under schedules with "
                f"{', '.join(scope.names) or 'stages and rounds'}",
                field="cost",
                remedy="a cost model with a floor (docs: A cost model of your own)",
            )
    return credit, measure, restarts, scope


def _question(
    instance: Instance,
    share: Fraction,
    horizon_s: float | None,
    weights: tuple[int, int],
    how: tuple[str, str, int | None, Scope],
    windows: int,
) -> Question:
    names = ("prompt_weight", "output_weight")
    read = [
        whole_number(value, name, maximum=10**6) for name, value in zip(names, weights, strict=True)
    ]
    windows = whole_number(windows, "windows", minimum=1, maximum=10**6)
    if instance.link is not None:
        raise InputError(
            "these bounds know of no links",
            field="link",
            remedy="take an instance whose requests decode where they are prefilled",
        )
    demands = Demands.of(instance)
    horizon = demands.horizon_ns if horizon_s is None else seconds_to_ns(horizon_s, "horizon_s")
    if horizon <= 0:
        raise InputError("nothing is due after time 0", field="horizon_s", remedy="give seconds")
    needed = -(-share.numerator * len(demands.rows) // share.denominator)
    question = Question(horizon, needed, read[0], read[1], *how, [0, horizon], _PIECES)
    return _with_windows(instance, question, windows)


def _require_share(value: float) -> Fraction:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not 0 <= value <= 1:
        raise InputError(
            f"{value!r} is not a share", field="attainment", remedy="a number from 0 to 1"
        )
    return Fraction(value).limit_denominator(10**9)


def _with_windows(instance: Instance, question: Question, count: int) -> Question:
    """Return the question with so many equal windows; fewer where requests would span too many."""
    horizon = question.horizon_ns
    while True:
        bounds = sorted({horizon * k // count for k in range(count + 1)})
        cut = replace(question, windows=bounds)
        demands = Demands.of(instance)
        first = np.searchsorted(bounds, demands.arrival_ns)
        last = np.searchsorted(bounds, np.minimum(demands.end_ns, horizon))
        if count == 1 or int((last - first + 1).clip(0).sum()) <= _MOST_SPANS:
            return cut
        count = max(1, count * 2 // 3)
