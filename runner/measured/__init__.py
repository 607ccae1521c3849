"""What is measured beside a run: the device, its peaks, its use."""
