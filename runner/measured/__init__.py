"""What a run says: errors of its plan, FLOPs, bandwidth and gaps."""
