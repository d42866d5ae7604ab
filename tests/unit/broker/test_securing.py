"""Security of listeners: made at the start, made again when settings change, and Kerberos as a module names it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.broker import kerberos_login, securing
from barnabas.broker.kerberos_login import MODULE, gssapi_exchange, tickets_of
from barnabas.broker.sasl_offers import jaas_of
from barnabas.broker.securing import Securing
from barnabas.broker.startup import StartupError
from barnabas.cluster.metadata.image import BROKER, TOPIC
from barnabas.config.listeners import ListenerSettings
from barnabas.config.loading import BrokerConfig
from barnabas.config.setting import SettingError
from barnabas.network.kerberos import KerberosError, Login
from barnabas.security.principals import NameRuleError
from barnabas.security.sasl.gssapi import GssError
from barnabas.security.sasl.mechanism import GSSAPI

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

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
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
        self.securing = Securing(self.listeners, self.config, parts)
        monkeypatch.setattr(securing, "channel_of", self._make)

    def _make(self, listener: ListenerSettings, parts: Any, replaced: Any) -> Any:
        self.made.append((listener.name, listener.protocol, replaced))
        if listener.name in self.refused:
            raise SettingError(f"listener {listener.name} is refused")
        return SimpleNamespace(is_open=listener.name == "A", tls=f"new-{listener.name}")

    def tls(self) -> list[str]:
        return [one.channel.tls for one in self.listeners]


def test_at_the_start_all_listeners_are_secured_or_none(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(monkeypatch)
    case.refused = {"C"}
    with pytest.raises(StartupError, match="listener C is refused"):
        case.securing.begin()
    assert case.tls() == ["tls-A", "tls-B", "tls-C"]
    case.refused = set()
    case.securing.begin()
    assert case.tls() == ["new-A", "new-B", "new-C"]
    assert case.made[-3:] == [("A", "PLAINTEXT", "tls-A"), ("B", "SSL", "tls-B"), ("C", "SSL", "tls-C")]


async def test_settings_are_checked_before_they_count(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(monkeypatch)
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
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, kinds: list[Any], is_made: bool
) -> None:
    case = Case(monkeypatch)
    case.refused = {"B"}
    delta: Any = SimpleNamespace(configs=[(kind, "") for kind in kinds])
    await case.securing.clean_up(delta)
    assert case.tls() == ["tls-A", "tls-B", "new-C" if is_made else "tls-C"]
    assert ("listener B keeps its previous settings" in caplog.text) is is_made


# --- Kerberos ---------------------------------------------------------------------------------------------------------


def listener(**settings: str) -> ListenerSettings:
    return ListenerSettings(BrokerConfig({SERVICE: "kafka", **settings}), "USERS", "SASL_PLAINTEXT")


def entry_of(options: str) -> tuple[ListenerSettings, Any]:
    found = listener(**{JAAS: f"{MODULE} required {options};"})
    return found, jaas_of(found, GSSAPI)


KEY = 'useKeyTab=true keyTab="/k" principal="kafka/h@R"'


@pytest.fixture
def accepted(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Keytabs that were read, and rules of names, without the library."""
    made: list[Any] = []

    class Acceptor:
        context = "context"

        def __init__(self, principal: str, keytab: str | None) -> None:
            made.append((principal, keytab))

    class Names:
        name_of = "name_of"

        def __init__(self, rules: Any, realm: str) -> None:
            made.append((tuple(rules), realm))

    monkeypatch.setattr(kerberos_login, "Acceptor", Acceptor)
    monkeypatch.setattr(kerberos_login, "KerberosNames", Names)
    monkeypatch.setattr(kerberos_login, "default_realm", lambda: "R")
    return made


