"""PostgreSQL URLs as hosters and other tools write them."""

import asyncio
import ssl
from collections.abc import Callable

import pytest

from perdure.model.errors import MalformedUrl, StoreUnreachable
from perdure.store.open import open_store
from perdure.store.postgres.engine.driver_errors import where_is
from perdure.store.postgres.engine.url import READ_BY_DRIVER, REFUSED, WITHOUT_EFFECT, read_url
from tests.conformance.sql_shell import open_shell

LIBPQ = (
    "host hostaddr port dbname user password passfile require_auth channel_binding connect_timeout client_encoding "
    "options application_name fallback_application_name keepalives keepalives_idle keepalives_interval "
    "keepalives_count tcp_user_timeout replication gssencmode sslmode requiressl sslnegotiation sslcompression "
    "sslcert sslkey sslkeylogfile sslpassword sslcertmode sslrootcert sslcrl sslcrldir sslsni requirepeer "
    "ssl_min_protocol_version ssl_max_protocol_version min_protocol_version max_protocol_version krbsrvname gsslib "
    "gssdelegation scram_client_key scram_server_key service servicefile target_session_attrs load_balance_hosts "
    "oauth_issuer oauth_client_id oauth_client_secret oauth_scope"
)
SSL_REQUEST = (80877103).to_bytes(4, "big")
SESSION = {"options", "application_name"}
"""Sent to the server when the session begins."""


def test_every_parameter_of_libpq_is_understood_or_refused_by_name() -> None:
    known = READ_BY_DRIVER | WITHOUT_EFFECT.keys() | REFUSED.keys() | SESSION | {"connect_timeout"}
    assert set(LIBPQ.split()) <= known
    for name in REFUSED:
        with pytest.raises(MalformedUrl, match=f"'{name}'") as caught:
            read_url(f"postgresql://h/d?{name}=secret-value")
        assert "secret-value" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "postgres://u:p@ep-cool-1.aws.neon.tech/neondb?sslmode=require&channel_binding=prefer",
        "postgresql://u:p@h:5432/d?sslmode=require&connect_timeout=7&keepalives=1&keepalives_idle=30&keepalives_count=5",
        "postgresql://u:p@h:5432/d?sslmode=require&keepalives_interval=10&tcp_user_timeout=5000&gssencmode=disable",
        "postgresql+asyncpg://u:p@h/d?ssl=require",
        "postgresql+psycopg2://u:p@h/d?sslmode=require",
        "postgres://u:p@a:5432,b:5433/d?target_session_attrs=read-write&sslmode=require",
        "postgresql://u:p@h/d?sslmode=require&client_encoding=UTF8&application_name=shop&fallback_application_name=x",
    ],
)
def test_urls_of_hosters_are_understood(url: str) -> None:
    address = read_url(url)
    assert address.dsn.startswith("postgresql://u:p@")
    assert "sslmode=require" in address.dsn
    assert address.ssl is None
    assert address.settings == ({"application_name": "shop"} if "shop" in url else {})
    assert address.timeout == (7 if "connect_timeout" in url else 10)
    assert "PostgreSQL database" in where_is(url)


@pytest.mark.parametrize("query", ["sslmode=require&channel_binding=require", "sslmode=verify-full&sslrootcert=system"])
def test_what_binds_the_channel_checks_the_certificate(query: str) -> None:
    address = read_url(f"postgresql://u@h/d?{query}")
    assert address.ssl is not None
    assert (address.ssl.verify_mode, address.ssl.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert "system" not in address.dsn
    own = read_url("postgresql://u@h/d?sslmode=verify-full&sslrootcert=/ca.pem&channel_binding=require")
    assert own.ssl is None
    assert "sslrootcert=/ca.pem" in own.dsn


@pytest.mark.parametrize(
    "query",
    [
        "gssencmode=require",
        "channel_binding=require&sslmode=disable",
        "connect_timeout=soon",
        "load_balance_hosts=random",
        "client_encoding=latin1",
        "replication=database",
        "sslsni=0",
    ],
)
def test_what_the_driver_cannot_do_is_refused(query: str) -> None:
    with pytest.raises(MalformedUrl) as caught:
        read_url(f"postgresql://u@h/d?{query}")
    assert query.partition("=")[0] in str(caught.value)


def test_another_scheme_is_refused() -> None:
    for url in ("postgresql+nothing://h/d", "mysql://h/d"):
        with pytest.raises(MalformedUrl):
            read_url(url)


async def test_such_urls_connect(fresh_store_url: Callable[[str], str]) -> None:
    plain = fresh_store_url("postgres")
    question = "&" if "?" in plain else "?"
    more = "connect_timeout=5&keepalives=1&keepalives_idle=5&gssencmode=disable&channel_binding=disable&application_name=shop"
    for url in (plain + question + more, plain.replace("postgresql:", "postgresql+asyncpg:", 1)):
        store = await open_store(url)
        try:
            await store.schema.migrate()
            async with open_shell(plain) as shell:
                rows = await shell.run(
                    "select application_name as name from pg_stat_activity where datname = current_database()"
                )
            assert ("shop" if "shop" in url else "perdure") in {row["name"] for row in rows}
        finally:
            await store.close()


async def test_of_several_hosts_the_one_that_takes_writes_is_used(fresh_store_url: Callable[[str], str]) -> None:
    plain = fresh_store_url("postgres")
    scheme, _, rest = plain.partition("://")
    user, at, place = rest.rpartition("@")
    hosts, slash, path = place.partition("/")
    host, _, port = hosts.rpartition(":")
    if "," in hosts or not port:
        pytest.skip("the server of these tests is not at one host and port")
    question = "&" if "?" in path else "?"
    url = f"{scheme}://{user}{at}{host}:1,{hosts}{slash}{path}{question}target_session_attrs=read-write"
    store = await open_store(url)
    try:
        await store.schema.migrate()
        assert (await store.now()).year > 2000
    finally:
        await store.close()


async def test_a_parameter_that_no_server_knows_is_named(fresh_store_url: Callable[[str], str]) -> None:
    plain = fresh_store_url("postgres")
    with pytest.raises(StoreUnreachable, match="pool_mode") as caught:
        await open_store(plain + ("&" if "?" in plain else "?") + "pool_mode=transaction")
    assert "a parameter of the URL" in str(caught.value.hint)


@pytest.mark.parametrize("asked", ["?pgbouncer=false", "?pgbouncer=true&options=-cjit%3Doff", ""])
async def test_a_pooler_that_refuses_settings_is_named(asked: str) -> None:
    """PgBouncer answers a startup parameter that it does not know like this."""

    async def pooler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            startup = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big") - 4)
            if startup[:4] != SSL_REQUEST:
                break
            writer.write(b"N")
        fields = b"SFATAL\0C08P01\0Munsupported startup parameter: jit\0\0"
        writer.write(b"E" + (len(fields) + 4).to_bytes(4, "big") + fields)
        writer.close()

    server = await asyncio.start_server(pooler, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        with pytest.raises(StoreUnreachable, match="behind a pooler such as PgBouncer") as caught:
            await open_store(f"postgresql://shop:secret@127.0.0.1:{port}/shop{asked}")
    finally:
        server.close()
    assert "unsupported startup parameter" in str(caught.value)
    assert "pgbouncer=true" in str(caught.value.hint)
    assert "secret" not in str(caught.value)


def test_pgbouncer_is_true_or_false() -> None:
    with pytest.raises(MalformedUrl, match="pgbouncer"):
        read_url("postgresql://shop@db/shop?pgbouncer=transaction")
