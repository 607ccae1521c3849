"""Pictures, tables and HTML reports of schedules and results."""
