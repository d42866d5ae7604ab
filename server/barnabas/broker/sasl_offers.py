"""What each listener offers to those who log in, made of its settings.

The rule: a mechanism that cannot work as it is set keeps the broker from starting, with the name of the setting; what a
module or class of Kafka's does is done here under the same name, and no other class is run.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.config import broker as settings
from barnabas.config.listeners import ListenerSettings, mechanisms_of
from barnabas.config.setting import SettingError
from barnabas.security.jaas import JaasEntry, JaasError, parse_jaas
from barnabas.security.sasl.mechanism import (
    GSSAPI,
    MECHANISMS,
    OAUTHBEARER,
    PLAIN,
    SCRAM_SHA_256,
    SCRAM_SHA_512,
    Exchange,
    Mechanism,
)
from barnabas.security.sasl.plain import PlainExchange
from barnabas.security.sasl.scram import ScramExchange
from barnabas.security.sasl.server import SaslOffer

if TYPE_CHECKING:
    from barnabas.environment import Environment
    from barnabas.security.credentials import Credentials

MODULES = {
    PLAIN: "org.apache.kafka.common.security.plain.PlainLoginModule",
    SCRAM_SHA_256: "org.apache.kafka.common.security.scram.ScramLoginModule",
    SCRAM_SHA_512: "org.apache.kafka.common.security.scram.ScramLoginModule",
    OAUTHBEARER: "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule",
    GSSAPI: "com.sun.security.auth.module.Krb5LoginModule",
}
SECRET_BYTES, NONCE_BYTES = 32, 18


@dataclass(frozen=True, slots=True)
class LoginParts:
    """What mechanisms need of the broker."""

    credentials: Credentials
    environment: Environment
    secret: bytes
    """Random; the challenges of users who do not exist are made with it."""


def sasl_offer(listener: ListenerSettings, parts: LoginParts) -> SaslOffer | None:
    """Return what a listener offers, None for one without SASL. Raises SettingError."""
    names = mechanisms_of(listener)
    if not listener.has_sasl:
        return None
    if not names:
        raise SettingError(
            f"{listener.name_of(settings.SASL_ENABLED_MECHANISMS)} is empty, and listener {listener.name} uses "
            f"{listener.protocol}: name at least one of {', '.join(MECHANISMS)}"
        )
    made = {}
    for name in names:
        if name not in MECHANISMS:
            raise SettingError(
                f"{listener.name_of(settings.SASL_ENABLED_MECHANISMS)}={','.join(names)}: there is no mechanism "
                f"{name}; there are {', '.join(MECHANISMS)}"
            )
        made[name] = Mechanism(
            _beginning(name, listener, parts), listener.get(settings.CONNECTIONS_MAX_REAUTH_MS, name)
        )
    return SaslOffer(
        made,
        listener.get(settings.SASL_SERVER_MAX_RECEIVE_SIZE),
        listener.get(settings.CONNECTION_FAILED_AUTHENTICATION_DELAY_MS),
    )


def _beginning(name: str, listener: ListenerSettings, parts: LoginParts) -> Callable[[], Exchange]:
    """Return what begins a login with a mechanism."""
    if name == PLAIN:
        entry = jaas_of(listener, name)
        if entry is None:
            raise SettingError(
                f"listener {listener.name} offers PLAIN, and nobody has a password: set "
                f"{listener.name_for(settings.SASL_JAAS_CONFIG, name)}={MODULES[name]} required "
                'user_NAME="PASSWORD";'
            )
        users = {user: password.encode() for user, password in entry.users().items()}
        return lambda: PlainExchange(users)
    if name in (SCRAM_SHA_256, SCRAM_SHA_512):
        jaas_of(listener, name)
        return lambda: ScramExchange(
            name,
            parts.credentials,
            nonce=lambda: b64encode(parts.environment.entropy.token_bytes(NONCE_BYTES)).decode(),
            secret=parts.secret,
        )
    raise SettingError(
        f"listener {listener.name}: {listener.name_of(settings.SASL_ENABLED_MECHANISMS)} names {name} (which is its "
        "default if it is not set), and that is not served yet"
    )


def jaas_of(listener: ListenerSettings, mechanism: str) -> JaasEntry | None:
    """Return the login module that is set for a mechanism of a listener, None for none. Raises SettingError."""
    text = listener.own(settings.SASL_JAAS_CONFIG, mechanism)
    name = listener.name_for(settings.SASL_JAAS_CONFIG, mechanism)
    if text is None:
        return None
    try:
        entry = parse_jaas(text)
    except JaasError as error:
        raise SettingError(f"{name}=...: {error}") from None
    if entry.module_name != MODULES[mechanism].rpartition(".")[2]:
        raise SettingError(f"{name}=...: the login module of {mechanism} is {MODULES[mechanism]}")
    return entry
