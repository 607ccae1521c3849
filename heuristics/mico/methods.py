"""MICO as a method; the ablation as parameters of it."""

from __future__ import annotations

from orsched.heuristics.mico.mico import Mico
from orsched.heuristics.mico.params import MicoParams
from orsched.heuristics.policy_method import PolicyMethod
from orsched.simulator.policy import Information

MICO = PolicyMethod(
    "mico",
    (Information.PREDICTED, Information.NONE, Information.CLAIRVOYANT),
    "requests dealt to clouds by predicted length, inserted into running batches (MICO)",
    lambda instance, params, information, seed: Mico(params, information, seed=seed),
    MicoParams,
    many_workers=True,
)
