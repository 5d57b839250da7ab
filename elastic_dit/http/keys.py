"""API keys: who may use the API."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.datastructures import Headers

from elastic_dit.errors import ConfigError
from elastic_dit.http.problems import Problem

__all__ = ["KEYS_VARIABLE", "ApiKeys", "Owner"]

KEYS_VARIABLE = "ELASTIC_DIT_API_KEYS"
"""Environment variable with keys, separated by commas."""

_SHORTEST = 8
_OWNER_DIGITS = 16
_ANYBODY = "http"
_HARMLESS = ("GET", "HEAD", "OPTIONS")


class ApiKeys:
    """Keys that open the API; without any it is open to all.

    Only digests are kept, so no key shows in a dump or a log. Each key is an owner of its own,
    who sees own jobs only, through whatever front end.

    Parameters
    ----------
    keys : iterable of str

    Raises
    ------
    ConfigError
        Where a key is shorter than eight characters or holds a space.

    Examples
    --------
    >>> keys = ApiKeys(["sk-0123456789"])
    >>> keys.owner("sk-0123456789"), keys.owner("sk-other"), keys.owner(None)
    ('http-5c85b6dd8ccb9a87', None, None)
    >>> ApiKeys([]).owner(None)
    'http'
    """

    def __init__(self, keys: Iterable[str]) -> None:
        keys = tuple(keys)
        for key in keys:
            if len(key) < _SHORTEST or any(map(str.isspace, key)) or not key.isascii():
                allowed = f"{_SHORTEST} or more ASCII characters without spaces"
                raise ConfigError("API key", f"{key[:2]}…", allowed)
        self._digests = frozenset(map(_digest, keys))

    def __repr__(self) -> str:
        return f"<ApiKeys: {len(self._digests)}>"

    def __len__(self) -> int:
        return len(self._digests)

    @classmethod
    def load(cls, path: str | None) -> ApiKeys:
        """Keys of a file, one a line (``#`` comments), and of the environment.

        Raises
        ------
        ConfigError
            Where the file cannot be read or holds no key.
        """
        keys = [key.strip() for key in os.environ.get(KEYS_VARIABLE, "").split(",")]
        if path is not None:
            keys += _keys_in(path)
        return cls(filter(None, keys))

    def owner(self, key: str | None) -> str | None:
        """Whose a key is; None for one that opens nothing."""
        if not self._digests:
            return _ANYBODY
        # Looked up by digest: how long that takes tells nothing of the keys.
        if key is None or (digest := _digest(key)) not in self._digests:
            return None
        return f"{_ANYBODY}-{digest.hex()[:_OWNER_DIGITS]}"


def _keys_in(path: str) -> list[str]:
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError("api-key-file", path, f"a readable text file ({error})") from None
    lines = [line.partition("#")[0].strip() for line in text.splitlines()]
    if not any(lines):
        raise ConfigError("api-key-file", path, "a file with at least one key")
    return lines


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()


_bearer = HTTPBearer(auto_error=False, description="An API key, where the server has any.")


def _owner(
    request: Request,
    credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)],
) -> str:
    keys: ApiKeys = request.app.state.keys
    if not keys and request.method not in _HARMLESS and _is_from_another_site(request.headers):
        message = "pages of other sites may not use this server, which has no API keys"
        raise Problem(403, "permission_error", message, code="cross_site")
    owner = keys.owner(credentials.credentials if credentials else None)
    if owner is None:
        raise Problem(
            401,
            "authentication_error",
            "a valid API key is needed: Authorization: Bearer KEY",
            code="invalid_api_key",
            headers={"WWW-Authenticate": "Bearer"},
        )
    return owner


def _is_from_another_site(headers: Headers) -> bool:
    """Whether a browser sends this on behalf of a page of another site.

    It does so unasked for forms and for JSON without a type; the page cannot read the answer,
    but the job would run. A page does not have a key, so with keys there is nothing to look at.
    """
    site = headers.get("sec-fetch-site")
    if site is not None:
        return site == "cross-site"
    origin = headers.get("origin")
    return origin is not None and urlsplit(origin).netloc != headers.get("host")


Owner = Annotated[str, Depends(_owner)]
"""Dependency of a route for those with a key only: whose jobs it is about."""
