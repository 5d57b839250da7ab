"""What a placement policy is, and which there are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from elastic_dit.config import PlacementConfig
from elastic_dit.control.snapshot import ClusterSnapshot
from elastic_dit.errors import ConfigError
from elastic_dit.state import PlacementPlan

__all__ = ["PlacementPolicy", "make_placement", "placement_policies", "register_placement"]


class PlacementPolicy(Protocol):
    """The slow decision. Deterministic; may keep state between calls."""

    def plan(self, snapshot: ClusterSnapshot, now: float) -> PlacementPlan | None:
        """The plan to put in force, of an epoch above the snapshot's; None for no change.

        Parameters
        ----------
        snapshot : ClusterSnapshot
        now : float
            Seconds on the snapshot's clock.
        """
        ...


_Maker = Callable[[PlacementConfig, Sequence[str]], PlacementPolicy]

_REGISTRY: dict[str, _Maker] = {}


def register_placement(name: str, make: _Maker) -> None:
    """Make a policy known under a name; `make` gets the settings and the models' names."""
    _REGISTRY[name] = make


def placement_policies() -> tuple[str, ...]:
    """Names of the registered policies, sorted."""
    return tuple(sorted(_REGISTRY))


def make_placement(config: PlacementConfig, models: Sequence[str]) -> PlacementPolicy:
    """A fresh policy as configured.

    Raises
    ------
    ConfigError
        Where no policy has that name.
    """
    if config.policy not in _REGISTRY:
        known = ", ".join(placement_policies())
        raise ConfigError("placement.policy", config.policy, f"one of {known}")
    return _REGISTRY[config.policy](config, models)
