"""How clusters come into being: worker processes, machines, the control plane on a scheduler."""
