"""Proof, on a user's own hardware, that the degree of parallelism does not change the result."""
