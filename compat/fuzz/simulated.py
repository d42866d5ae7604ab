"""The login of a whole broker, in a simulated world: no socket, no clock, no process, so a million inputs take minutes."""

from __future__ import annotations

import gc
import logging
import random
import tempfile
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import trio

from barnabas.client.settings import SaslCredentials
from barnabas.security.acls import PatternType, Permission
from barnabas.security.authorizer import Operation, ResourceType
from barnabas.security.scram import MECHANISMS, salted_password
from barnabas.serving import apis
from barnabas.testing.simulation.broker import SimulatedBroker
from barnabas.testing.simulation.network import SimulatedStream, Weather
from barnabas.testing.simulation.world import BEGIN_MS, World, run_world
from barnabas.wire import registry
from barnabas.wire.generated.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from barnabas.wire.generated.create_acls import CreateAclsRequest
from barnabas.wire.generated.create_delegation_token import CreateDelegationTokenRequest
from barnabas.wire.generated.create_topics import CreateTopicsRequest
from barnabas.wire.generated.expire_delegation_token import ExpireDelegationTokenRequest
from barnabas.wire.generated.metadata import MetadataRequest
from compat.fuzz import logins
from compat.fuzz.asking import Asker
from compat.fuzz.held import Held, Kerberos, TokenPair, kerberos
from compat.fuzz.session import SECRET_TOPIC, SECRETS, Line, Session, line_of
from compat.fuzz.target import Finding, Growth, Round, RunRound, Target

AT_ONCE = 32
NOW_S = BEGIN_MS // 1000
ADMIN = SaslCredentials("PLAIN", "admin", "of-the-castle")
ADMIN_PASSWORD = ADMIN.password
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SALT = b"fuzz-salt-of-16b"


def settings(listener: str, jwks: Path, kerberos: Kerberos | None, **other: str) -> dict[str, str]:
    """Settings of a broker with every mechanism that there is, on a listener called by its protocol."""
    return {
        "listeners": listener,
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER"
        + (",GSSAPI" if kerberos is not None else ""),
        "delegation.token.secret.key": "fuzz",
        "delegation.token.expiry.time.ms": "604800000",
        **{
            name: value
            for name, value in (kerberos.settings() if kerberos is not None else {}).items()
            if not name.startswith("listener.") or name.split(".")[2] in listener.lower()
        },
        **{
            f"listener.name.{protocol}.plain.sasl.jaas.config": (
                f'{PLAIN} required user_{logins.USER}="{logins.PASSWORD}" user_admin="{ADMIN_PASSWORD}";'
            )
            for protocol in ("sasl_plaintext", "sasl_ssl")
            if protocol in listener.lower()
        },
        "sasl.oauthbearer.jwks.endpoint.url": f"file://{jwks}",
        "sasl.oauthbearer.expected.audience": logins.EXPECTED_AUDIENCE,
        "sasl.oauthbearer.allow.unverified.issuer": "true",
        "max.unauthenticated.connections": "1000",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:admin",
        **other,
    }


def credentials(mechanism: str, now_s: int) -> SaslCredentials:
    """Return the credentials of alice."""
    if mechanism == "OAUTHBEARER":
        return SaslCredentials(mechanism, tokens=lambda: logins.right_token(now_s))
    return SaslCredentials(mechanism, logins.USER, logins.PASSWORD)


async def set_up(asker: Asker, held: Held) -> None:
    """Make secret topics, and users for SCRAM with rights for those and nothing else; to be asked by admin.

    Tokens of theirs go into `held`.
    """
    topic = CreateTopicsRequest.CreatableTopic(SECRET_TOPIC, num_partitions=1, replication_factor=1)
    response = await asker.ask(CreateTopicsRequest([topic], timeout_ms=60_000), 5)
    assert not response.topics[0].error_code, response
    acl = CreateAclsRequest.AclCreation(
        ResourceType.TOPIC,
        SECRET_TOPIC,
        PatternType.LITERAL,
        f"User:{logins.USER}",
        "*",
        Operation.DESCRIBE,
        Permission.ALLOW,
    )
    assert not (await asker.ask(CreateAclsRequest([acl]), 3)).results[0].error_code
    for mechanism in MECHANISMS.values():
        salted = salted_password(mechanism, logins.PASSWORD, SALT, mechanism.iterations_min)
        change = AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
            logins.USER, mechanism.type, mechanism.iterations_min, SALT, salted
        )
        answer = await asker.ask(AlterUserScramCredentialsRequest([], [change]), 0)
        assert not any(result.error_code for result in answer.results), answer
    held.token = await _delegation_token(asker)
    held.ended = await _delegation_token(asker)
    ending = ExpireDelegationTokenRequest(b64decode(held.ended.password), -1)
    assert not (await asker.ask(ending, 2)).error_code
    held.secrets = [mechanism.password.encode() for mechanism in (held.token, held.ended)]


async def _delegation_token(asker: Asker) -> TokenPair:
    renewer = CreateDelegationTokenRequest.CreatableRenewers("User", ADMIN.username)
    request = CreateDelegationTokenRequest("User", logins.USER, [renewer], max_lifetime_ms=-1)
    answer = await asker.ask(request, 3)
    assert not answer.error_code, answer
    return TokenPair(answer.token_id, b64encode(answer.hmac).decode())


