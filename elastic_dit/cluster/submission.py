"""A submission's fields as Dask's messages can carry them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from elastic_dit.errors import InvalidRequest
from elastic_dit.input_image import InputImage
from elastic_dit.request import MAX_SEED

__all__ = ["portable"]


def portable(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options as Dask's messages can carry them: NumPy's numbers as Python's, none too large.

    A picture goes as its file's bytes. Whether options make sense is checked where the model is
    known.

    Raises
    ------
    InvalidRequest
        Where a value is neither text nor number, a whole number needs more than 64 bits, or a
        text holds half a character.
    """
    portable = {
        name: value.item() if isinstance(value, np.generic) else value
        for name, value in options.items()
    }
    for name, value in portable.items():
        if isinstance(value, int) and abs(value) > MAX_SEED:
            raise InvalidRequest(name, value, f"a whole number of at most {MAX_SEED}")
        if isinstance(value, str) and not _is_unicode(value):
            raise InvalidRequest(name, value, "valid Unicode: this holds half a character")
        if name == "image" and isinstance(value, InputImage):
            portable[name] = value.data
        elif not isinstance(value, str | int | float | None):
            raise InvalidRequest(name, value, "a plain text or number")
    return portable


def _is_unicode(text: str) -> bool:
    r"""Whether there is no lone surrogate in it, as in arguments of another encoding.

    >>> _is_unicode("赤い丸"), _is_unicode("bad \udcff")
    (True, False)
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
