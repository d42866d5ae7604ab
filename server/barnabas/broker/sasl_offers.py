"""SASL mechanisms of each listener, by its settings.

The rule: a mechanism that cannot work with its settings stops the start, with the name of the setting; modules and
classes of Kafka are implemented here under their names, and no other class is supported.
"""

from __future__ import annotations

import logging
from base64 import b64encode
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from barnabas.config import broker as settings
from barnabas.config import releases
from barnabas.config.listeners import ListenerSettings, mechanisms_of
from barnabas.config.setting import Setting, SettingError
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
from barnabas.security.sasl.oauthbearer import OAuthBearerExchange
from barnabas.security.sasl.plain import PlainExchange
from barnabas.security.sasl.scram import ScramExchange
from barnabas.security.sasl.server import SaslOffer

if TYPE_CHECKING:
    from barnabas.security.sasl.oauthbearer import Check
    from barnabas.serving.channel import LoginParts

log = logging.getLogger(__name__)

MODULES = {
    PLAIN: "org.apache.kafka.common.security.plain.PlainLoginModule",
    SCRAM_SHA_256: "org.apache.kafka.common.security.scram.ScramLoginModule",
    SCRAM_SHA_512: "org.apache.kafka.common.security.scram.ScramLoginModule",
    OAUTHBEARER: "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule",
    GSSAPI: "com.sun.security.auth.module.Krb5LoginModule",
}
_OAUTH = "org.apache.kafka.common.security.oauthbearer."
SIGNED_TOKENS = f"{_OAUTH}OAuthBearerValidatorCallbackHandler"
UNSECURED_TOKENS = f"{_OAUTH}internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
TOKEN_HANDLERS = (SIGNED_TOKENS, UNSECURED_TOKENS)
NONCE_BYTES = 18


def sasl_offer(listener: ListenerSettings, parts: LoginParts) -> SaslOffer:
    """Return the mechanisms of a listener with SASL. Raises SettingError."""
    names = mechanisms_of(listener)
    if not names:
        raise SettingError(
            f"{listener.name_of(settings.SASL_ENABLED_MECHANISMS)} is empty, and listener {listener.name} uses "
            f"{listener.protocol}: name at least one of {', '.join(MECHANISMS)}"
        )
    mechanisms = {}
    for name in names:
        if name not in MECHANISMS:
            raise SettingError(
                f"{listener.name_of(settings.SASL_ENABLED_MECHANISMS)}={','.join(names)}: there is no mechanism "
                f"{name}; there are {', '.join(MECHANISMS)}"
            )
        _check_handler(listener, name)
        mechanisms[name] = Mechanism(
            _beginning(name, listener, parts), listener.get(settings.CONNECTIONS_MAX_REAUTH_MS, name)
        )
    return SaslOffer(
        mechanisms,
        listener.get(settings.SASL_SERVER_MAX_RECEIVE_SIZE),
        listener.get(settings.CONNECTION_FAILED_AUTHENTICATION_DELAY_MS),
    )


def _beginning(name: str, listener: ListenerSettings, parts: LoginParts) -> Callable[[], Exchange]:
    """Return the factory of exchanges with a mechanism."""
    if name == PLAIN:
        entry = jaas_of(listener, name)
        if entry is None:
            raise SettingError(
                f"listener {listener.name} offers PLAIN, and there is no user: set "
                f"{listener.name_for(settings.SASL_JAAS_CONFIG, name)}={MODULES[name]} required "
                'user_NAME="PASSWORD";'
            )
        users = {user: password.encode() for user, password in entry.users().items()}
        return lambda: PlainExchange(users)
    if name in (SCRAM_SHA_256, SCRAM_SHA_512):
        jaas_of(listener, name)
        return lambda: ScramExchange(
            name,
            parts.credentials(),
            nonce=lambda: b64encode(parts.environment.entropy.token_bytes(NONCE_BYTES)).decode(),
            secret=parts.secret,
        )
    if name == OAUTHBEARER:
        check = _token_check(listener, parts)
        return lambda: OAuthBearerExchange(check)
    from barnabas.broker.kerberos_login import gssapi_exchange

    try:
        return gssapi_exchange(listener, jaas_of(listener, name), parts.environment.threads)
    except SettingError as error:
        if listener.is_set(settings.SASL_ENABLED_MECHANISMS):
            raise
        setting = settings.SASL_ENABLED_MECHANISMS.name
        raise SettingError(f"{error} ({setting} is not set, and its default is {GSSAPI})") from error


