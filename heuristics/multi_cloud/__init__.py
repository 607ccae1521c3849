"""MICO (Cong et al.): dealing requests to clouds by predicted length, insertion into batches."""

from orsched.heuristics.multi_cloud.distribution import Distributor
from orsched.heuristics.multi_cloud.mico import Mico
from orsched.heuristics.multi_cloud.params import ABLATION, MicoParams

__all__ = ["ABLATION", "Distributor", "Mico", "MicoParams"]
