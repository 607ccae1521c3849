"""A two-stage sample-average program: an order for many drawn lengths (docs: *Stochastic*)."""
