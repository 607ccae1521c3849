"""Requests of the seeded corpus with the lengths that trained predictors tell, as files.

The other workloads of this folder have no prompts. These have: 12,000 rows of the corpus's domain
``chat`` (``orsched.prediction.make_corpus``; its lengths follow a law that can be learned), of
whose conversations 60 % are fitted on, 20 % calibrate, and 20 % become the requests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from orsched.prediction import OnlinePredictor, Prompt, make_corpus, train
from orsched.prediction.readers import count_by_rule

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from orsched.prediction import LabelledPrompts, LengthPredictor

    Ints = NDArray[np.int64]

WORKLOAD = "seeded corpus"
PREDICTORS = ("prompt length", "lexical", "of other text", "of other text, online")
"""Those between none and the oracle: ``prompt_length`` and ``lexical`` trained on the same source;
``lexical`` trained on the domain ``code``; and that one recalibrated by the replies so far."""

ROWS = 12_000
SEED = 0
LAG = 64
"""A request is predicted when so many before it have no reply yet: as many as a worker holds."""

RATE = 0.05
"""How far one reply moves a quantile of the online predictor, as in docs/predict.md."""


def file_name(predictor: str) -> str:
    """Return the name of the file with a predictor's lengths."""
    return f"corpus-{predictor.replace(',', '').replace(' ', '-')}.csv"


def write_corpus(folder: Path) -> None:
    """Write a file of the same requests for each predictor, and one for the oracle."""
    data = make_corpus("chat", ROWS, SEED)
    other = train(make_corpus("code", ROWS, SEED), seed=SEED)
    test = data.part("test", SEED)
    prompts = [count_by_rule(_read(prompt)) for prompt in test.prompts]
    told = {
        "prompt length": _tokens(train(data, "prompt_length", seed=SEED), test),
        "lexical": _tokens(train(data, seed=SEED), test),
        "of other text": _tokens(other, test),
        "of other text, online": np.array(list(_online(other, test)), np.int64),
        "oracle": test.output_tokens,
    }
    for name, tokens in told.items():
        rows = zip(prompts, test.output_tokens.tolist(), tokens.tolist(), strict=True)
        lines = [",".join(map(str, row)) for row in rows]
        head = "prompt_tokens,output_tokens,predicted_tokens"
        text = "\n".join([head, *lines, ""])
        (folder / file_name(name)).write_text(text, encoding="utf-8")


def _tokens(model: LengthPredictor, test: LabelledPrompts) -> Ints:
    return model.predict(test.prompts).tokens()


def _online(base: LengthPredictor, test: LabelledPrompts) -> Iterator[int]:
    """Yield the median for each request in turn, told of the replies up to ``LAG`` before it."""
    model = OnlinePredictor(base, RATE)
    for row, prompt in enumerate(test.prompts):
        if row >= LAG:
            model.observe(test.prompts[row - LAG], test.output_tokens[row - LAG : row - LAG + 1])
        yield int(model.predict(prompt).tokens()[0])


def _read(prompt: Prompt) -> str:
    """Return all that the model reads."""
    return "\n".join((prompt.system, *prompt.asked, *prompt.answered, prompt.text))
