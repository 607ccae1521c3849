"""The flags by which engines are started with the setting found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orsched.planning.tuning.space import Setting

NAMES = ("start", "clients", "max_num_batched_tokens", "gpus", "long_prefill_token_threshold")
VLLM = (
    "vllm serve MODEL", "--max-num-seqs", "--max-num-batched-tokens", "--tensor-parallel-size",
    "--long-prefill-token-threshold",
)  # fmt: skip
SGLANG = (
    "python -m sglang.launch_server --model-path MODEL", "--max-running-requests",
    "--chunked-prefill-size", "--tp-size",
)  # fmt: skip
"""SGLang counts the tokens of prompts alone, so its line is close to a setting, not equal to it."""


def flag_lines(setting: Setting) -> dict[str, Any]:
    """Return a line for each engine, how many copies of it, and what has no flag in vLLM."""
    question, found = setting.question, dict[str, Any]()
    machine, policy = question.machines[0], question.policy
    values = {"clients": machine.worker.clients, **policy["parameters"]}
    gpus = {"gpus": machine.price} if machine.price > 1 and machine.price.denominator == 1 else {}
    for engine, flags in (("vllm", VLLM), ("sglang", SGLANG)):
        names = dict(zip(NAMES, flags, strict=False))
        said = {**values, **gpus}.items()
        words = [f"{names[name]} {value}" for name, value in said if name in names]
        found[engine] = " ".join((names["start"], *words))
    missing = [f"{name}={value}" for name, value in values.items() if name not in NAMES]
    other = [] if policy["name"] == "vllm" else [f"policy={policy['name']}"]
    return {**found, "copies": sum(setting.fleet), "without_flag": [*other, *missing]}
