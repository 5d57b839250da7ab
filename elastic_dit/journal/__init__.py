"""What outlives the cluster: accepted requests, how they ended, and their results."""
