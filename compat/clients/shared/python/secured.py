"""Settings with which the Python clients connect: without security, or as the environment says (see ../../README.md).

The rule: standard library only, and each client's own names for its settings.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

PROTOCOL = os.environ.get("COMPAT_SECURITY_PROTOCOL", "PLAINTEXT")
MECHANISM = os.environ.get("COMPAT_SASL_MECHANISM", "")
USER = os.environ.get("COMPAT_SASL_USER", "")
PASSWORD = os.environ.get("COMPAT_SASL_PASSWORD", "")
TOKEN = os.environ.get("COMPAT_SASL_TOKEN", "")
AUTHORITY = os.environ.get("COMPAT_SSL_CA", "")
CERTIFICATE = os.environ.get("COMPAT_SSL_CERTIFICATE", "")
KEY = os.environ.get("COMPAT_SSL_KEY", "")
RELEASE = os.environ.get("COMPAT_RELEASE", "")
TOKEN_LIFETIME_S = 300
HAS_TLS = PROTOCOL in ("SSL", "SASL_SSL")
HAS_SASL = PROTOCOL.startswith("SASL_")


def librdkafka() -> dict[str, str]:
    """Return librdkafka's settings, but for the token of OAUTHBEARER."""
    if RELEASE.startswith(("0.8.", "0.9.")):  # such brokers cannot be asked for versions
        return {"api.version.request": "false", "broker.version.fallback": RELEASE}
    if PROTOCOL == "PLAINTEXT":
        return {}
    settings = {"security.protocol": PROTOCOL}
    if HAS_TLS:
        settings["ssl.ca.location"] = AUTHORITY
    if CERTIFICATE:
        settings |= {"ssl.certificate.location": CERTIFICATE, "ssl.key.location": KEY}
    if HAS_SASL:
        settings["sasl.mechanism"] = MECHANISM
        if MECHANISM == "OAUTHBEARER" and not TOKEN:
            settings["enable.sasl.oauthbearer.unsecure.jwt"] = "true"
            settings["sasl.oauthbearer.config"] = f"principal={USER}"
        elif MECHANISM == "GSSAPI":
            settings |= {
                "sasl.kerberos.service.name": "kafka",
                "sasl.kerberos.principal": USER,
                "sasl.kerberos.keytab": os.environ["COMPAT_SASL_KEYTAB"],
            }
        elif MECHANISM != "OAUTHBEARER":
            settings |= {"sasl.username": USER, "sasl.password": PASSWORD}
    return settings


def confluent() -> dict[str, object]:
    """Return the settings of confluent-kafka."""
    settings: dict[str, object] = {**librdkafka()}
    if TOKEN:
        settings["oauth_cb"] = lambda _: (TOKEN, time.time() + TOKEN_LIFETIME_S)
    return settings


def kafka_python(token_provider: Callable[[str], object]) -> dict[str, object]:
    """Return the options of kafka-python; `token_provider` makes an object of the client's that has the token."""
    if PROTOCOL == "PLAINTEXT":
        return {}
    options: dict[str, object] = {"security_protocol": PROTOCOL}
    if HAS_TLS:
        options["ssl_cafile"] = AUTHORITY
    if CERTIFICATE:
        options |= {"ssl_certfile": CERTIFICATE, "ssl_keyfile": KEY}
    if HAS_SASL:
        options["sasl_mechanism"] = MECHANISM
        if TOKEN:
            options["sasl_oauth_token_provider"] = token_provider(TOKEN)
        else:
            options |= {"sasl_plain_username": USER, "sasl_plain_password": PASSWORD}
    return options


def aiokafka(token_provider: Callable[[str], object]) -> dict[str, object]:
    """Return the options of aiokafka."""
    options = kafka_python(token_provider)
    if HAS_TLS:
        import ssl

        options.pop("ssl_cafile")
        context = ssl.create_default_context(cafile=AUTHORITY)
        if options.pop("ssl_certfile", None):
            context.load_cert_chain(CERTIFICATE, options.pop("ssl_keyfile"))
        options["ssl_context"] = context
    return options
