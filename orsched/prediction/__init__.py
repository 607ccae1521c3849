"""Predicted output lengths: predictors that are fitted on prompts, saved, loaded and applied.

A prediction is a distribution over lengths; whole tokens for an instance are derived from it. The
laws of predictions that need no text (``noise``, ``classes``) are in ``orsched.instances``.
"""

from __future__ import annotations

from orsched.common.lazy_names import lazy_names

_HOME = {
    "orsched.prediction.data": ("DOMAINS", "LabelledPrompts", "Prompt", "make_corpus"),
    "orsched.prediction.distribution": ("LengthDistribution",),
    "orsched.prediction.evaluation": ("evaluate",),
    "orsched.prediction.lexical": ("LexicalPredictor", "OnlinePredictor"),
    "orsched.prediction.predictor": (
        "ConstantPredictor",
        "LengthPredictor",
        "PromptLengthPredictor",
    ),
    "orsched.prediction.predictor_file": (
        "KINDS",
        "load_predictor",
        "predict_instance",
        "save_predictor",
        "train",
    ),
    "orsched.prediction.proxies.proxy_file": ("ProxyPredictor",),
    "orsched.prediction.proxies.training": ("train_proxy",),
    "orsched.prediction.readers": ("read_labelled_prompts", "read_prompts"),
}

__all__ = [
    "DOMAINS",
    "KINDS",
    "ConstantPredictor",
    "LabelledPrompts",
    "LengthDistribution",
    "LengthPredictor",
    "LexicalPredictor",
    "OnlinePredictor",
    "Prompt",
    "PromptLengthPredictor",
    "ProxyPredictor",
    "evaluate",
    "load_predictor",
    "make_corpus",
    "predict_instance",
    "read_labelled_prompts",
    "read_prompts",
    "save_predictor",
    "train",
    "train_proxy",
]

__getattr__ = lazy_names(__name__, _HOME)
