"""What is measured or compared rather than tested: speed, reproductions of papers, vLLM beside."""
