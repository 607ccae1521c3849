"""The answer: how many workers suffice, how many cannot, and what was measured on the way."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orsched.planning.capacity.estimate import Estimate

FINISHED, TIME_LIMIT, INTERRUPTED = "finished", "time_limit", "interrupted"


@dataclass(frozen=True)
class Capacity:
    """What ``capacity`` found.

    Attributes:
        workers: the fewest workers found that suffice, or None; of a mix all together.
        lower_bound_workers: fewer than so many cannot suffice, by proof.
        estimate: what was measured of them, or None.
        curve: all fleets that were simulated, by price and number.
        machines: names of the machines.
        price, lower_bound_price: of the fleet, and one that no cheaper fleet can do with; for
            several machines, else None.
        attainment_wanted, confidence, criterion: as asked.
        bulk_tokens_per_s: output tokens a second of bulk requests, or what idle time leaves.
        bulk_basis: ``measured`` for bulk requests of the instance, or ``idle time``: the machine's
            throughput with such requests all at once, times the share of time without a step.
        simulations: runs that the answer rests on, and how many of them were run now.
        ran: how many of them were run now.
        certificate: what proves the lower bound, or None where nothing is proven.
        termination: ``finished``, ``time_limit`` or ``interrupted``.
        fewest_shown: whether the fleets below the answer were simulated or excluded as far as the
            search goes; False when it was ended before.
        notes: remarks.
    """

    workers: int | None
    lower_bound_workers: int
    estimate: Estimate | None
    curve: tuple[Estimate, ...]
    machines: tuple[str, ...]
    price: float | None
    lower_bound_price: float | None
    attainment_wanted: float
    confidence: float
    criterion: str
    bulk_tokens_per_s: float | None
    bulk_basis: str | None
    simulations: int
    ran: int
    certificate: dict[str, Any] | None = field(repr=False)
    termination: str
    fewest_shown: bool
    notes: tuple[str, ...] = ()

    @property
    def fleet(self) -> dict[str, int] | None:
        """How many workers of each machine suffice."""
        if self.estimate is None:
            return None
        return dict(zip(self.machines, self.estimate.fleet, strict=True))

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as plain JSON values."""
        best = self.estimate
        return {
            "workers": self.workers,
            "lower_bound_workers": self.lower_bound_workers,
            "attainment": None if best is None else best.attainment,
            "attainment_low": None if best is None else best.low,
            "attainment_high": None if best is None else best.high,
            "ttft_p99_s": None if best is None else best.ttft_p99_s,
            "tpot_p99_s": None if best is None else best.tpot_p99_s,
            "bulk_tokens_per_s": self.bulk_tokens_per_s,
            "bulk_basis": self.bulk_basis,
            "simulations": self.simulations,
            "ran": self.ran,
            "fleet": self.fleet,
            "price": self.price,
            "lower_bound_price": self.lower_bound_price,
            "attainment_wanted": self.attainment_wanted,
            "confidence": self.confidence,
            "criterion": self.criterion,
            "interval": None if best is None else best.interval,
            "termination": self.termination,
            "fewest_shown": self.fewest_shown,
            "notes": list(self.notes),
            "curve": self.rows(),
            "certificate": self.certificate,
        }

    def rows(self) -> list[dict[str, Any]]:
        """Return what was measured of each fleet, one dictionary each."""
        several = len(self.machines) > 1
        return [
            {
                "workers": each.workers,
                **(dict(zip(self.machines, each.fleet, strict=True)) if several else {}),
                "suffices": each.suffices,
                "attainment": each.attainment,
                "attainment_low": each.low,
                "attainment_high": each.high,
                "ttft_p99_s": each.ttft_p99_s,
                "tpot_p99_s": each.tpot_p99_s,
            }
            for each in self.curve
        ]

    def __str__(self) -> str:
        """Say in a sentence what suffices and what cannot."""
        best, lower = self.estimate, self.lower_bound_workers
        least = f"fewer than {lower} cannot (proven)" if lower > 1 else "nothing less is excluded"
        if lower == 1 and self.certificate is not None:
            least = "no smaller number is proven to be too small"
        if best is None:
            return f"no number of workers that was tried suffices; {least}"
        enough = f"{self.workers} workers suffice" if self.workers != 1 else "1 worker suffices"
        if len(self.machines) > 1:
            parts = [f"{count} {name}" for name, count in (self.fleet or {}).items() if count]
            enough = f"{' and '.join(parts)} suffice for a price of {self.price:g}"
            least = f"no fleet for less than {self.lower_bound_price:g} can (proven)"
        elif self.workers == 1:
            least = "there is no smaller fleet"
        measured = (
            f"measured: attainment {best.attainment:.3f}, {self.confidence:.0%} interval "
            f"{best.low:.3f}-{best.high:.3f}"
        ).replace("%", " %")
        text = f"{enough} ({measured}), {least}"
        return text if self.fewest_shown else f"{text}; ended before fewer were tried"
