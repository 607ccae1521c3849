"""Results: a checked schedule with its bound, gap, status and runtimes, and its rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from orsched.common.errors import InputError
from orsched.common.registry import attached
from orsched.common.units import NS_PER_S, seconds_text
from orsched.metrics.flat_figures import event_figures, flat_figures
from orsched.solving.objectives import MAKESPAN, Objective, named_as_bounds

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from orsched.data.instance import Instance
    from orsched.data.schedule import Schedule
    from orsched.data.schedule_classes import ScheduleClass
    from orsched.solving.run_block import HistoryPoint


class Status(StrEnum):
    """What is proven of a schedule."""

    OPTIMAL = "optimal"
    FEASIBLE = "feasible"


class Termination(StrEnum):
    """Why a method ended."""

    FINISHED = "finished"
    ITERATIONS = "iterations"
    TIME_LIMIT = "time_limit"
    INTERRUPTED = "interrupted"
    TARGET_GAP = "target_gap"


VERDICT = (
    "objective", "objective_value", "objective_bound", "gap", "status", "best_of", "certified",
    "termination", "notes",
)  # fmt: skip
"""What is said of a result's objective: the gap follows its figure and its bound."""

EVENTS = (
    "restarts", "mixed_steps", "invalid_tokens", "pad_tokens", "kv_blocks_peak", "hit_rate",
    "worker_s", "lost_steps", "lost_s", "starts", "refused", "bubble_share", "tail_s",
    "slo_limits", "slo_kept", "overloaded",
)  # fmt: skip
"""What happened beside plain stages and rounds: None where the instance has no such thing."""

ROW = (
    "method", "information", *VERDICT, "makespan_s", "bound_s", "slot_utilization",
    "prefill_stages", "decode_rounds", "tokens_per_s", "decision_p99_s", "checked", "ttft_mean_s",
    "ttft_p50_s", "ttft_p99_s", "tpot_mean_s", "tpot_p50_s", "tpot_p99_s", "itl_p50_s",
    "itl_p95_s", "itl_p99_s", "itl_max_s", "stall_p50_s", "stall_p99_s", "jct_mean_s",
    "jct_p50_s", "jct_p99_s", "slo_attainment", "goodput_per_s", "jct_mean_bound_s",
    "ttft_mean_bound_s", "weighted_jct_mean_s", "weighted_tardiness_mean_s", "lateness_max_s",
    *EVENTS,
)  # fmt: skip
"""Names of the figures in a row (``Result.to_row``), in their order."""


def _figure(name: str, words: str) -> float | None:
    """Return a property: a figure of a result. Its type is what it gives, for type checkers."""
    return property(lambda result: result.figures[name], doc=words)  # type: ignore[return-value]