@pytest.mark.parametrize(
    ("stores", "is_warned"),
    [("storeKey=true", False), ("storeKey=TRUE", False), ("storeKey=false", True), ("", True)],
)
async def test_logins_are_accepted_with_the_key_of_the_module(
    accepted: list[Any], caplog: pytest.LogCaptureFixture, stores: str, is_warned: bool
) -> None:
    found, entry = entry_of(f"{KEY} {stores}")
    threads = AtOnce()
    begin = gssapi_exchange(found, entry, threads)  # type: ignore[arg-type]
    assert accepted == [("kafka/h@R", "/k"), (("DEFAULT",), "R")]
    assert ("has no storeKey=true" in caplog.text) is is_warned
    exchanges = [begin(), begin()]
    assert exchanges[0] is not exchanges[1]
    limiters = []
    for exchange in exchanges:
        assert await exchange._run(lambda: b"answer") == b"answer"  # type: ignore[attr-defined]
        limiters.append(threads.limiters[-1])
    assert limiters[0] is limiters[1]
    assert limiters[0].total_tokens == 4


@pytest.mark.parametrize("is_transient", [False, True])
async def test_what_kerberos_refuses_says_whether_it_may_pass(
    accepted: list[Any], is_transient: bool
) -> None:
    found, entry = entry_of(KEY)
    exchange = gssapi_exchange(found, entry, AtOnce())()  # type: ignore[arg-type]

    def refuse() -> bytes:
        raise KerberosError("clock", is_transient=is_transient)

    with pytest.raises(GssError, match="clock") as raised:
        await exchange._run(refuse)  # type: ignore[attr-defined]
    assert raised.value.is_transient is is_transient


def test_a_key_or_a_rule_that_cannot_be_used_stops_the_start(
    accepted: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(error: Exception) -> Any:
        def make(*_: Any) -> Any:
            raise error

        return make

    found, entry = entry_of(KEY)
    monkeypatch.setattr(kerberos_login, "KerberosNames", fails(NameRuleError("no rule")))
    with pytest.raises(SettingError, match=f"{RULES}: no rule"):
        gssapi_exchange(found, entry, AtOnce())  # type: ignore[arg-type]
    monkeypatch.setattr(kerberos_login, "Acceptor", fails(KerberosError("no key")))
    with pytest.raises(SettingError, match=r"listener USERS: principal 'kafka/h@R', keytab /k: no key"):
        gssapi_exchange(found, entry, AtOnce())  # type: ignore[arg-type]
    found, entry = entry_of('useKeyTab=true principal="kafka/h@R"')
    with pytest.raises(SettingError, match=r"keytab of krb5\.conf: no key"):
        gssapi_exchange(found, entry, AtOnce())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "login"),
    [
        (KEY, Login("kafka", "kafka/h@R", "/k")),
        ("useTicketCache=true", Login("kafka", None, None, None)),
        ('useTicketCache=true principal="me" ticketCache="/c"', Login("kafka", "me", None, "/c")),
        (f'{KEY} useTicketCache=true ticketCache="/c"', Login("kafka", "kafka/h@R", "/k")),
    ],
)
def test_a_broker_logs_in_with_a_key_or_with_tickets(
    monkeypatch: pytest.MonkeyPatch, options: str, login: Login
) -> None:
    monkeypatch.setattr(kerberos_login, "Tickets", lambda given: given)
    found, entry = entry_of(options)
    assert tickets_of(found, entry) == login  # type: ignore[comparison-overlap]


def test_a_login_that_cannot_be_had_stops_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: Any) -> Any:
        raise KerberosError("no tickets")

    monkeypatch.setattr(kerberos_login, "Tickets", fails)
    for options, said in (
        (KEY, "listener USERS: no tickets"), ("useTicketCache=true", "listener USERS: no tickets"),
        ('useKeyTab=true principal="kafka/h@R"', "needs keyTab"), ("useTicketCache=false", "useKeyTab=true"),
    ):  # fmt: skip
        with pytest.raises(SettingError, match=said):
            tickets_of(*entry_of(options))
    with pytest.raises(SettingError, match="useKeyTab=true"):
        tickets_of(listener(), None)
