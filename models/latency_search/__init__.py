"""Search for schedules with short latencies: order, places and sizes of prefills, at full scale."""
