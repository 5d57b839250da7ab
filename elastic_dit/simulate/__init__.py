"""Virtual time: workloads, and the cluster that runs them through the real controller."""
