"""Reproduce Figs. 8 to 10 of SCLS (Cheng et al.) on a worker at hand: profiles and their fit.

python -m benchmarks.reproductions.scls_profiles [--model M] [--slots N] [--length N]
[--repeats N] [--threads N] [--device D] measures prefill stages by batch size and input length
(Fig. 8) and rounds by batch size and cached length (Fig. 9), fits eq. (3) and (4), prints the
root-mean-square errors (Fig. 10a), then serves batches for a whole slice of 128 iterations and
prints what the fit predicted of them (Fig. 10b). The durations are those of this machine; with
``ORSCHED_DATA`` the fits to an H100's recorded steps stand beside them.
"""

from __future__ import annotations

import argparse
import math
import os
import random
from pathlib import Path
from statistics import mean, median_low
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.arguments import count
from benchmarks.reproductions.findings import Findings
from benchmarks.speed.section import table
from orsched.calibration.candidates import select
from orsched.calibration.fit import fit
from orsched.calibration.measurements import DECODE, PREFILL
from orsched.calibration.step_files import read_measurements
from orsched.common.units import NS_PER_S
from orsched.instances.datasets import VARIABLE
from orsched.runner.measuring import WorkerOptions, make_device
from orsched.runner.profiling import Point, profile
from orsched.runner.worker.layout import Chunk

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orsched.calibration.measurements import Measurements
    from orsched.costs.bilinear import BilinearCost
    from orsched.runner.devices.device import Device

SLICE = 128
"""Iterations of a slice, as in the paper."""

PAPER = (("HF", "0.16 s", "2.3 s"), ("DS", "below 0.04 s", "below 0.4 s"))
"""Fig. 10: engine, RMSE of a prefill, mean error of 128 iterations."""

H100_CALIBRATION = "h100/c_sharegpt_64slots_calibration.csv"


class Slice(NamedTuple):
    """A batch served for a slice: size, input length, what it took and what was expected."""

    size: int
    length: int
    taken_ns: int
    expected_ns: int


def points(slots: int, longest: int) -> list[Point]:
    """Return the grid of Figs. 8 and 9: batch sizes by input lengths and by cached lengths."""
    sizes, lengths = powers(slots), lengths_to(longest)
    stages = [Point(PREFILL, size, length, 0) for size in sizes for length in lengths]
    rounds = [Point(DECODE, size, 0, length) for size in sizes for length in lengths]
    return stages + rounds


def powers(most: int, factor: int = 2, least: int = 1) -> list[int]:
    """Return ``least`` times the powers of a factor up to a number, and the number."""
    found = [least]
    while found[-1] * factor < most:
        found.append(found[-1] * factor)
    return [*found, most] if found[-1] < most else found


def lengths_to(longest: int) -> list[int]:
    """Return the input lengths that are measured."""
    return powers(longest, 4, min(16, longest))


def errors(cost: BilinearCost, measured: Measurements, phase: str) -> tuple[float, float]:
    """Return the root-mean-square error in seconds, and the mean duration, of a phase's rows."""
    column = {name: measured.column(name).tolist() for name in COLUMNS}
    squares, durations = [], []
    for row, kind in enumerate(measured.phase):
        if kind != phase:
            continue
        size = column["count"][row]
        if phase == PREFILL:
            expected = cost.prefill_ns([column["longest"][row]] * size)
        else:
            context = column["context_max"][row]
            expected = cost.round_ns(size, size * context, context)
        taken = column["duration_ns"][row]
        squares.append(((expected - taken) / NS_PER_S) ** 2)
        durations.append(taken / NS_PER_S)
    return math.sqrt(mean(squares)), mean(durations)


COLUMNS = ("count", "longest", "context_max", "duration_ns")


def fitted(measured: Measurements) -> BilinearCost:
    """Return eq. (3) and (4), fitted to all rows by least squares in seconds, as the paper does."""
    cost: Any = fit("bilinear", measured, weighting="seconds", holdout=0.0).cost
    found: BilinearCost = cost
    return found


def serve(device: Device, size: int, length: int, rng: random.Random) -> int:
    """Return the time that a batch of equal prompts takes for a slice, in nanoseconds."""
    vocabulary = device.vocabulary
    prompts = [
        Chunk(slot, 0, [rng.randrange(vocabulary) for _ in range(length)], True)
        for slot in range(size)
    ]
    total = 0
    for chunks, active, rounds in ((prompts, [], 1), ([], list(range(size)), SLICE)):
        device.start()
        device.begin(chunks, active, rounds, 0)
        times = device.end()
        total += times.end_ns - times.start_ns
    return total


def slices(
    device: Device, cost: BilinearCost, longest: int, repeats: int, seed: int
) -> list[Slice]:
    """Serve batches of each size and length and hold the times against the fit's."""
    rng, found = random.Random(seed), []
    for size in powers(device.slots):
        for length in lengths_to(longest):
            taken = median_low([serve(device, size, length, rng) for _ in range(repeats)])
            # as for the fitted rows, the first round's context is what the prompts hold, and one
            expected = cost.prefill_ns([length] * size)
            expected += cost.rounds_ns(SLICE, size, size * (length + 1), length + 1)
            found.append(Slice(size, length, taken, expected))
    return found


