"""Questions about many runs: capacity, studies and tuning."""
