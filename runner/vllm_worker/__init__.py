"""vLLM as a worker: its engine executes the passes that orsched asks for, and no others.

vLLM is imported inside functions only: a machine without it loads this package as well.
"""
