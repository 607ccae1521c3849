"""What is read off a schedule: its timeline, and the figures that users see."""
