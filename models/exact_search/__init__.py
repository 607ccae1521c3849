"""What exact searches are made of: problem and plan, aim, incumbent and bound, first schedules."""
