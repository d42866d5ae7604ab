"""The registry beside a broker: to which listener it connects and as which user, and how its users log in."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.broker import beside as companions
from barnabas.broker.beside import explained, own_listener, user_logins
from barnabas.broker.registry_beside import REGISTRY, RegistryBeside
from barnabas.broker.startup import StartupError
from barnabas.client import AuthenticationError, ClientSettings, Endpoint
from barnabas.config.loading import BrokerConfig
from barnabas.network.visitors import AddressError
from barnabas.registry.errors import RegistryError

PROTOCOLS = "listener.security.protocol.map"


def case(listeners: str, **settings: str) -> tuple[BrokerConfig, Any]:
    """Return settings of a broker, and the broker, with listeners on ports 1, 2, ..."""
    values = {name.replace("__", "."): value for name, value in settings.items()}
    names = listeners.split()
    config = BrokerConfig(
        {"listeners": ",".join(f"{name}://h:{port}" for port, name in enumerate(names, 1)), **values}
    )
    protocols = config.listener_security_protocols()
    opened = [
        SimpleNamespace(
            name=name, security_protocol=protocols.get(name, name), addresses=[("h", port)], port=port
        )
        for port, name in enumerate(names, 1)
    ]
    return config, SimpleNamespace(listeners=opened)


def test_registry_uses_an_unencrypted_listener_if_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    own = ClientSettings(client_id="peer")
    monkeypatch.setattr(companions, "for_peers", lambda config, plain: own)
    config, broker = case("SSL PLAINTEXT")
    assert own_listener(REGISTRY, config, broker) == (
        broker.listeners[1],
        ClientSettings(client_id="barnabas-registry"),
    )
    config, broker = case("SSL SASL_SSL", security__inter__broker__protocol="SASL_SSL")
    assert own_listener(REGISTRY, config, broker) == (broker.listeners[1], own)
    config, broker = case("SSL SASL_SSL")
    with pytest.raises(StartupError, match=r"inter\.broker\.listener\.name"):
        own_listener(REGISTRY, config, broker)


def test_users_log_in_by_the_best_mechanism_with_a_password() -> None:
    def logins(config: BrokerConfig, broker: Any) -> Any:
        return user_logins(REGISTRY, config, broker)

    offers = {"listener.name.two.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256", f"{PROTOCOLS}":
              "ONE:PLAINTEXT,TWO:SASL_PLAINTEXT,THREE:SASL_PLAINTEXT"}  # fmt: skip
    config, broker = case("ONE TWO THREE", **offers)
    users = logins(config, broker)
    assert users.bootstrap == [Endpoint("h", 2)]
    ann = users.settings_of("ann", "secret")
    assert (ann.client_id, ann.tls) == ("barnabas-registry", None)
    assert ann.sasl is not None
    assert (ann.sasl.mechanism, ann.sasl.username, ann.sasl.password) == ("SCRAM-SHA-256", "ann", "secret")
    for offered, chosen in (
        ("PLAIN", "PLAIN"), ("SCRAM-SHA-256,SCRAM-SHA-512", "SCRAM-SHA-512"), ("OAUTHBEARER,PLAIN", "PLAIN"),
    ):  # fmt: skip
        config, broker = case(
            "ONE TWO THREE", **{**offers, "listener.name.two.sasl.enabled.mechanisms": offered}
        )
        sasl = logins(config, broker).settings_of("ann", "secret").sasl
        assert sasl is not None
        assert sasl.mechanism == chosen
    third = {
        **offers, "listener.name.two.sasl.enabled.mechanisms": "GSSAPI",
        "listener.name.three.sasl.enabled.mechanisms": "PLAIN",
    }  # fmt: skip
    config, broker = case("ONE TWO THREE", **third)
    assert logins(config, broker).bootstrap == [Endpoint("h", 3)]
    config, broker = case("ONE TWO", **{**third, PROTOCOLS: "ONE:PLAINTEXT,TWO:SASL_PLAINTEXT"})
    with pytest.raises(StartupError, match="add one with SCRAM-SHA-512, SCRAM-SHA-256 or PLAIN"):
        logins(config, broker)


@pytest.mark.parametrize(
    "error", [AddressError("no address"), AuthenticationError("who"), RegistryError(0, 0, "who")]
)
def test_what_goes_wrong_is_told_with_the_setting(error: Exception) -> None:
    with pytest.raises(StartupError, match=r"^registry.listener: (no address|who)$"), explained(REGISTRY):
        raise error
    with pytest.raises(ExceptionGroup) as raised, explained(REGISTRY):
        raise ExceptionGroup("", [error])
    assert raised.group_contains(StartupError, match=r"^registry.listener: (no address|who)$")


def test_a_package_that_is_missing_is_named() -> None:
    missing = ModuleNotFoundError("No module named 'fastavro'", name="fastavro")
    with (
        pytest.raises(StartupError, match=r"^registry.listener: .*barnabas\[registry\]"),
        explained(REGISTRY),
    ):
        raise missing


def test_other_errors_are_no_matter_of_the_person_who_starts_it() -> None:
    with pytest.raises(ExceptionGroup) as raised, explained(REGISTRY):
        raise ExceptionGroup("", [KeyError("defect")])
    assert raised.group_contains(KeyError)


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SASL_PLAINTEXT"])
async def test_it_serves_for_the_broker_that_it_is_attached_to(protocol: str) -> None:
    reached_by: list[Any] = []
    ran: list[Any] = []

    class Server:
        url = "http://r"

        def __init__(self, address: Any, *, may_be_reached: bool) -> None:
            reached_by.append((address, may_be_reached))

        async def run(self, bootstrap: Any, own: Any, logins: Any, *, task_status: Any) -> None:
            ran.append((list(bootstrap), own.client_id, logins is not None))

    has_logins = protocol.startswith("SASL")
    offers = {"sasl.enabled.mechanisms": "PLAIN", PROTOCOLS: f"ONE:{protocol},TWO:PLAINTEXT"}
    config, broker = case("ONE TWO", **{"registry.listener": "127.0.0.1:0", **offers})
    beside = RegistryBeside(config, Server)  # type: ignore[arg-type]
    assert beside.begin() == " registry=http://r"
    beside.attach(broker)
    await beside.run()
    assert [reached for _, reached in reached_by] == [has_logins]
    port = 2 if has_logins else 1
    assert ran == [([Endpoint("h", port)], "barnabas-registry", has_logins)]
    assert beside.client_tls() is None