def _check_verified(listener: ListenerSettings) -> None:
    """Raise SettingError where no audience or no issuer of tokens is expected, and the release needs one (Kafka 4.4)."""
    if not releases.verifies_tokens(listener.release):
        return
    pairs: tuple[tuple[Setting[Any], Setting[bool]], ...] = (
        (settings.SASL_OAUTHBEARER_EXPECTED_AUDIENCE, settings.SASL_OAUTHBEARER_ALLOW_UNVERIFIED_AUDIENCE),
        (settings.SASL_OAUTHBEARER_EXPECTED_ISSUER, settings.SASL_OAUTHBEARER_ALLOW_UNVERIFIED_ISSUER),
    )
    for expected, allowed in pairs:
        if not listener.get(expected, OAUTHBEARER) and not listener.get(allowed, OAUTHBEARER):
            raise SettingError(
                f"listener {listener.name} offers OAUTHBEARER: set {expected.name}, or {allowed.name}=true to take "
                "tokens whatever they say"
            )


def _token_check(listener: ListenerSettings, parts: LoginParts) -> Check:
    """Return the check of OAUTHBEARER tokens. Raises SettingError."""
    from barnabas.broker.tokens import Expected, SignedTokens, UnsecuredTokens
    from barnabas.network.jwks import Jwks, JwksError

    environment = parts.environment
    entry = jaas_of(listener, OAUTHBEARER)
    options = entry.options if entry is not None else {}
    handler = listener.get(settings.SASL_SERVER_CALLBACK_HANDLER_CLASS, OAUTHBEARER)
    if handler == UNSECURED_TOKENS:
        log.warning(
            "listener %s accepts tokens without a signature: every client can log in as any user",
            listener.name,
        )
        expected = Expected(
            subject_claim=options.get("unsecuredValidatorPrincipalClaimName", "sub"),
            scope_claim=options.get("unsecuredValidatorScopeClaimName", "scope"),
            required_scope=tuple(options.get("unsecuredValidatorRequiredScope", "").split()),
            skew_s=_skew_s(options.get("unsecuredValidatorAllowableClockSkewMs", "0")),
            issued_in_past=True,
        )
        return UnsecuredTokens(expected, clock_ms=environment.wall_clock_ms).check
    url_setting = settings.SASL_OAUTHBEARER_JWKS_ENDPOINT_URL
    url = listener.get(url_setting, OAUTHBEARER)
    if not url:
        handler_name = listener.name_for(settings.SASL_SERVER_CALLBACK_HANDLER_CLASS, OAUTHBEARER)
        raise SettingError(
            f"listener {listener.name} offers OAUTHBEARER: set {url_setting.name} to where the keys that sign tokens "
            f"are (or, for tests, {handler_name}={UNSECURED_TOKENS} "
            "to take tokens without a signature)"
        )
    _check_verified(listener)
    expected = Expected(
        listener.get(settings.SASL_OAUTHBEARER_EXPECTED_ISSUER, OAUTHBEARER),
        listener.get(settings.SASL_OAUTHBEARER_EXPECTED_AUDIENCE, OAUTHBEARER),
        listener.get(settings.SASL_OAUTHBEARER_SUB_CLAIM_NAME, OAUTHBEARER),
        listener.get(settings.SASL_OAUTHBEARER_SCOPE_CLAIM_NAME, OAUTHBEARER),
        skew_s=listener.get(settings.SASL_OAUTHBEARER_CLOCK_SKEW_SECONDS, OAUTHBEARER),
    )
    refresh_s = listener.get(settings.SASL_OAUTHBEARER_JWKS_ENDPOINT_REFRESH_MS, OAUTHBEARER) / 1000
    try:
        jwks = Jwks(url, refresh_s)
        if jwks.is_file:
            jwks.read(environment.monotonic())
    except JwksError as error:
        raise SettingError(f"{listener.name_of(url_setting, OAUTHBEARER)}={error}") from error
    return SignedTokens(
        jwks,
        expected,
        threads=environment.threads,
        clock_ms=environment.wall_clock_ms,
        now_s=environment.monotonic,
    ).check


def _skew_s(text: str) -> float:
    if not text.isdecimal():
        raise SettingError("unsecuredValidatorAllowableClockSkewMs is a number of milliseconds")
    return int(text) / 1000


def _check_handler(listener: ListenerSettings, mechanism: str) -> None:
    """Check that the settings name no unsupported class. Raises SettingError."""
    setting = settings.SASL_SERVER_CALLBACK_HANDLER_CLASS
    handler = listener.get(setting, mechanism)
    if handler and (mechanism != OAUTHBEARER or handler not in TOKEN_HANDLERS):
        alternatives = f"; for OAUTHBEARER there are {' and '.join(TOKEN_HANDLERS)}"
        raise SettingError(
            f"{listener.name_of(setting, mechanism)}={handler}: there is no Java virtual machine to load it "
            f"into{alternatives}"
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
