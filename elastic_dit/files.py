"""Write files whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from pathlib import Path

from elastic_dit.errors import SaveError

__all__ = ["check_target", "write_atomically"]


def check_target(path: str | os.PathLike[str]) -> None:
    """Say now, before work is spent, that a file could not be written there later.

    Parameters
    ----------
    path : path-like
        Where a file shall go.

    Raises
    ------
    SaveError
        Where its directory is missing or may not be written, or a directory has its name.

    Examples
    --------
    >>> check_target("/no/such/directory/clip.mp4")
    Traceback (most recent call last):
    elastic_dit.errors.SaveError: cannot save /no/such/directory/clip.mp4: No such file or directory
    """
    target = Path(path)
    problem = None
    if not target.parent.is_dir():
        problem = errno.ENOTDIR if target.parent.exists() else errno.ENOENT
    elif target.is_dir():
        problem = errno.EISDIR
    elif not os.access(target.parent, os.W_OK):
        problem = errno.EACCES
    if problem is not None:
        raise SaveError(str(target), os.strerror(problem))


def write_atomically(path: str | os.PathLike[str], content: bytes) -> Path:
    """Write a file so that its reader sees all of it or nothing.

    The bytes go to a hidden file beside the target, which takes the target's name only once
    they are on the disk.

    Parameters
    ----------
    path : path-like
        The target; an existing file is replaced.
    content : bytes
        All of it.

    Returns
    -------
    pathlib.Path
        The target.

    Raises
    ------
    SaveError
        Where the directory is missing, may not be written, or has no room. Nothing is left.

    Examples
    --------
    >>> write_atomically("/no/such/directory/clip.mp4", b"")
    Traceback (most recent call last):
    elastic_dit.errors.SaveError: cannot save /no/such/directory/clip.mp4: No such file or directory
    """
    target = Path(path)
    part = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
    try:
        with part.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        part.replace(target)
    except OSError as error:
        raise SaveError(str(target), error.strerror or str(error)) from error
    finally:
        # Gone already after success; an interrupt must not leave it either.
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
    return target
