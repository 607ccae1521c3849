"""Shipped instances, generators and readers of foreign trace formats."""

if __name__ != "orsched.instances":
    raise ImportError("use 'import orsched.instances', not 'import instances'")
