"""What every room uses: errors, units, checked numbers, names of what is registered."""
