"""MICO as a method; the ablation as parameters of it."""

from __future__ import annotations

from orsched.heuristics.multi_cloud.mico import Mico
from orsched.heuristics.multi_cloud.params import MicoParams
from orsched.heuristics.policy_method import PolicyMethod
from orsched.policy import Information

MICO = PolicyMethod(
    "mico",
    (Information.PREDICTED, Information.NONE, Information.CLAIRVOYANT),
    "requests dealt to clouds by predicted length, inserted into running batches (MICO)",
    lambda instance, params, information, seed: Mico(params, information, seed=seed),
    MicoParams,
    many_workers=True,
)
