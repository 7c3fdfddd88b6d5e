"""Database URLs as they may be shown: without passwords."""

from __future__ import annotations

import os
import re
from urllib.parse import unquote_plus

_MASK = "***"
_SECRETS = {"password", "sslpassword", "passphrase", "pwd", "key", "hexkey", "textkey", "authtoken"}
_HOSTS = re.compile(r"(?:\[[^\]]*\]|[^:@\[\]]*)(?::\d*)?")
_SCHEME = re.compile(r"\s*\w+:")
_PARAMETER = re.compile(r"[A-Za-z_]+=")


def masked(url: str) -> str:
    """The URL with `***` for every password in it: that of `user:password@`, and those among the parameters.

    In a malformed URL more is hidden: a password may hold a `/` or `?` that was not escaped.
    """
    if url.strip().startswith("sqlite:///"):  # the path may hold anything, and nothing in it is secret
        path, question, query = url.partition("?")
        return path + question + "&".join(map(_masked_parameter, query.split("&")))
    scheme, mark, rest = url.partition("://")
    if not mark:
        begin = _SCHEME.match(url)
        return (begin[0] if begin else "") + _MASK if "@" in url or "=" in url else url
    place, question, query = rest.partition("?")
    at = place.rfind("@")
    if at < 0:
        hosts = all(_HOSTS.fullmatch(host) for host in place.partition("/")[0].split(","))
        if not hosts or (question and not _PARAMETER.match(query)):
            at = rest.rfind("@")
        if at < 0 and not hosts:  # the host was forgotten
            at = len(rest)
    if at >= 0:
        name, colon, _ = rest[:at].partition(":")
        rest = f"{name}:{_MASK}{rest[at:]}" if colon else rest
    place, question, query = rest.partition("?")
    return scheme + mark + place + question + "&".join(map(_masked_parameter, query.split("&")))


def place_of(url: str) -> str:
    """The database that a URL names, for log lines: without passwords, a SQLite file by its absolute path."""
    url = masked(url.strip())
    path, question, rest = url.removeprefix("sqlite:///").partition("?")
    if path == url or not path or question:
        return url
    return f"sqlite:///{os.path.abspath(path)}{question}{rest}"  # noqa: PTH100  pathlib is slow to load


def has_secret(url: str) -> bool:
    """Whether the URL has a password."""
    return masked(url) != url


def has_parameters(url: str) -> bool:
    """Whether parameters follow the path: `?name=value`."""
    return bool(_PARAMETER.match(url.partition("?")[2]))


def _masked_parameter(parameter: str) -> str:
    name, equals, value = parameter.partition("=")
    secret = unquote_plus(name).strip().lower() in _SECRETS
    return f"{name}={_MASK}" if secret and value else f"{name}{equals}{value}"
