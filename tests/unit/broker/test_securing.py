"""Security of listeners: made at the start, made again when settings change, and Kerberos as a module names it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.broker.kerberos_login import MODULE, Library, gssapi_exchange, tickets_of
from barnabas.broker.sasl_offers import jaas_of
from barnabas.broker.securing import Securing
from barnabas.broker.startup import StartupError
from barnabas.cluster.metadata.image import BROKER, TOPIC
from barnabas.config.listeners import ListenerSettings
from barnabas.config.loading import BrokerConfig
from barnabas.config.setting import SettingError
from barnabas.network.kerberos import KerberosError, Login
from barnabas.security.sasl.mechanism import GSSAPI, LoginFailedError

JAAS = "listener.name.users.gssapi.sasl.jaas.config"
SERVICE = "sasl.kerberos.service.name"
RULES = "sasl.kerberos.principal.to.local.rules"


class AtOnce:
    """Threads that run work at once, and note by which limiter."""

    def __init__(self) -> None:
        self.limiters: list[Any] = []

    async def run(self, work: Any, *, limiter: Any = None) -> Any:
        """Run it."""
        self.limiters.append(limiter)
        return work()


# --- listeners --------------------------------------------------------------------------------------------------------


class Case:
    """Listeners, of which one is open, and channels as a test says they are made."""

    def __init__(self) -> None:
        self.listeners: list[Any] = [
            SimpleNamespace(
                name=name, security_protocol=protocol,
                channel=SimpleNamespace(is_open=is_open, tls=f"tls-{name}"),
            )
            for name, protocol, is_open in (
                ("A", "PLAINTEXT", True), ("B", "SSL", False), ("C", "SSL", False),
            )
        ]  # fmt: skip
        self.made: list[Any] = []
        self.refused: set[str] = set()
        parts: Any = SimpleNamespace(environment=SimpleNamespace(threads=AtOnce()))
        self.config = BrokerConfig({})
        self.securing = Securing(self.listeners, self.config, parts, self._make)

    def _make(self, listener: ListenerSettings, parts: Any, replaced: Any) -> Any:
        self.made.append((listener.name, listener.protocol, replaced))
        if listener.name in self.refused:
            raise SettingError(f"listener {listener.name} is refused")
        return SimpleNamespace(is_open=listener.name == "A", tls=f"new-{listener.name}")

    def tls(self) -> list[str]:
        return [listener.channel.tls for listener in self.listeners]


def test_at_the_start_all_listeners_are_secured_or_none() -> None:
    case = Case()
    case.refused = {"C"}
    with pytest.raises(StartupError, match="listener C is refused"):
        case.securing.begin()
    assert case.tls() == ["tls-A", "tls-B", "tls-C"]
    case.refused = set()
    case.securing.begin()
    assert case.tls() == ["new-A", "new-B", "new-C"]
    assert case.made[-3:] == [("A", "PLAINTEXT", "tls-A"), ("B", "SSL", "tls-B"), ("C", "SSL", "tls-C")]


async def test_settings_are_checked_before_they_count() -> None:
    case = Case()
    await case.securing.check(case.config)
    assert [name for name, _, _ in case.made] == ["B", "C"], "nothing secures an open one"
    assert case.tls() == ["tls-A", "tls-B", "tls-C"]
    case.refused = {"B"}
    with pytest.raises(SettingError, match="listener B is refused"):
        await case.securing.check(case.config)


@pytest.mark.parametrize(
    ("kinds", "is_made"), [([BROKER], True), ([TOPIC, BROKER], True), ([TOPIC], False), ([], False)]
)
async def test_what_cannot_be_used_does_not_replace_what_is_in_use(
    caplog: pytest.LogCaptureFixture, kinds: list[Any], is_made: bool
) -> None:
    case = Case()
    case.refused = {"B"}
    delta: Any = SimpleNamespace(configs=[(kind, "") for kind in kinds])
    await case.securing.clean_up(delta)
    assert case.tls() == ["tls-A", "tls-B", "new-C" if is_made else "tls-C"]
    assert ("listener B keeps its previous settings" in caplog.text) is is_made


# --- Kerberos ---------------------------------------------------------------------------------------------------------


def listener(**settings: str) -> ListenerSettings:
    return ListenerSettings(BrokerConfig({SERVICE: "kafka", **settings}), "USERS", "SASL_PLAINTEXT")


def entry_of(options: str, **settings: str) -> tuple[ListenerSettings, Any]:
    users = listener(**{JAAS: f"{MODULE} required {options};", **settings})
    return users, jaas_of(users, GSSAPI)


KEY = 'useKeyTab=true keyTab="/k" principal="kafka/h@R"'


class Acceptor:
    """Keys of a service without the library: which were read, and contexts that answer or refuse."""

    def __init__(self, refusal: KerberosError | None = None) -> None:
        self.keys: list[tuple[str, str | None]] = []
        self.is_established = False
        self.refusal = refusal

    def of(self, principal: str, keytab: str | None) -> Any:
        self.keys.append((principal, keytab))
        return self

    def context(self) -> Any:
        return self

    def step(self, _: bytes) -> bytes:
        if self.refusal is not None:
            raise self.refusal
        return b"answer"

    @property
    def library(self) -> Library:
        return Library(self.of, lambda: "R")


def fails(error: Exception) -> Any:
    def make(*_: Any) -> Any:
        raise error

    return make


@pytest.mark.parametrize(
    ("stores", "is_warned"),
    [("storeKey=true", False), ("storeKey=TRUE", False), ("storeKey=false", True), ("", True)],
)
async def test_logins_are_accepted_with_the_key_of_the_module(
    caplog: pytest.LogCaptureFixture, stores: str, is_warned: bool
) -> None:
    users, entry = entry_of(f"{KEY} {stores}")
    acceptor, threads = Acceptor(), AtOnce()
    begin = gssapi_exchange(users, entry, threads, acceptor.library)  # type: ignore[arg-type]
    assert acceptor.keys == [("kafka/h@R", "/k")]
    assert ("has no storeKey=true" in caplog.text) is is_warned
    assert [await begin().step(b"token") for _ in range(2)] == [b"answer"] * 2
    assert threads.limiters[0] is threads.limiters[1]
    assert threads.limiters[0].total_tokens == 4


@pytest.mark.parametrize("is_transient", [False, True])
async def test_refusal_of_kerberos_says_whether_it_may_pass(is_transient: bool) -> None:
    acceptor = Acceptor(KerberosError("clock", is_transient=is_transient))
    exchange = gssapi_exchange(*entry_of(KEY), AtOnce(), acceptor.library)()  # type: ignore[arg-type]
    with pytest.raises(LoginFailedError, match="clock") as raised:
        await exchange.step(b"token")
    assert raised.value.is_transient is is_transient


@pytest.mark.parametrize(
    ("options", "rules", "message"),
    [
        (KEY, "RULE:nonsense", f"{RULES}: "),
        (KEY, "DEFAULT", r"listener USERS: principal 'kafka/h@R', keytab /k: no key"),
        ('useKeyTab=true principal="kafka/h@R"', "DEFAULT", r"keytab of krb5\.conf: no key"),
    ],
)
def test_unusable_key_or_rule_stops_the_start(options: str, rules: str, message: str) -> None:
    library = Acceptor().library if rules != "DEFAULT" else Library(fails(KerberosError("no key")))
    with pytest.raises(SettingError, match=message):
        gssapi_exchange(*entry_of(options, **{RULES: rules}), AtOnce(), library)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "login"),
    [
        (KEY, Login("kafka", "kafka/h@R", "/k")),
        ("useTicketCache=true", Login("kafka", None, None, None)),
        ('useTicketCache=true principal="me" ticketCache="/c"', Login("kafka", "me", None, "/c")),
        (f'{KEY} useTicketCache=true ticketCache="/c"', Login("kafka", "kafka/h@R", "/k")),
    ],
)
def test_a_broker_logs_in_with_a_key_or_with_tickets(options: str, login: Login) -> None:
    logins: list[Login] = []
    tickets_of(*entry_of(options), Library(tickets=logins.append))  # type: ignore[arg-type]
    assert logins == [login]


def test_unavailable_login_stops_the_start() -> None:
    library = Library(tickets=fails(KerberosError("no tickets")))
    for options, message in (
        (KEY, "listener USERS: no tickets"), ("useTicketCache=true", "listener USERS: no tickets"),
        ('useKeyTab=true principal="kafka/h@R"', "needs keyTab"), ("useTicketCache=false", "useKeyTab=true"),
    ):  # fmt: skip
        with pytest.raises(SettingError, match=message):
            tickets_of(*entry_of(options), library)
    with pytest.raises(SettingError, match="useKeyTab=true"):
        tickets_of(listener(), None, library)
