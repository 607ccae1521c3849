"""Formulations and bounds: what can be proven about a schedule."""

if __name__ != "orsched.models":
    raise ImportError("use 'import orsched.models', not 'import models'")
