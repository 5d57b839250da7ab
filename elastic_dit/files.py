"""Write files whole or not at all."""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path

from elastic_dit.errors import SaveError

__all__ = ["write_atomically"]


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
