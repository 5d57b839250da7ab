"""The tables of the RIB."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import DateTime, Float, Integer, String, UniqueConstraint
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from elastic_dit.request import Stage
from elastic_dit.rib.latency import Latency, LatencyKey, Source

__all__ = ["SCHEMA_VERSION", "Base", "LatencyRow", "OptimalDopRow", "SchemaRow", "shape_columns"]

SCHEMA_VERSION = 1
"""Of the tables; rises when a release cannot read what an older one wrote."""
_MODEL, _KIND, _SOFTWARE, _WORD = 200, 100, 150, 16
"""Longest texts, characters; together they fit an index of MySQL."""
_SHAPE = ("model", "kind", "software", "width", "height", "num_frames", "guided")


class Base(DeclarativeBase):
    """Of all tables."""


class SchemaRow(Base):
    """One row: which release's tables these are."""

    __tablename__ = "rib_schema"

    version: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)


class _Shaped:
    """Columns of what was measured on what."""

    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    model: Mapped[str] = mapped_column(String(_MODEL))
    kind: Mapped[str] = mapped_column(String(_KIND))
    software: Mapped[str] = mapped_column(String(_SOFTWARE))
    width: Mapped[int] = mapped_column(Integer)
    height: Mapped[int] = mapped_column(Integer)
    num_frames: Mapped[int] = mapped_column(Integer)
    guided: Mapped[int] = mapped_column(Integer)
    measured_at: Mapped[datetime] = mapped_column(DateTime)
    """Coordinated universal time."""

    @property
    def shape(self) -> LatencyKey:
        """The key of the DiT at a degree of 1."""
        shape = (self.width, self.height, self.num_frames)
        return LatencyKey(self.model, Stage.DIT, *shape, bool(self.guided), 1, self.kind)


class LatencyRow(_Shaped, Base):
    """One stage of one shape at one degree; see `Latency`."""

    __tablename__ = "rib_latencies"
    __table_args__ = (UniqueConstraint(*_SHAPE, "stage", "dop", name="rib_latency_key"),)

    stage: Mapped[str] = mapped_column(String(_WORD))
    dop: Mapped[int] = mapped_column(Integer)
    seconds: Mapped[float] = mapped_column(Float)
    spread_s: Mapped[float] = mapped_column(Float)
    repeats: Mapped[int] = mapped_column(Integer)
    setup_s: Mapped[float] = mapped_column(Float)
    source: Mapped[str] = mapped_column(String(_WORD))

    def __repr__(self) -> str:
        return f"<LatencyRow {self.key} {self.seconds:.3g} s with {self.software}>"

    @classmethod
    def of(cls, latency: Latency, software: str, at: datetime) -> LatencyRow:
        """The row of a latency."""
        key = latency.key
        row = cls(**shape_columns(key, software), stage=str(key.stage), dop=key.dop)
        row.take(latency, at)
        return row

    def take(self, latency: Latency, at: datetime) -> None:
        """Take other figures of the same key."""
        self.seconds, self.spread_s = latency.seconds, latency.spread_s
        self.repeats, self.setup_s = latency.repeats, latency.setup_s
        self.source, self.measured_at = str(latency.source), at

    @property
    def key(self) -> LatencyKey:
        """What it is of."""
        return self.shape._replace(stage=Stage(self.stage), dop=self.dop)

    def latency(self, source: Source | None = None) -> Latency:
        """The latency of the row, or the same as if from another source."""
        return Latency(
            key=self.key, seconds=self.seconds, spread_s=self.spread_s, repeats=self.repeats,
            setup_s=self.setup_s, source=source or Source(self.source),
        )  # fmt: skip


class OptimalDopRow(_Shaped, Base):
    """Optimal degree of parallelism of one shape (DDiT §4.2.3)."""

    __tablename__ = "rib_optimal_dops"
    __table_args__ = (UniqueConstraint(*_SHAPE, name="rib_optimal_key"),)

    dop: Mapped[int] = mapped_column(Integer)

    def __repr__(self) -> str:
        return f"<OptimalDopRow {self.width}x{self.height}x{self.num_frames}: {self.dop}>"


def shape_columns(key: LatencyKey, software: str) -> dict[str, Any]:
    """Columns that say what was measured, by name."""
    return {
        "model": key.model,
        "kind": key.kind,
        "software": software,
        "width": key.width,
        "height": key.height,
        "num_frames": key.num_frames,
        "guided": int(key.guided),
    }
