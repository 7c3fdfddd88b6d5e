"""PostgreSQL URLs as hosters and other tools write them: every parameter that libpq knows is understood, or refused by name.

The driver reads most of them itself, and would send any other to the server as a setting of the session.
"""

from __future__ import annotations

import functools
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from urllib.parse import parse_qsl, quote

from perdure.model.errors import MalformedUrl

CONNECT_TIMEOUT = 10.0
"""Seconds, where the URL has no `connect_timeout`."""

NOT_ONE = "this is not a PostgreSQL URL"
WRITE = "write postgresql://user:password@host:5432/database, special characters as %XX"
_SETTING = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")

DRIVERS = ("asyncpg", "psycopg", "psycopg2", "psycopg_async", "pg8000")
"""What SQLAlchemy's URLs have behind `postgresql+`."""

READ_BY_DRIVER = frozenset(
    [
        "host",
        "port",
        "dbname",
        "database",
        "user",
        "password",
        "passfile",
        "service",
        "sslmode",
        "sslcert",
        "sslkey",
        "sslrootcert",
        "sslcrl",
        "sslpassword",
        "sslnegotiation",
        "ssl_min_protocol_version",
        "ssl_max_protocol_version",
        "target_session_attrs",
        "krbsrvname",
        "gsslib",
    ]
)

WITHOUT_EFFECT: Mapping[str, frozenset[str] | None] = MappingProxyType(
    {
        # every call has a time limit of its own, so a server that is gone is noticed without these
        "keepalives": None,
        "keepalives_idle": None,
        "keepalives_interval": None,
        "keepalives_count": None,
        "tcp_user_timeout": None,
        "fallback_application_name": None,
        "sslcompression": None,
        "channel_binding": frozenset({"disable", "prefer"}),
        "gssencmode": frozenset({"disable", "prefer"}),
        "gssdelegation": frozenset({"0"}),
        "sslsni": frozenset({"1"}),
        "sslcertmode": frozenset({"allow"}),
        "load_balance_hosts": frozenset({"disable"}),
        "client_encoding": frozenset({"utf8", "utf-8", "unicode", "auto"}),
        "replication": frozenset({"false", "off", "no", "0"}),
        "min_protocol_version": frozenset({"3.0"}),
        "max_protocol_version": frozenset({"3.0", "latest"}),
    }
)
"""Accepted with these values, None for any: they ask for what is done anyway, or for nothing that could matter here."""

REFUSED: Mapping[str, str] = MappingProxyType(
    {
        "hostaddr": "write the address as the host",
        "servicefile": "name the file in PGSERVICEFILE",
        "requirepeer": "use sslmode=verify-full over TCP",
        "require_auth": "say it in pg_hba.conf of the server",
        "requiressl": "write sslmode=require",
        "sslcrldir": "put the lists into one file: sslcrl",
        "sslkeylogfile": "leave it out",
        "scram_client_key": "give the password",
        "scram_server_key": "give the password",
        "oauth_issuer": "give a password",
        "oauth_client_id": "give a password",
        "oauth_client_secret": "give a password",
        "oauth_scope": "give a password",
        "authtype": "leave it out",
        "tty": "leave it out",
    }
)
"""What the driver cannot do, and what to write instead."""


@dataclass(frozen=True, slots=True)
class Address:
    """What a URL says. dsn: the URL for the driver. timeout: seconds to connect. settings: of each session. checked: the server's
    certificate must be valid for its name and signed by an authority that this machine trusts. pooler: whether a pooler in
    transaction mode is between; None: to be found out."""

    dsn: str
    timeout: float = CONNECT_TIMEOUT
    settings: Mapping[str, str] = field(default_factory=dict)
    checked: bool = False
    pooler: bool | None = None

    @property
    def ssl(self) -> ssl.SSLContext | None:
        """How to encrypt, None for what the DSN says."""
        return ssl.create_default_context() if self.checked else None


@functools.lru_cache(maxsize=64)
def read_url(url: str) -> Address:
    """Take a PostgreSQL URL apart. Raises MalformedUrl, which names the parameter and shows no value of it."""
    scheme, _, rest = url.strip().partition("://")
    name, plus, driver = scheme.partition("+")
    if name not in ("postgresql", "postgres") or (plus and driver not in DRIVERS):
        raise MalformedUrl(NOT_ONE, hint=WRITE)
    place, _, query = rest.partition("?")
    kept: dict[str, str] = {}
    settings: dict[str, str] = {}
    timeout, checked = CONNECT_TIMEOUT, False
    pooler: bool | None = None
    for key, value in parse_qsl(query, keep_blank_values=True):
        if key == "ssl" and value not in ("", "true", "1"):  # as SQLAlchemy's URLs for asyncpg say it
            kept["sslmode"] = value
        elif key in ("ssl", "sslmode") and value in ("true", "1"):
            kept["sslmode"] = "require"
        elif key in READ_BY_DRIVER:
            kept[key] = value
        elif key == "pgbouncer":
            pooler = _yes_or_no(key, value)
        elif key == "connect_timeout":
            timeout = _seconds(value)
        elif key == "channel_binding" and value == "require":
            checked = True
        elif key in WITHOUT_EFFECT:
            _check(key, value, WITHOUT_EFFECT[key])
        elif key in REFUSED:
            raise MalformedUrl(f"the parameter '{key}' of the database URL is not supported", hint=REFUSED[key])
        elif _SETTING.fullmatch(key):
            settings[key] = value
        else:  # a '?' of a password that was not escaped
            raise MalformedUrl(NOT_ONE, hint=WRITE)
    if kept.get("sslrootcert") == "system":
        del kept["sslrootcert"]
        checked = True
    if checked:
        # The driver cannot bind its password to the TLS connection. What that protects from, another server in the place of this
        # one, a certificate that is checked protects from as well.
        checked = kept.get("sslmode") not in ("verify-ca", "verify-full") or "sslrootcert" not in kept
        if kept.get("sslmode") in ("disable", "allow", "prefer"):
            raise MalformedUrl(
                f"the database URL asks for channel_binding=require or sslrootcert=system with sslmode={kept['sslmode']}",
                hint="write sslmode=verify-full",
            )
    parameters = "&".join(f"{key}={quote(value, safe='/:,')}" for key, value in kept.items())
    return Address(
        f"postgresql://{place}" + (f"?{parameters}" if parameters else ""), timeout, settings, checked, pooler
    )


def through_pooler(url: str) -> str:
    """The URL that says that a pooler is between."""
    return f"{url}{'&' if '?' in url else '?'}pgbouncer=true"


def _yes_or_no(key: str, value: str) -> bool:
    if value not in ("true", "1", "false", "0"):
        raise MalformedUrl(f"{key} in the database URL must be true or false")
    return value in ("true", "1")


def _check(key: str, value: str, allowed: frozenset[str] | None) -> None:
    if allowed is not None and value.lower() not in allowed:
        others = " or ".join(sorted(allowed))
        raise MalformedUrl(
            f"the database URL asks for {key}={value[:40]}, which the driver cannot do",
            hint=f"leave it out, or write {key}={others}",
        )


def _seconds(value: str) -> float:
    """As libpq: whole seconds; 0, less or nothing is no limit, which is ours here; a second is too short."""
    try:
        asked = int(value or "0")
    except ValueError:
        raise MalformedUrl("connect_timeout in the database URL must be whole seconds") from None
    return CONNECT_TIMEOUT if asked <= 0 else float(max(asked, 2))
