"""What is measured: one catalogue of names, tallies that add up, and Prometheus' text."""
