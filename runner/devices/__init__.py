"""What executes steps: in this process, in others, as Ray actors, or a clock alone."""
