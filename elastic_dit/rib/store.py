"""The RIB in a database: an SQLite file, or MySQL or PostgreSQL by their URL."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TypeVar

from sqlalchemy import URL, Engine, create_engine, delete, make_url, select
from sqlalchemy.exc import (
    ArgumentError,
    IntegrityError,
    NoSuchModuleError,
    OperationalError,
    ProgrammingError,
    SQLAlchemyError,
)
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from elastic_dit.errors import ConfigError, RibError
from elastic_dit.rib.book import optimal_dops
from elastic_dit.rib.latency import Latency, LatencyKey, Source
from elastic_dit.rib.tables import (
    SCHEMA_VERSION,
    Base,
    LatencyRow,
    OptimalDopRow,
    SchemaRow,
    shape_columns,
)

__all__ = ["RibStore", "rib_url"]

T = TypeVar("T")

MOST_SAMPLES = 200
"""Samples of one latency that count: with more, what was seen long ago would never fade."""
_RACES = (IntegrityError, OperationalError, ProgrammingError)
"""What a statement ends with where another process was quicker; and for other reasons."""
_LOCK_TIMEOUT_S = 5.0
"""Longest wait for another writer of an SQLite file, seconds."""
_MISSING_DRIVER = "the URL of a database whose driver is installed"


def rib_url(target: str) -> URL:
    """The database that a setting names.

    Parameters
    ----------
    target : str
        A URL of SQLAlchemy, or the path of an SQLite file.

    Raises
    ------
    ConfigError
        Where it is neither.

    Examples
    --------
    >>> str(rib_url("rib.sqlite")), str(rib_url("postgresql+psycopg://me:pw@db/rib"))
    ('sqlite:///rib.sqlite', 'postgresql+psycopg://me:***@db/rib')
    """
    try:
        return make_url(target) if "://" in target else URL.create("sqlite", database=target)
    except ArgumentError:
        raise ConfigError("rib", target, "a database's URL or the path of a file") from None


class RibStore:
    """Latencies by key and software, and the optimal degree of every shape.

    Every call is one transaction; nothing stays open between two. To be called from any thread,
    never from an event loop.

    Parameters
    ----------
    target : str
        See `rib_url`.

    Raises
    ------
    ConfigError
        Where there is no driver for such a database.
    RibError
        Where it does not answer, or holds the tables of another release.

    Examples
    --------
    >>> from elastic_dit.request import Stage
    >>> import tempfile
    >>> key = LatencyKey("m", Stage.DIT, 64, 64, 9, True, 1, "virtual")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = RibStore(f"{folder}/rib.sqlite")
    ...     store.save([Latency(key=key, seconds=0.5, repeats=3, source=Source.PROFILED)], "v1")
    ...     [latency] = store.load("v1")
    >>> latency.seconds
    0.5
    """

    def __init__(self, target: str) -> None:
        url = rib_url(target)
        self.name = url.render_as_string(hide_password=True)
        timeout = {"timeout": _LOCK_TIMEOUT_S} if url.get_backend_name() == "sqlite" else {}
        try:
            self._engine: Engine = create_engine(url, poolclass=NullPool, connect_args=timeout)
        except (ImportError, NoSuchModuleError) as error:
            raise ConfigError("rib", self.name, f"{_MISSING_DRIVER} ({error})") from None
        self._retried(self._create)

    def __repr__(self) -> str:
        return f"<RibStore {self.name}>"

    def load(self, software: str) -> tuple[Latency, ...]:
        """All latencies, the newest of each key; of other software as estimates."""
        with self._session() as session:
            newest_last = select(LatencyRow).order_by(LatencyRow.measured_at)
            found: dict[LatencyKey, Latency] = {}
            for row in session.scalars(newest_last):
                if row.software == software:
                    found[row.key] = row.latency()
                elif (known := found.get(row.key)) is None or known.source is Source.ESTIMATED:
                    found[row.key] = row.latency(Source.ESTIMATED)
            return tuple(found.values())

    def optimal_dops(self, software: str) -> dict[LatencyKey, int]:
        """Optimal degree by shape, as `elastic_dit.rib.book.optimal_dops` keys it."""
        with self._session() as session:
            chosen = select(OptimalDopRow).where(OptimalDopRow.software == software)
            return {row.shape: row.dop for row in session.scalars(chosen)}

    def save(self, latencies: Sequence[Latency], software: str) -> None:
        """Write measurements over what was there."""
        self._write(latencies, software, lambda _, new: new)

    def refine(self, latencies: Sequence[Latency], software: str) -> None:
        """Merge what was seen into what was there; see `Latency.refined`."""
        self._write(latencies, software, lambda old, new: old.refined(new, MOST_SAMPLES))

    def _write(
        self,
        latencies: Sequence[Latency],
        software: str,
        merged: Callable[[Latency, Latency], Latency],
    ) -> None:
        if latencies:
            self._retried(lambda: self._write_once(latencies, software, merged))

    def _write_once(
        self,
        latencies: Sequence[Latency],
        software: str,
        merged: Callable[[Latency, Latency], Latency],
    ) -> None:
        models = {latency.key.model for latency in latencies}
        with self._session() as session:
            chosen = select(LatencyRow).where(
                LatencyRow.software == software, LatencyRow.model.in_(models)
            )
            rows = {row.key: row for row in session.scalars(chosen.with_for_update())}
            at = datetime.now(UTC).replace(tzinfo=None)
            for latency in latencies:
                row = rows.get(latency.key)
                if row is None:
                    rows[latency.key] = row = LatencyRow.of(latency, software, at)
                    session.add(row)
                else:
                    row.take(merged(row.latency(), latency), at)
            _write_optima(session, rows.values(), software, at)

    def _create(self) -> None:
        with _as_rib_errors(self.name):
            Base.metadata.create_all(self._engine)
        with self._session() as session:
            versions = list(session.scalars(select(SchemaRow.version)))
            if not versions:
                session.add(SchemaRow(version=SCHEMA_VERSION))
            elif max(versions) != SCHEMA_VERSION:
                raise RibError(
                    self.name,
                    f"its tables are of version {max(versions)}, ours of {SCHEMA_VERSION}",
                )

    def _retried(self, work: Callable[[], T]) -> T:
        """Once more where another process wrote the same row, or made the same table, just now."""
        try:
            return work()
        except RibError as error:
            if not isinstance(error.__context__, _RACES):
                raise
            return work()

    @contextmanager
    def _session(self) -> Iterator[Session]:
        with _as_rib_errors(self.name), Session(self._engine) as session, session.begin():
            yield session


def _write_optima(
    session: Session, rows: Iterable[LatencyRow], software: str, at: datetime
) -> None:
    optima: Mapping[LatencyKey, int] = optimal_dops(row.latency() for row in rows)
    models = {key.model for key in optima}
    of_these = (OptimalDopRow.software == software, OptimalDopRow.model.in_(models))
    session.execute(delete(OptimalDopRow).where(*of_these))
    session.add_all(
        OptimalDopRow(**shape_columns(key, software), dop=dop, measured_at=at)
        for key, dop in optima.items()
    )


@contextmanager
def _as_rib_errors(name: str) -> Iterator[None]:
    try:
        yield
    except SQLAlchemyError as error:
        cause = getattr(error, "orig", None) or error
        raise RibError(name, f"{type(cause).__name__}: {cause}") from None
