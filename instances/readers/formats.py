"""The formats of traces: their names, fields and readers."""

from __future__ import annotations

from typing import NamedTuple

from orsched.common import registry
from orsched.instances.readers import headings


class Format(NamedTuple):
    """A format: its reader as ``module:function``, its fields, and what it is."""

    reader: str
    kind: str
    fields: tuple[str, ...]
    title: str


OWN = "requests"
"""The format of requests of one's own."""

_HERE = "orsched.instances.readers"

FORMATS = {
    "azure": Format(
        f"{_HERE}.csv_lengths:read_azure",
        "csv",
        ("TIMESTAMP", "ContextTokens", "GeneratedTokens"),
        "Azure LLM inference trace, 2023 and 2024",
    ),
    "burstgpt": Format(
        f"{_HERE}.csv_lengths:read_burstgpt",
        "csv",
        ("Timestamp", "Request tokens", "Response tokens"),
        "BurstGPT",
    ),
    "splitwise": Format(
        f"{_HERE}.csv_lengths:read_splitwise",
        "csv",
        ("request_id", "arrival_timestamp", "prompt_size", "token_size"),
        "Splitwise-sim trace",
    ),
    "vidur": Format(
        f"{_HERE}.csv_lengths:read_vidur",
        "csv",
        ("num_prefill_tokens", "num_decode_tokens"),
        "Vidur trace",
    ),
    "measured": Format(
        f"{_HERE}.csv_lengths:read_measured",
        "csv",
        ("id", "arrival_s", "prompt_tokens", "output_tokens"),
        "measured vLLM run",
    ),
    "pairs": Format(
        f"{_HERE}.csv_lengths:read_pairs",
        "csv",
        ("id", "prompt_tokens", "answer_tokens"),
        "length pairs without arrival times (GSM8K, ShareGPT, arXiv)",
    ),
    "llmservingsim": Format(
        f"{_HERE}.jsonl_lengths:read_llmservingsim",
        "jsonl",
        ("input_toks", "output_toks", "arrival_time_ns"),
        "LLMServingSim trace",
    ),
    "llmservingsim-run": Format(
        f"{_HERE}.jsonl_lengths:read_llmservingsim_run",
        "jsonl",
        ("input_toks", "output_toks", "arrival_time"),
        "requests of a run that LLMServingSim recorded",
    ),
    "records": Format(
        f"{_HERE}.jsonl_lengths:read_records",
        "jsonl",
        ("arrival_time_ms", "input_length", "output_length"),
        "per-request records of DynoSim or orsched",
    ),
    "bailian": Format(
        f"{_HERE}.bailian:read_bailian",
        "jsonl",
        ("chat_id", "timestamp", "input_length", "output_length"),
        "Qwen-Bailian usage trace",
    ),
    "mooncake": Format(
        f"{_HERE}.mooncake:read_mooncake",
        "jsonl",
        ("timestamp", "input_length", "output_length"),
        "Mooncake trace",
    ),
    "servegen-offline": Format(
        f"{_HERE}.jsonl_lengths:read_servegen_offline",
        "jsonl",
        ("request_id", "input_length", "output_length", "duration"),
        "ServeGen's trace of a batch task, d to f",
    ),
    "vllm-bench": Format(
        f"{_HERE}.vllm_bench:read_vllm_bench",
        "json",
        ("total_input_tokens", "total_output_tokens"),
        "result of vllm bench serve --save-detailed",
    ),
    OWN: Format(
        f"{_HERE}.own_columns:read_own",
        "csv, jsonl or xlsx",
        headings.REQUIRED,
        "requests of one's own, under names that people use",
    ),
}
"""The built-in formats; the entry points ``orsched.readers`` add further ones."""


def format_names() -> list[str]:
    """Return the names of all formats, the built-in ones first."""
    return list(FORMATS) + [n for n in registry.names("readers") if n not in FORMATS]