@dataclass(frozen=True)
class Result:
    """What ``solve`` and ``simulate`` return.

    Attributes:
        schedule: the schedule, with its reported numbers, bound and ``run`` block.
        status: ``optimal`` when the objective equals its bound (``certified``), or when a search
            proved it, of which no certificate exists, as the notes say. Either way the gap is 0,
            and it is the best of a class of schedules: ``best_of``.
        termination: why the method ended.
        checked: whether the independent checker accepted the schedule.
        runtimes: seconds spent in ``solve``, ``bound``, ``check`` and in ``total``.
        notes: remarks, such as that ordering cannot help here.
        reference: values that are not bounds (Pang's (31)-(32)), in nanoseconds.
        label: the method as it was given, with its parameters; else its name.
        mean_bounds: proven bounds on means by objective (``mean_jct``, ``mean_ttft``), each with
            ``name``, ``value_ns`` and ``certificate``: those that ``solve`` was asked for, and
            those of the objective.
        best_of: the class of schedules of which this one is proven the best, or None; ``verdict``
            has status and class in words.
        objective: what the method was to minimise; of it are ``objective_value``,
            ``objective_bound`` and ``gap``.
        instance: the problem, with the workers and arrivals of ``simulate`` and ``compare``.
    """

    schedule: Schedule
    status: Status
    termination: Termination
    checked: bool
    runtimes: dict[str, float] = field(compare=False)
    notes: tuple[str, ...] = ()
    reference: dict[str, int] = field(default_factory=dict)
    label: str = ""
    mean_bounds: dict[str, dict[str, Any]] = field(default_factory=dict)
    instance: Instance | None = field(default=None, compare=False)
    objective: Objective = MAKESPAN
    best_of: ScheduleClass | None = None

    @property
    def verdict(self) -> str:
        """What is proven, in words: "optimal among schedules without mixed steps", "feasible"."""
        return self.status.value + (f" among {self.best_of}" if self.best_of else "")

    @property
    def makespan_ns(self) -> int:
        """End of the last stage."""
        return int(self.schedule.results["makespan_ns"])

    @property
    def makespan(self) -> float:
        """End of the last stage, in seconds."""
        return self.makespan_ns / NS_PER_S

    @property
    def makespan_s(self) -> float:
        """End of the last stage, in seconds."""
        return self.makespan

    @property
    def bound_ns(self) -> int | None:
        """The certified lower bound on the makespan."""
        value: int | None = self.schedule.results["bound_ns"]
        return value

    @property
    def bound(self) -> float | None:
        """The certified lower bound on the makespan, in seconds."""
        return None if self.bound_ns is None else self.bound_ns / NS_PER_S

    bound_s = _figure("bound_s", "The certified lower bound on the makespan, in seconds.")
    ttft_mean_s = _figure("ttft_mean_s", "Mean time to first token.")
    ttft_p50_s = _figure("ttft_p50_s", "Median time to first token (nearest rank).")
    ttft_p99_s = _figure("ttft_p99_s", "99th percentile of the time to first token (nearest rank).")
    tpot_mean_s = _figure(
        "tpot_mean_s",
        "Mean time per output token after the first, of the requests that have several.",
    )
    tpot_p50_s = _figure("tpot_p50_s", "Median time per output token after the first.")
    tpot_p99_s = _figure(
        "tpot_p99_s", "99th percentile of the time per output token after the first."
    )
    itl_p50_s = _figure("itl_p50_s", "Median of all times between two tokens.")
    itl_p95_s = _figure("itl_p95_s", "95th percentile of all times between two tokens.")
    itl_p99_s = _figure("itl_p99_s", "99th percentile of all times between two tokens.")
    itl_max_s = _figure(
        "itl_max_s", "Largest time between two successive tokens of a request, over all requests."
    )
    stall_p50_s = _figure("stall_p50_s", "Median of the largest time between a request's tokens.")
    stall_p99_s = _figure("stall_p99_s", "99th percentile of the same.")
    jct_mean_s = _figure(
        "jct_mean_s", "Mean job completion time: from the arrival to the last token."
    )
    jct_p50_s = _figure("jct_p50_s", "Median job completion time.")
    jct_p99_s = _figure("jct_p99_s", "99th percentile of the job completion time.")
    weighted_jct_mean_s = _figure(
        "weighted_jct_mean_s",
        "Mean JCT with each request counted by its weight; without weights the mean JCT.",
    )
    weighted_tardiness_mean_s = _figure(
        "weighted_tardiness_mean_s",
        "Mean time by which requests with a deadline are late, each counted by its weight.",
    )
    lateness_max_s = _figure(
        "lateness_max_s",
        "How late the latest request with a deadline is; negative where all are early.",
    )
    slo_attainment = _figure(
        "slo_attainment",
        "Share of requests within the limits: of the SLO if one was given, else of the classes.",
    )
    goodput_per_s = _figure("goodput_per_s", "Requests within the limits by the makespan.")
    tokens_per_s = _figure("tokens_per_s", "Output tokens by the makespan.")

    @property
    def objective_value(self) -> float | None:
        """The value of the objective: seconds for times, a share for the attainment."""
        return self.objective.value(self)

    @property
    def objective_bound(self) -> float | None:
        """The proven bound on the objective, in its unit; None where none is known. It is the value
        itself where a search proved that no schedule is better."""
        proven = self.status is Status.OPTIMAL
        return self.objective_value if proven else self.certified_bound

    @property
    def certified_bound(self) -> float | None:
        """The best bound on the objective that has a certificate, in its unit."""
        return self.objective.bound(self.bounds_s)

    @property
    def bounds_s(self) -> dict[str, float]:
        """Certified bounds by the names of objectives, in seconds; of the attainment a share."""
        found = {name: each["value_ns"] / NS_PER_S for name, each in self.mean_bounds.items()}
        if (attained := self.mean_bounds.get("slo_attainment")) is not None:
            claim = attained["certificate"]
            requests = claim.get("requests", 1)
            found["slo_attainment"] = (requests - claim.get("missed", 0)) / requests
        return found if self.bound is None else {"makespan": self.bound, **found}

    @property
    def jct_mean_bound_s(self) -> float | None:
        """A proven lower bound on the mean JCT, where one was asked for."""
        return self.bounds_s.get("mean_jct")

    @property
    def ttft_mean_bound_s(self) -> float | None:
        """A proven lower bound on the mean TTFT, where one was asked for."""
        return self.bounds_s.get("mean_ttft")

    @property
    def gap(self) -> float | None:
        """How far the objective is from its bound, by the bound: (value - bound) / bound."""
        if self.status is Status.OPTIMAL:
            return 0.0
        if self.objective.is_makespan:
            stated: float | None = self.schedule.results["gap"]
            return stated
        value, bound = self.objective_value, self.objective_bound
        if value is None or not bound or bound < 0:  # of what is early no share is defined
            return None
        return abs(value - bound) / bound

    @property
    def history(self) -> tuple[HistoryPoint, ...]:
        """Each better value and bound of the objective in time; times in nanoseconds."""
        from orsched.solving.run_block import history_of  # numpy, which help does without

        return history_of(self.schedule)

    @property
    def figures(self) -> dict[str, float | None]:
        """The figures that people ask for, times in seconds (``orsched.metrics.flat_figures``). The
        gap is that of the makespan, and None where the objective is another."""
        gap = self.gap if self.objective.is_makespan else None
        return flat_figures(self.schedule.results) | {"gap": gap}

    @property
    def certified(self) -> bool:
        """Whether the objective equals its bound, so that the certificate proves it optimal; an
        optimal result that is not certified was proven by a search alone."""
        if self.objective.is_makespan:
            return self.makespan_ns == self.bound_ns
        value = self.objective_value
        return value is not None and value == self.certified_bound

    @property
    def certified_schedules(self) -> ScheduleClass:
        """The class of schedules for which the certified bound on the objective holds."""
        from orsched.certificates.scope import schedules_of  # numpy, which help does without

        found = [
            self.mean_bounds[name]["certificate"]
            for name in named_as_bounds(self.objective)
            if name in self.mean_bounds
        ]
        if "makespan" in self.objective.parts and self.certificate is not None:
            found.append(self.certificate)
        return schedules_of(*found)

    @property
    def certificate(self) -> dict[str, Any] | None:
        """The bound's certificate."""
        return None if self.schedule.bound is None else self.schedule.bound["certificate"]

    @property
    def information(self) -> str:
        """What the method knew of output lengths."""
        return self.schedule.information

    def attainment(self, name: str = "interactive") -> float:
        """Return the share of a class's requests that are within its limits on TTFT and TPOT.
        Raises ``InputError`` for an unknown class, and for one without limits or requests."""
        from orsched.metrics.class_metrics import attainment_of

        return attainment_of(self.schedule.results, name)

    def to_row(self) -> dict[str, Any]:
        """Return the figures of one line of ``orsched compare``: ``objective_value``,
        ``objective_bound`` and ``gap`` are of the objective, ``bound_s`` is the certified bound on
        the makespan."""
        results = self.schedule.results
        p99 = (self.schedule.run.get("decision_ns") or {}).get("p99")
        row = {
            **self.figures,
            "method": self.label or self.schedule.method,
            "information": self.information,
            "prefill_stages": results["prefill_stages"],
            "decode_rounds": results["decode_rounds"],
            "decision_p99_s": None if p99 is None else p99 / NS_PER_S,
            "checked": self.checked,
            "objective": self.objective.name,
            "objective_value": self.objective_value,
            "objective_bound": self.objective_bound,
            "gap": self.gap,
            "status": self.status.value,
            "best_of": None if self.best_of is None else str(self.best_of),
            "certified": self.certified,
            "termination": self.termination.value,
            "notes": list(self.notes),
            **event_figures(results),
            "jct_mean_bound_s": self.jct_mean_bound_s,
            "ttft_mean_bound_s": self.ttft_mean_bound_s,
        }
        return {name: row[name] for name in ROW}

    def to_pandas(self) -> pd.DataFrame:
        """Return a data frame with a row for each request, times in seconds.

        The columns are those of ``request_columns``: arrival, tokens, worker and client, waiting
        time, TTFT, TPOT, largest gap between tokens and JCT; class, tenant and group if given.
        """
        if self.instance is None:
            raise InputError(
                "the result has lost its instance", field="instance", remedy="solve it again"
            )
        from orsched.common.columns import frame  # which help texts do without

        return frame(request_columns(self.instance, self.schedule))

    def plot(self, kind: str = "gantt", **options: Any) -> Figure:
        """Return a matplotlib figure of the schedule.

        Args:
            kind: ``gantt``, ``usage``, ``latency``, ``timeline``, or ``history`` of the search.
            options: of the function in ``orsched`` that draws it, ``title`` for instance.
        """
        figure: Figure = attached("figure_of")(self.instance, [self.schedule], kind, options)
        return figure

    def __repr__(self) -> str:
        who = f"{self.label or self.schedule.method} on {self.schedule.instance_name!r}"
        return f"Result of {who}: {short_time(self)}"

    def _repr_html_(self) -> str:
        return self.schedule._repr_html_()


