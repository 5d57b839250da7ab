"""Estimators in files: skops, trusted types only. Nothing that a file names is ever run."""

from __future__ import annotations

import io
import zipfile
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from elastic_dit.errors import ConfigError
from elastic_dit.files import write_atomically

if TYPE_CHECKING:
    from elastic_dit.predict.estimator import SplitEstimator

__all__ = ["load_default", "load_estimator", "read_estimator", "save_estimator"]

_DEFAULT = "default.skops"
_TRUSTED = ("elastic_dit.predict.estimator.SplitEstimator",)
"""Beside what skops itself trusts: scikit-learn's own estimators, numpy arrays, plain data."""
_LARGEST_BYTES = 16 << 20
"""Of a file unpacked; the packaged one is a hundredth of that."""
_ALLOWED = "a predictor written by elastic_dit.predict.storage.save_estimator"


def save_estimator(estimator: SplitEstimator, path: str | Path) -> None:
    """Write a fitted estimator.

    Raises
    ------
    SaveError
        Where the file could not be written.
    """
    import skops.io

    content = skops.io.dumps(estimator, compression=zipfile.ZIP_DEFLATED, compresslevel=9)
    write_atomically(path, content)


def load_estimator(path: str | Path) -> SplitEstimator:
    """Read an estimator.

    Raises
    ------
    ConfigError
        Where the file cannot be read, or as `read_estimator`.
    """
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise ConfigError("predictor", str(path), f"a readable file ({error.strerror})") from None
    return read_estimator(content, str(path))


def load_default() -> SplitEstimator:
    """The estimator that ships with the package.

    ``python -m elastic_dit.reproduce.train_predictor`` made it.
    """
    return read_estimator((files(__package__) / _DEFAULT).read_bytes(), _DEFAULT)


def read_estimator(content: bytes, name: str) -> SplitEstimator:
    """An estimator from the bytes of a file.

    Parameters
    ----------
    content : bytes
    name : str
        Of the file, for errors.

    Raises
    ------
    ConfigError
        Where it is damaged, too large, names a type that is not trusted, holds something else, or
        was made for other features.
    """
    import skops.io

    from elastic_dit.predict.estimator import SplitEstimator

    try:
        _check_size(content)
        estimator = skops.io.loads(content, trusted=list(_TRUSTED))
    except Exception as error:  # whatever a damaged file makes skops, zipfile or numpy raise
        reason = f"{type(error).__name__}: {error}"
        raise ConfigError("predictor", name, f"{_ALLOWED} ({reason})") from None
    if not isinstance(estimator, SplitEstimator) or not estimator.is_sound():
        raise ConfigError("predictor", name, f"{_ALLOWED}, of the same version and fitted")
    return estimator


def _check_size(content: bytes) -> None:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        unpacked = sum(entry.file_size for entry in archive.infolist())
    if unpacked > _LARGEST_BYTES:
        raise ValueError(f"it unpacks to {unpacked} bytes")
