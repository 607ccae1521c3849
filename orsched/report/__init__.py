"""Reports: tables, pictures and pages made from instances and schedules."""
