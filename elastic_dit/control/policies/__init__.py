"""Dispatch policies beyond first come, first served; importing this registers them."""

from elastic_dit.control.policies.ddit import DditGreedy
from elastic_dit.control.policies.edf import EdfBestFit
from elastic_dit.control.policies.elastic import Elastic
from elastic_dit.control.policies.pressure import Pressure
from elastic_dit.control.policies.srtf import Srtf
from elastic_dit.control.policies.tetriserve import TetriServe
from elastic_dit.control.policies.units import FixedUnits, StaticDop

__all__ = [
    "DditGreedy",
    "EdfBestFit",
    "Elastic",
    "FixedUnits",
    "Pressure",
    "Srtf",
    "StaticDop",
    "TetriServe",
]
