"""The open readings of Pang, scored by gains over the baseline.

python -m benchmarks.pang_readings [--seeds 3] [--csv]

GSM8K's 1,319 prompts on 200 clients, Pang's cost. Four things are open in the text, and every
combination of them is run: the gate of section IV-C (``GATES``), the order in which Algorithm 1
sorts (its sign is lost), what is known of output lengths (nothing, predictions with a log-normal
error of sigma, or all: "predetermined"), and the prefill cap (2,048 as 13 s of prefill say, 5,000
as in the paper's example). A gain is 1 - makespan / that of ``fcfs`` under the same cap, in the
mean over seeds; the paper's are those of its four printed makespans. ``met`` is what share of the
paper's gain a reading yields. Every schedule passes the checker.

``gains`` has a row for each reading, ``met`` what each method reaches under any reading and under
one reading for all three. ``--csv`` writes both for the result page *Readings*.
"""

from __future__ import annotations

import argparse
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

import orsched
from benchmarks.arguments import count
from benchmarks.speed.machine import describe
from benchmarks.speed.section import table
from benchmarks.write_results import Table, write
from orsched.heuristics.gates import WaitedTime, stage_ns
from orsched.instances.synthetic import gsm8k

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from orsched.heuristics.gates import Waiting
    from orsched.simulator.policy import View

PAPER_S = {"fcfs": 201.00, "offline": 197.08, "online": 193.33, "hybrid": 190.58}
GATES = {
    "as printed": "printed",
    "since first idle": "waited_time",
    "idle client-time": "benchmarks.pang_readings:IdleClientTime",
    "derived": "idle_cost",
}
"""C_d of Pang: T^d times all tokens of the running decode stage; the time since a client fell idle;
the time that clients were idle, over J; and the gate that orsched derives."""
ORDERS = ("longest", "shortest", "arrival")
SIGMAS = {"none": None, "sigma 0.3": 0.3, "sigma 0.1": 0.1, "known": 0.0}
CAPS = (2048, 5000)


class IdleClientTime(WaitedTime):
    """Prefill when the idle time of clients since the last stage, over J, reaches its time."""

    def start(self, view: View) -> None:
        """Forget the last run."""
        self.stage_taken(view)

    def rounds_to_wait(self, view: View, waiting: Waiting) -> int:
        """Wait a round at a time until C_d >= C_p."""
        now = view.now_ns
        self.idle_ns += self.idle * (now - self.last_ns)
        self.last_ns, self.idle = now, waiting.clients
        enough = self.idle_ns >= view.worker.clients * stage_ns(view, waiting)
        return 0 if enough or waiting.full else 1

    def stage_taken(self, view: View) -> None:
        """Start a new count."""
        self.idle_ns = self.idle = 0
        self.last_ns = view.now_ns


class Reading(NamedTuple):
    """A way to read the paper; ``offline`` has no gate of its own."""

    gate: str
    order: str
    information: str
    cap: int


def readings(method: str) -> Iterator[Reading]:
    """Yield every reading that a method of the paper can have."""
    known = [each for each in SIGMAS if each != "none" or method == "online"]
    gates = ["prefill first"] if method == "offline" else list(GATES)
    for values in product(gates, ORDERS, known, CAPS):
        yield Reading(*values)


def makespan_s(method: str, reading: Reading, seed: int) -> float:
    """Return the makespan of a method under a reading."""
    sigma = SIGMAS[reading.information]
    instance = gsm8k(seed=seed, prefill_cap_tokens=reading.cap, prediction_sigma=sigma)
    name = method if sigma is None else f"{method}@predicted"
    parameters: dict[str, Any] = {}
    if method != "fcfs":
        parameters["order"] = reading.order
    if method in ("online", "hybrid"):
        parameters |= {"gate": GATES[reading.gate], "gate_factor": 1.0}
    if method == "hybrid":
        parameters["assignment"] = "packing"
    found = orsched.solve(instance, name, parameters=parameters, iterations=1)
    assert found.checked
    return found.makespan


