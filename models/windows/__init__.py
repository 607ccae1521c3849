"""Stage windows: the search that schedules at full scale close to the bound."""
