"""What is coming and what it will need: workloads, instance ratios, arrivals, shifts."""