def short_time(result: Result) -> str:
    """Return what is proven of a result's objective, its makespan and latencies in a few words."""
    figures, aim = result.figures, result.objective
    parts = [] if aim.is_makespan else [f"makespan {seconds_text(result.makespan)} s"]
    if figures["ttft_p99_s"] is not None:
        parts.append(f"TTFT p99 {seconds_text(figures['ttft_p99_s'])} s")
    if figures["jct_mean_s"] is not None and aim.name != "jct_mean":
        parts.append(f"mean JCT {seconds_text(figures['jct_mean_s'])} s")
    if figures["slo_attainment"] is not None and aim.name != "slo_attainment":
        parts.append(f"attainment {figures['slo_attainment']:.2%}")
    return ", ".join([_verdict_text(result), *parts])


def _verdict_text(result: Result) -> str:
    """Return the figure of the objective with its bound, gap and status."""
    aim, value, bound = result.objective, result.objective_value, result.objective_bound

    def shown(figure: float) -> str:
        return f"{seconds_text(figure)} s" if aim.is_time else f"{figure:.2%}"

    name = aim.title if not aim.shares else aim.name
    if value is None:
        return f"{name} not defined ({result.verdict})"
    known = ""
    if bound is not None and result.gap is not None:
        known = f"bound {shown(bound)}, gap {result.gap:.2%}, "
    return f"{name} {shown(value)} ({known}{result.verdict})"


