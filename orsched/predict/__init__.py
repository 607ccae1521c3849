"""Predicted output lengths: predictors that are fitted on prompts, saved, loaded and applied.

A prediction is a distribution over lengths; whole tokens for an instance are derived from it. The
laws of predictions that need no text (``noise``, ``classes``) are in ``orsched.instances``.
"""

from __future__ import annotations

from orsched.lazy_names import lazy_names

_HOME = {
    "orsched.predict.application": ("predict_instance",),
    "orsched.predict.baselines": ("ConstantPredictor", "PromptLengthPredictor"),
    "orsched.predict.corpus": ("DOMAINS", "make_corpus"),
    "orsched.predict.data": ("LabelledPrompts",),
    "orsched.predict.distribution": ("LengthDistribution",),
    "orsched.predict.evaluation": ("evaluate",),
    "orsched.predict.lexical": ("LexicalPredictor",),
    "orsched.predict.online": ("OnlinePredictor",),
    "orsched.predict.predictor": ("LengthPredictor",),
    "orsched.predict.predictor_file": ("load_predictor", "save_predictor"),
    "orsched.predict.prompt": ("Prompt",),
    "orsched.predict.readers": ("read_labelled_prompts", "read_prompts"),
    "orsched.predict.proxies.predictor": ("ProxyPredictor",),
    "orsched.predict.proxies.training": ("train_proxy",),
    "orsched.predict.training": ("KINDS", "train"),
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