class LogWatch(logging.Handler):
    """Formats every line of the broker's log, and keeps unexpected ones."""

    def __init__(self, held: Held) -> None:
        super().__init__()
        self._held = held
        self.findings: list[Finding] = []

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = record.getMessage()
        except Exception as error:
            self.findings.append(Finding(f"a line of the log cannot be written: {record.msg!r}: {error}"))
            return
        if record.levelno >= logging.ERROR or record.exc_info:
            self.findings.append(Finding(f"the log says {record.levelname} {text[:500]}: {record.exc_info}"))
        elif not text.isprintable():
            self.findings.append(Finding(f"a line of the log has what cannot be printed: {text[:300]!r}"))
        elif any(secret.decode() in text for secret in (*SECRETS, *self._held.secrets)):
            self.findings.append(Finding(f"a line of the log has a secret: {text[:300]!r}"))
        elif len(text) > LINE_CHARS_MAX:
            self.findings.append(Finding(f"a line of the log has {len(text)} characters: {text[:200]!r}"))


LINE_CHARS_MAX = 4096


@contextmanager
def watched(watch: LogWatch) -> Iterator[None]:
    """Make the watch the only handler of the log."""
    logger = logging.getLogger("barnabas")
    level, propagates = logger.level, logger.propagate
    logger.addHandler(watch)
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(watch)
        logger.setLevel(level)
        logger.propagate = propagates


def _line(stream: SimulatedStream) -> Line:
    async def end() -> None:
        stream.transport._outgoing.put(b"")

    return line_of(stream, end)


async def _round(world: World, broker: SimulatedBroker, rng: random.Random, count: int, held: Held) -> Round:
    """Run sessions, some at a time, until so many inputs were sent; then see that right logins are let in."""
    result = Round()

    async def sessions() -> None:
        while result.inputs < count:
            stream = await world.network.host("client").dial(broker.host, 9092)
            try:
                await Session(random.Random(rng.getrandbits(64)), _line(stream), result, held).run()
            finally:
                stream.transport.close()

    async with trio.open_nursery() as nursery:
        for _ in range(AT_ONCE):
            nursery.start_soon(sessions)
    world.network.reset()
    for mechanism in logins.MECHANISMS[:4]:
        async with _logged_in(world, broker, credentials(mechanism, NOW_S)) as asker:
            answer = await asker.ask(MetadataRequest(topics=None), 9)
            if [topic.name for topic in answer.topics] != [SECRET_TOPIC]:
                result.found(f"after a round a login with {mechanism} sees {answer.topics}")
    world.network.reset()
    return result


@asynccontextmanager
async def _logged_in(world: World, broker: SimulatedBroker, who: SaslCredentials) -> AsyncIterator[Asker]:
    stream = await world.network.host("admin").dial(broker.host, 9092)
    asker = Asker(stream)
    await asker.log_in(who)
    yield asker
    stream.transport.close()


async def _objects() -> int:
    """Return how many objects there are, when no client with a failed login is kept waiting any more."""
    await trio.sleep(SETTLE_SECONDS)
    gc.collect()
    return len(gc.get_objects())


class SimulatedLogins:
    """Worlds of a broker; each runs one round, so that a seed repeats it."""

    def __init__(self, *, with_kerberos: bool = True) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="barnabas-fuzz-")
        self._jwks = Path(self._directory.name) / "jwks.json"
        self._jwks.write_text(logins.jwks())
        self._growth = Growth()
        self._kerberos = kerberos(Path(self._directory.name) / "realm") if with_kerberos else None
        for key, api in apis.BY_KEY.items():  # or what is imported later would be taken for growth
            registry.codec(key)
            api.load()
        self._objects: list[int] = []

    def run_round(self, rng: random.Random, count: int) -> Round:
        """Run a round in a new world."""
        held = Held(NOW_S, kerberos=self._kerberos)
        watch = LogWatch(held)
        with watched(watch):
            result = run_world(
                rng.getrandbits(64),
                self._program(rng, count, held),
                weather=Weather(0.0, 0.000_1, 0.02),
                seconds_max=10**9,
            )
        result.findings += watch.findings[:10]
        self._growth.look()
        return result

    def _program(self, rng: random.Random, count: int, held: Held) -> Callable[[World], object]:
        async def program(world: World) -> Round:
            async with trio.open_nursery() as nursery:
                broker = self.broker(world, nursery)
                await broker.start()
                async with _logged_in(world, broker, ADMIN) as asker:
                    await set_up(asker, held)
                result = await _round(world, broker, rng, count // 10, held)
                before = await _objects()
                more = await _round(world, broker, rng, count - result.inputs, held)
                after = await _objects()
                result.inputs += more.inputs
                result.findings += more.findings
                if after - before > OBJECTS_MAX:
                    result.found(f"{after - before} objects more after {more.inputs} inputs")
                await broker.stop()
                nursery.cancel_scope.cancel()
            return result

        return program  # type: ignore[return-value]

    def broker(self, world: World, nursery: trio.Nursery) -> SimulatedBroker:
        """Return a broker with every mechanism, not started."""
        listener = "SASL_PLAINTEXT://broker:9092"
        return SimulatedBroker(world, nursery, settings=settings(listener, self._jwks, self._kerberos))

    def close(self) -> list[Finding]:
        """Return the findings about all rounds together."""
        if self._kerberos is not None:
            self._kerberos.close()
        self._directory.cleanup()
        return self._growth.findings()


SETTLE_SECONDS = 120.0
OBJECTS_MAX = 5_000
"""Limit of the objects that a broker keeps more after thousands of connections: caches of names, first uses of modules."""


def _open() -> tuple[RunRound, Callable[[], list[Finding]]]:
    directory = SimulatedLogins()
    return directory.run_round, directory.close


TARGETS = [
    Target("login", "frames and tokens before a login, to a broker in a simulated world", _open),
]
