"""Pictures of schedules, drawn with matplotlib."""
