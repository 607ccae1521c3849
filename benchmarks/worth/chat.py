"""Requests with the replies and predictions that Qiu et al. published, as a file of requests."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING

from orsched.instances.datasets import data_directory
from orsched.instances.predictions import load_confusion

if TYPE_CHECKING:
    from pathlib import Path

NAME = "ssjf-chat.csv"
REPLIES, PROMPTS = "output_length_predictions.csv", "sharegpt_10k_llama2_tokens.csv"


def write_chat(folder: Path) -> None:
    """Write one request for each pair of ShareGPT: its prompt, and a published row's reply.

    The published rows have no prompts. What was predicted for a row stands beside its reply, as the
    median length of the predicted class (tokens).
    """
    medians = load_confusion(5).medians()
    with (
        (data_directory() / REPLIES).open(encoding="utf-8") as replies,
        (data_directory() / PROMPTS).open(encoding="utf-8") as prompts,
        (folder / NAME).open("w", encoding="utf-8", newline="") as file,
    ):
        out = csv.writer(file)
        out.writerow(("prompt_tokens", "output_tokens", "predicted_tokens"))
        for prompt, reply in zip(csv.DictReader(prompts), csv.DictReader(replies), strict=False):
            told = medians[int(reply["pred_bucket_5class"])]
            out.writerow((prompt["prompt_tokens"], reply["true_output_tokens"], told))
