"""What a measured schedule says: contents of its steps, gaps between them, errors of its plan."""
