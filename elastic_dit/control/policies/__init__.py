"""Dispatch policies beyond first come, first served; importing this registers them."""

from elastic_dit.control.policies.ddit import DditGreedy
from elastic_dit.control.policies.elastic import Elastic
from elastic_dit.control.policies.units import FixedUnits, StaticDop

__all__ = ["DditGreedy", "Elastic", "FixedUnits", "StaticDop"]
