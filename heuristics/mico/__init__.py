"""MICO (Cong et al.): dealing requests to clouds by predicted length, insertion into batches."""

from orsched.heuristics.mico.distribution import Distributor
from orsched.heuristics.mico.mico import Mico
from orsched.heuristics.mico.params import ABLATION, MicoParams

__all__ = ["ABLATION", "Distributor", "Mico", "MicoParams"]
