"""Figures by class and by tenant as rows of tables."""

from __future__ import annotations

from typing import Any

from orsched.common.units import NS_PER_S

LATENCIES = ("ttft", "tpot", "jct")


def class_rows(results: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a row for each service class of a schedule's results, none without classes.
    ``slo_attainment`` is the share of requests within the limits on TTFT and mean TPOT,
    ``in_time_share`` that of requests all of whose tokens are in time, ``token_attainment`` that of
    tokens in time, ``deadline_attainment`` that of deadlines met; None without a limit."""
    rows = []
    for name, part in (results.get("classes") or {}).items():
        slo, deadline = part["slo"] or {}, part["deadline"] or {}
        rows.append(
            {
                "class": name,
                "requests": part["requests"],
                **_latencies(part),
                "slo_attainment": slo.get("attainment"),
                "in_time_share": slo.get("in_time_share"),
                "token_attainment": slo.get("token_attainment"),
                "deadline_attainment": deadline.get("attainment"),
                "prompt_tokens": part["prompt_tokens"],
                "output_tokens": part["output_tokens"],
                "tokens_per_s": part["tokens_per_s"],
                "output_tokens_per_s": part["output_tokens_per_s"],
                "recomputed_tokens": part["recomputed_tokens"],
                "hit_rate": part["hit_rate"],
            }
        )
    return rows


def tenant_rows(results: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a row for each tenant of a schedule's results, none without tenants."""
    return [
        {
            "tenant": name,
            "requests": part["requests"],
            "prompt_tokens": part["prompt_tokens"],
            "output_tokens": part["output_tokens"],
            "ttft_mean_s": _seconds(part["ttft_mean_ns"]),
            "jct_mean_s": _seconds(part["jct_mean_ns"]),
        }
        for name, part in (results.get("tenants") or {}).items()
    ]


def _latencies(part: dict[str, Any]) -> dict[str, float | None]:
    found = {}
    for name in LATENCIES:
        spread = part[f"{name}_ns"] or {}
        for figure in ("mean", "p50", "p99"):
            found[f"{name}_{figure}_s"] = _seconds(spread.get(figure))
    return found


def _seconds(ns: float | None) -> float | None:
    return None if ns is None else ns / NS_PER_S
