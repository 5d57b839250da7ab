"""Named faults under load, and what became of the requests."""