def by_size(measured: Measurements, phase: str, name: str) -> list[dict[str, Any]]:
    """Return a table of median times in ms: a row a batch size, a column a length."""
    rows: dict[int, dict[str, Any]] = {}
    sizes, lengths = measured.column("count"), measured.column(name)
    for row, kind in enumerate(measured.phase):
        if kind == phase:
            cells = rows.setdefault(int(sizes[row]), {"batch size": str(sizes[row])})
            cells[str(lengths[row])] = f"{int(measured.column('duration_ns')[row]) / 1e6:.2f}"
    return list(rows.values())


def show_fit(name: str, measured: Measurements) -> dict[str, Any]:
    """Return a row of Fig. 10a."""
    plain = select(measured, _plain(measured))
    cost = fitted(plain)
    row: dict[str, Any] = {"worker": name}
    for phase, word in ((PREFILL, "prefill"), (DECODE, "round")):
        error, size = errors(cost, plain, phase)
        row[f"{word} RMSE ms"] = f"{1000 * error:.2f}"
        row[f"of the mean {word} %"] = f"{100 * error / size:.1f}"
    return row


def _plain(measured: Measurements) -> Any:
    """Return the rows of stages with nothing cached, and of rounds with equal contexts."""
    import numpy as np

    phase = np.asarray(measured.phase)
    stages = (phase == PREFILL) & (measured.column("cached") == 0)
    stages &= measured.column("tokens") == measured.column("count") * measured.column("longest")
    whole = measured.column("count") * measured.column("context_max")
    rounds = (phase == DECODE) & (measured.column("context_sum") == whole)
    return np.flatnonzero(stages | rounds)


def report(device: Device, about: dict[str, Any], repeats: int, seed: int) -> int:
    """Print all three figures for a worker; return how many of the paper's findings fail."""
    findings = Findings()
    longest = device.length - SLICE
    print(f"worker: {about}")
    measured = profile(device, points(device.slots, longest), repeats, seed)
    findings.head("Fig. 8: a prefill stage, ms, by batch size and input length")
    print("\n".join(table(by_size(measured, PREFILL, "longest"))))
    findings.head("Fig. 9: a round, ms, by batch size and cached length")
    print("\n".join(table(by_size(measured, DECODE, "context_max"))))
    findings.head("Fig. 10a: RMSE of eq. (3) and (4), fitted to what is above")
    rows = [show_fit("this machine", measured)]
    recorded = Path(os.environ.get(VARIABLE, "")) / H100_CALIBRATION
    if recorded.is_file():
        rows.append(show_fit("H100, recorded", read_measurements(recorded)))
    print("\n".join(table(rows)))
    findings.head(f"Fig. 10b: {SLICE} iterations, the prefill included")
    found = slices(device, fitted(measured), longest, repeats, seed)
    print("\n".join(table([_slice_row(each) for each in found])))
    error = mean(abs(each.taken_ns - each.expected_ns) for each in found) / NS_PER_S
    root = math.sqrt(mean(((s.taken_ns - s.expected_ns) / NS_PER_S) ** 2 for s in found))
    whole = mean(each.taken_ns for each in found) / NS_PER_S
    print(f"mean error {error:.3f} s, RMSE {root:.3f} s, of {whole:.3f} s in the mean")
    print("paper: " + "; ".join(f"{n}: prefill {p}, slice {s}" for n, p, s in PAPER))
    findings.claim(
        f"the mean error of a slice is small ({100 * error / whole:.1f} %, at most 10)",
        error <= 0.1 * whole,
    )
    return findings.misses


def _slice_row(each: Slice) -> dict[str, Any]:
    off = each.expected_ns / each.taken_ns - 1
    return {
        "batch size": str(each.size),
        "input length": str(each.length),
        "measured s": f"{each.taken_ns / NS_PER_S:.3f}",
        "expected s": f"{each.expected_ns / NS_PER_S:.3f}",
        "off %": f"{100 * off:+.1f}",
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", default="small", help="a preset or a folder")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--slots", type=count, default=8)
    parser.add_argument("--length", type=count, default=384, help="tokens of a slot")
    parser.add_argument("--repeats", type=count, default=3)
    parser.add_argument("--threads", type=count, default=1)
    parser.add_argument("--seed", type=int, default=0)
    values = parser.parse_args(arguments)
    if values.length < SLICE + 16:
        parser.error(f"--length: at least {SLICE + 16}: a slice and a prompt")
    options = WorkerOptions(
        values.model,
        values.device,
        slots=values.slots,
        length=values.length,
        threads=values.threads,
    )
    device, about = make_device(options, values.seed)
    report(device, about, values.repeats, values.seed)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