def request_columns(instance: Instance, schedule: Schedule) -> dict[str, Any]:
    """Return a column for each figure of requests, one row a request, times in seconds. ``request``
    is the id, or the row; ``worker`` and ``client`` are those of the first stay; ``waiting_s`` is
    the time from the arrival to the begin of the prefill, ``itl_max_s`` the largest time between
    two successive tokens. A figure that is not defined is NaN: TPOT and gaps of a single token,
    times of a request that a stopped run did not serve to its end."""
    import numpy as np  # which help does without

    from orsched.data.service_classes import LABELLED
    from orsched.metrics.timeline import Timeline
    from orsched.metrics.token_times import TokenGaps, request_times

    def seconds(values: Any, known: Any) -> Any:
        return np.where(known, values / NS_PER_S, np.nan)

    line = Timeline(instance, schedule)
    table = line.instance.requests
    times = request_times(instance, schedule, line)
    arrival, several = table.arrival_ns, table.output_tokens >= 2
    done = (times["finish_ns"] >= 0) & (line.yielded >= table.output_tokens)
    begun, first = times["prefill_start_ns"] >= 0, times["first_token_ns"] >= 0
    pace = times["finish_ns"] - times["first_token_ns"]
    worker = np.full(len(table), -1, np.int64)
    worker[line.stay_request[::-1]] = line.stay_worker[::-1]
    restarts = np.zeros(len(table), np.int64)
    np.add.at(restarts, line.stay_request, 1)
    columns: dict[str, Any] = {
        "request": np.arange(len(table)) if table.ids is None else list(table.ids),
        "arrival_s": arrival / NS_PER_S,
        "prompt_tokens": table.prompt_tokens,
        "output_tokens": table.output_tokens,
        "worker": worker,
        "client": times["client"],
        "restarts": np.maximum(restarts - 1, 0),
        "start_s": seconds(times["prefill_start_ns"], begun),
        "first_token_s": seconds(times["first_token_ns"], first),
        "finish_s": seconds(times["finish_ns"], done),
        "waiting_s": seconds(times["prefill_start_ns"] - arrival, begun),
        "ttft_s": seconds(times["first_token_ns"] - arrival, first),
        "tpot_s": seconds(pace // np.maximum(table.output_tokens - 1, 1), done & several),
        "itl_max_s": seconds(TokenGaps(line).largest(), done & several),
        "jct_s": seconds(times["finish_ns"] - arrival, done),
    }
    if instance.names_classes:
        names = np.array([kind.name for kind in instance.classes], object)
        columns["class"] = names[table.service_class]
    for label in LABELLED:
        numbers, texts = getattr(table, label), getattr(table, f"{label}s")
        if numbers is not None:
            columns[label] = numbers if texts is None else np.array(texts, object)[numbers]
    return columns
