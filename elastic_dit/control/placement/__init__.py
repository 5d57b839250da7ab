"""The slow decision: which stages are resident on which GPU.

A policy is one class with `plan`, registered under the name that `PlacementConfig.policy` uses.
"""

from elastic_dit.control.placement.colocated import Colocated
from elastic_dit.control.placement.hybrid import Hybrid
from elastic_dit.control.placement.packed import Packed
from elastic_dit.control.placement.policy import (
    PlacementPolicy,
    make_placement,
    placement_policies,
    register_placement,
)
from elastic_dit.control.placement.reactive import Reactive
from elastic_dit.control.placement.static import StaticRatio

__all__ = [
    "Colocated",
    "Hybrid",
    "Packed",
    "PlacementPolicy",
    "Reactive",
    "StaticRatio",
    "make_placement",
    "placement_policies",
    "register_placement",
]
