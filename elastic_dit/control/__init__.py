"""The deciding core: a pure state machine and its policies."""

from elastic_dit.control import policies  # noqa: F401  (registers them by name)
from elastic_dit.control.controller import Controller
from elastic_dit.control.dispatch import (
    DispatchPolicy,
    dispatch_policies,
    make_dispatch,
    register_dispatch,
)
from elastic_dit.control.placement import (
    PlacementPolicy,
    make_placement,
    placement_policies,
    register_placement,
)
from elastic_dit.control.snapshot import ClusterSnapshot

__all__ = [
    "ClusterSnapshot",
    "Controller",
    "DispatchPolicy",
    "PlacementPolicy",
    "dispatch_policies",
    "make_dispatch",
    "make_placement",
    "placement_policies",
    "register_dispatch",
    "register_placement",
]
