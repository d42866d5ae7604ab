"""Kerberos by the settings of a listener: the options of Krb5LoginModule, the service's name, rules for names.

The rule: options have their meaning in Java, if they have one here; a missing key stops the start.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import trio

from barnabas.config import broker as settings
from barnabas.config.setting import SettingError
from barnabas.network.kerberos import Acceptor, KerberosError, Login, Tickets, default_realm
from barnabas.security.principals import KerberosNames, NameRuleError
from barnabas.security.sasl.gssapi import GssapiExchange, GssError
from barnabas.security.sasl.mechanism import GSSAPI

if TYPE_CHECKING:
    from barnabas.config.listeners import ListenerSettings
    from barnabas.environment import Threads
    from barnabas.security.jaas import JaasEntry

log = logging.getLogger(__name__)

MODULE = "com.sun.security.auth.module.Krb5LoginModule"
LOGINS_AT_ONCE_MAX = 4
"""Login messages processed in parallel, each in a thread; others wait."""


class Library(NamedTuple):
    """Parts of Kerberos' library that logins use."""

    acceptor: Callable[[str, str | None], Acceptor] = Acceptor
    """Makes the key of a service, by its principal and its keytab."""
    default_realm: Callable[[], str] = default_realm
    tickets: Callable[[Login], Tickets] = Tickets


LIBRARY = Library()


def service_name(listener: ListenerSettings, entry: JaasEntry | None) -> str:
    """Return the first part of the principals of all brokers; it has to be set, as for Kafka. Raises SettingError."""
    setting = settings.SASL_KERBEROS_SERVICE_NAME
    by_module = entry.options.get("serviceName") if entry is not None else None
    by_setting = listener.get(setting, GSSAPI)
    if by_module and by_setting and by_module != by_setting:
        raise SettingError(
            f"{listener.name_of(setting, GSSAPI)}={by_setting}, and serviceName={by_module} in "
            f"{listener.name_for(settings.SASL_JAAS_CONFIG, GSSAPI)}: set one of them, or both to the same"
        )
    name = by_module or by_setting
    if not name:
        raise SettingError(
            f"listener {listener.name} uses GSSAPI: set {setting.name} to the first part of the brokers' principals, "
            "kafka for kafka/HOST@REALM"
        )
    return name


def _is_set(entry: JaasEntry, option: str) -> bool:
    return entry.options.get(option, "").lower() == "true"


def _key_of(listener: ListenerSettings, entry: JaasEntry | None) -> tuple[str, str | None]:
    """Return the principal and the keytab of a login module with a keytab. Raises SettingError."""
    principal = entry.options.get("principal") if entry is not None and _is_set(entry, "useKeyTab") else None
    if entry is None or not principal:
        raise SettingError(
            f"listener {listener.name} uses GSSAPI: set {listener.name_for(settings.SASL_JAAS_CONFIG, GSSAPI)}={MODULE} "
            'required useKeyTab=true storeKey=true keyTab="/PATH/OF.keytab" principal="kafka/HOST@REALM";'
        )
    return principal, entry.options.get("keyTab")


def gssapi_exchange(
    listener: ListenerSettings, entry: JaasEntry | None, threads: Threads, library: Library = LIBRARY
) -> Callable[[], GssapiExchange]:
    """Return the factory of logins with Kerberos. Reads the keytab. Raises SettingError."""
    service_name(listener, entry)
    principal, keytab = _key_of(listener, entry)
    assert entry is not None
    if not _is_set(entry, "storeKey"):
        log.warning(
            "listener %s: %s has no storeKey=true, without which Apache Kafka accepts no login with Kerberos",
            listener.name, listener.name_for(settings.SASL_JAAS_CONFIG, GSSAPI),
        )  # fmt: skip
    rules = settings.SASL_KERBEROS_PRINCIPAL_TO_LOCAL_RULES
    try:
        acceptor = library.acceptor(principal, keytab)
        texts: tuple[str, ...] = listener.get(rules, GSSAPI)
        names = KerberosNames(texts, library.default_realm())
    except KerberosError as error:
        raise SettingError(
            f"listener {listener.name}: principal {principal!r}, keytab {keytab or 'of krb5.conf'}: {error}"
        ) from error
    except NameRuleError as error:
        raise SettingError(f"{listener.name_of(rules, GSSAPI)}: {error}") from error
    limiter = trio.CapacityLimiter(LOGINS_AT_ONCE_MAX)

    async def run(work: Callable[[], bytes | None]) -> bytes | None:
        try:
            return await threads.run(work, limiter=limiter)
        except KerberosError as error:
            raise GssError(str(error), is_transient=error.is_transient) from error

    return lambda: GssapiExchange(acceptor.context, names.name_of, run)


def tickets_of(listener: ListenerSettings, entry: JaasEntry | None, library: Library = LIBRARY) -> Tickets:
    """Return the tickets with which this broker logs in to others. Raises SettingError."""
    service = service_name(listener, entry)
    try:
        if entry is not None and _is_set(entry, "useTicketCache") and not _is_set(entry, "useKeyTab"):
            options = entry.options
            return library.tickets(Login(service, options.get("principal"), None, options.get("ticketCache")))
        principal, keytab = _key_of(listener, entry)
        if keytab is None:
            raise SettingError(
                f"{listener.name_for(settings.SASL_JAAS_CONFIG, GSSAPI)}=...: a broker that logs in to others needs keyTab"
            )
        return library.tickets(Login(service, principal, keytab))
    except KerberosError as error:
        raise SettingError(f"listener {listener.name}: {error}") from error
