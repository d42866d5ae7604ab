"""Logging in to a ZooKeeper by SASL: with a password, with Kerberos, and what is said when that is refused."""

from __future__ import annotations

import pytest
import trio

from barnabas.cluster.zookeeper.connection import UnreachableError, connect
from barnabas.cluster.zookeeper.sasl import DIGEST_MODULE, KERBEROS_MODULE
from barnabas.cluster.zookeeper.session import NoAuthError
from barnabas.config.cluster import ZooKeeperSasl, ZooKeeperSettings
from barnabas.environment.real import OsThreads
from compat.kafka import ZooKeeperServer, release
from compat.security.kdc import NAME
from tests.support.kerberos import realm_or_skip
from tests.support.zookeeper_process import own_zookeeper


@pytest.fixture
def started(tmp_path, real_zookeeper):
    """Start a ZooKeeper with a section Server; it ends with the test."""
    servers = []

    async def start(section, jvm_options=()):
        jaas = tmp_path / "server.jaas"
        jaas.write_text(f"Server {{\n  {section}\n}};\n")
        server = ZooKeeperServer(release("3.9"), tmp_path / "zookeeper", jaas=jaas, jvm_options=jvm_options)
        servers.append(server)
        await trio.to_thread.run_sync(server.start)
        return server

    yield start
    for server in servers:
        server.stop()


def settings(server, jaas, *, has_acls=True, timeout_ms=60_000):
    sasl = ZooKeeperSasl(jaas, "zookeeper") if jaas else None
    servers = (("localhost", server.port),)
    return ZooKeeperSettings(
        servers, "/kafka", 20_000, timeout_ms, 10, has_acls, digest=None, tls=None, sasl=sasl
    )


async def see_that_znodes_are_kept(server, jaas):
    ours = await connect(settings(server, jaas), OsThreads())
    await ours.create("/brokers/ids", b"x", parents=True)
    nobody = await connect(settings(server, "", has_acls=False), OsThreads())
    with pytest.raises(NoAuthError):
        await nobody.set("/brokers/ids", b"y")
    await nobody.close()
    same = await connect(settings(server, jaas), OsThreads())
    await same.set("/brokers/ids", b"z")
    assert (await ours.get("/brokers/ids"))[0] == b"z"
    await same.close()
    await ours.close()


def digest(password):
    return f'{DIGEST_MODULE} required username="kafka" password="{password}";'


async def test_znodes_are_kept_for_who_has_logged_in_with_a_password(started):
    server = await started(
        'org.apache.zookeeper.server.auth.DigestLoginModule required user_kafka="a secret";'
    )
    await see_that_znodes_are_kept(server, digest("a secret"))
    with pytest.raises(UnreachableError, match="SASL: the server refuses the login") as refused:
        await connect(settings(server, digest("wrong"), timeout_ms=2000), OsThreads())
    assert "wrong" not in str(refused.value)
    await trio.to_thread.run_sync(server.stop)


async def test_znodes_are_kept_for_who_has_logged_in_with_kerberos(started, tmp_path):
    with realm_or_skip(tmp_path / "realm") as realm:

        def module(principal):
            return (
                f'{KERBEROS_MODULE} required useKeyTab=true storeKey=true keyTab="{realm.keytab(principal)}" '
                f'principal="{principal}@{NAME}";'
            )

        server = await started(module("zookeeper/localhost"), realm.java_options)
        await see_that_znodes_are_kept(server, module("kafka"))
        jaas = module("kafka")
        realm.change_key("kafka")
        with pytest.raises(UnreachableError, match="login to zookeeper/localhost with Kerberos fails"):
            await connect(settings(server, jaas, timeout_ms=2000), OsThreads())


async def test_broken_connection_is_logged_in_again(started):
    server = await started(
        'org.apache.zookeeper.server.auth.DigestLoginModule required user_kafka="a secret";'
    )
    ours = await connect(settings(server, digest("a secret")), OsThreads())
    await ours.create("/e", b"1")
    await trio.to_thread.run_sync(server.stop)
    with trio.fail_after(120):
        await trio.to_thread.run_sync(server.start)
        await ours.wait_connected()
    await ours.set("/e", b"2")
    await ours.close()


class At:
    """A server by its HOST:PORT."""

    def __init__(self, address):
        self.port = int(address.rpartition(":")[2])


async def test_our_own_server_lets_users_log_in_with_a_password(tmp_path):
    jaas = tmp_path / "server.jaas"
    jaas.write_text(f'Server {{\n  {DIGEST_MODULE} required user_kafka="a secret" user_other="o";\n}};\n')
    with own_zookeeper(tmp_path / "data", ["--jaas", str(jaas)]) as address:
        await see_that_znodes_are_kept(At(address), digest("a secret"))
        other = f'{DIGEST_MODULE} required username="other" password="o";'
        somebody = await connect(settings(At(address), other), OsThreads())
        with pytest.raises(NoAuthError):
            await somebody.set("/brokers/ids", b"y")
        await somebody.close()
        with pytest.raises(UnreachableError, match="SASL: the server refuses the login"):
            await connect(settings(At(address), digest("wrong"), timeout_ms=2000), OsThreads())


async def test_our_own_server_without_users_offers_no_login(any_zookeeper):
    with pytest.raises(UnreachableError, match="SASL: the server offers no login by SASL"):
        await connect(settings(At(any_zookeeper), digest("a secret"), timeout_ms=2000), OsThreads())


@pytest.mark.parametrize(
    ("jaas", "reason"),
    [
        (f"{DIGEST_MODULE} required username=a;", "password="),
        ("a.Other required;", "DigestLoginModule or"),
        (f"{DIGEST_MODULE} required", "does not end with ;"),
        (f"{KERBEROS_MODULE} required;", "useKeyTab=true or useTicketCache=true"),
        (f"{KERBEROS_MODULE} required useKeyTab=true;", "keyTab="),
    ],
)
async def test_a_login_module_that_cannot_work_is_named(jaas, reason):
    class Nowhere:
        port = 1

    with pytest.raises(UnreachableError, match=r"zookeeper\.sasl\.jaas\.config") as refused:
        await connect(settings(Nowhere, jaas), OsThreads())
    assert reason in str(refused.value)