def gains(seeds: int) -> dict[str, dict[Reading, float]]:
    """Return the gain of each method under each of its readings, in per cent."""
    every = range(seeds)
    base = {
        cap: np.mean([makespan_s("fcfs", Reading("", "", "none", cap), each) for each in every])
        for cap in CAPS
    }
    return {
        method: {
            reading: float(
                100
                * (1 - np.mean([makespan_s(method, reading, each) for each in every])
                   / base[reading.cap])
            )
            for reading in readings(method)
        }
        for method in ("offline", "online", "hybrid")
    }  # fmt: skip


def paper_gain(method: str) -> float:
    """Return the gain that the paper prints, in per cent."""
    return 100 * (1 - PAPER_S[method] / PAPER_S["fcfs"])


def gains_table(found: dict[str, dict[Reading, float]]) -> list[dict[str, str]]:
    """Return a row for each reading of a gate, an order and a cap, a column for what is known."""
    rows = []
    for method, of_method in found.items():
        for gate, order, cap in dict.fromkeys((r.gate, r.order, r.cap) for r in of_method):
            row = {"method": method, "gate": gate, "order": order, "cap, tokens": f"{cap:,}"}
            for known in SIGMAS:
                gain = of_method.get(Reading(gate, order, known, cap))
                row[f"{known}, %"] = "-" if gain is None else f"{gain:+.2f}"
            rows.append(row | {"paper, %": f"{paper_gain(method):+.2f}"})
    return rows


def met_table(found: dict[str, dict[Reading, float]]) -> list[dict[str, str]]:
    """Return what is met of the paper's gains: by the reading nearest to each method's, and by the
    one of each gate that is nearest to both of ``online`` and ``hybrid``. ``offline``, for which
    the paper names no order, stands beside them in the order of arrival."""

    def misses(reading: Reading, *methods: str) -> float:
        return max(abs(found[method][reading] - paper_gain(method)) for method in methods)

    rows = []
    for method, of_method in found.items():
        best = min(of_method, key=lambda reading, method=method: misses(reading, method))  # type: ignore[misc]
        rows.append(_met(f"nearest to {method}", best, {method: of_method[best]}))
    both = [reading for reading in found["online"] if reading in found["hybrid"]]
    for gate in GATES:
        of_gate = [reading for reading in both if reading.gate == gate]
        best = min(of_gate, key=lambda reading: misses(reading, "online", "hybrid"))
        offline = best._replace(gate="prefill first", order="arrival")
        values = {method: found[method][best] for method in ("online", "hybrid")}
        rows.append(
            _met("nearest of its gate", best, values | {"offline": found["offline"][offline]})
        )
    return rows


def _met(name: str, reading: Reading, values: dict[str, float]) -> dict[str, str]:
    row = {"reading": name, "gate": reading.gate, "order": reading.order,
           "known": reading.information, "cap, tokens": f"{reading.cap:,}"}  # fmt: skip
    for method in ("offline", "online", "hybrid"):
        gain = values.get(method)
        share = "-" if gain is None else f"{gain:+.2f} ({100 * gain / paper_gain(method):.0f})"
        row[f"{method}, % (met, %)"] = share
    return row


TABLES = {"gains": gains_table, "met": met_table}


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the tables; write them as CSV files if asked to."""
    parser = argparse.ArgumentParser("pang_readings", description=__doc__)
    parser.add_argument("--seeds", type=count, default=3)
    parser.add_argument("--csv", action="store_true")
    options = parser.parse_args(arguments)
    found = gains(options.seeds)
    for nth, (name, rows_of) in enumerate(TABLES.items(), 1):
        rows = rows_of(found)
        print("\n".join(table(rows)), flush=True)
        if options.csv:
            source = {
                "command": ["python -m benchmarks.pang_readings"],
                "nth": [str(nth)],
                "commit": [str(describe()["commit"])],
                "seeds": [f"0 to {options.seeds - 1}"],
            }
            cells = [list(rows[0]), *(list(row.values()) for row in rows)]
            print(write("readings", f"pang-{name}", Table(source, cells)))


if __name__ == "__main__":
    main()
