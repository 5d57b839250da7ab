"""What runs on one GPU: stages, sessions, payloads."""
