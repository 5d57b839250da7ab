"""The request information base: what stages were measured to take, and estimates beside it."""

from elastic_dit.rib.book import LatencyBook
from elastic_dit.rib.cost import RibCost
from elastic_dit.rib.keeper import RibKeeper
from elastic_dit.rib.latency import Latency, LatencyKey, Source
from elastic_dit.rib.observations import Observations
from elastic_dit.rib.software import software_version
from elastic_dit.rib.times import RibTimes

__all__ = [
    "Latency",
    "LatencyBook",
    "LatencyKey",
    "Observations",
    "RibCost",
    "RibKeeper",
    "RibTimes",
    "Source",
    "software_version",
]
