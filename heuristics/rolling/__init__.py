"""Rolling re-optimisation: plans of the window model, made beside the run and then followed."""
