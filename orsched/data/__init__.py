"""Problem data: requests, workers and memory make an instance; steps make a schedule."""
