"""What bounds' certificates are made of, and what they prove: integers only, no solver, no search.

Data and costs are all that this package imports; ``orsched.models`` proposes, the checker verifies.
"""
