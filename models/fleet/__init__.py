"""Plans for several workers: who serves which request, and in which order."""
