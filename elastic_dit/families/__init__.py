"""One model family per module."""
