"""The messages of a login to ZooKeeper by SASL, with a password (DIGEST-MD5) or with Kerberos (GSSAPI).

The rule: kazoo sends them (`requests.log_in`); its own way needs the package pure-sasl.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Generator

from barnabas.client.gssapi import gssapi
from barnabas.network.kerberos import KerberosError, Login, Tickets
from barnabas.security.digest_md5 import digest_md5
from barnabas.security.jaas import JaasEntry, JaasError, parse_jaas

DIGEST_MODULE = "org.apache.zookeeper.server.auth.DigestLoginModule"
KERBEROS_MODULE = "com.sun.security.auth.module.Krb5LoginModule"
DIGEST_HOST = "zk-sasl-md5"
"""Name of every ZooKeeper server with DIGEST-MD5, and of its realm."""
DIGEST_SERVICE = "zookeeper"
NONCE_BYTES = 16

Messages = Callable[[str], Generator[bytes, bytes, None]]
"""Returns the messages of a login to the server on a host."""


class SaslSetupError(Exception):
    """A login module that cannot be used; the text has the reason and no password."""


def login_by(jaas: str, service: str) -> Messages:
    """Return how one logs in with a login module in JAAS's form; `service` is for Kerberos. Raises SaslSetupError."""
    try:
        entry = parse_jaas(jaas)
        if entry.module_name == DIGEST_MODULE.rpartition(".")[2]:
            return _by_password(entry)
        if entry.module_name == KERBEROS_MODULE.rpartition(".")[2]:
            tickets = _tickets(entry, service)
            return lambda host: gssapi(tickets, host)
    except (JaasError, KerberosError) as error:
        raise SaslSetupError(str(error)) from error
    raise SaslSetupError(f"{DIGEST_MODULE} or {KERBEROS_MODULE} is expected")


def _by_password(entry: JaasEntry) -> Messages:
    username, password = entry.options.get("username"), entry.options.get("password")
    if not username or not password:
        raise SaslSetupError(f'{DIGEST_MODULE} required username="NAME" password="PASSWORD"; is expected')
    uri = f"{DIGEST_SERVICE}/{DIGEST_HOST}"
    return lambda _host: digest_md5(username, password, uri=uri, nonce=secrets.token_hex(NONCE_BYTES))


def _tickets(entry: JaasEntry, service: str) -> Tickets:
    options = {name.lower(): value for name, value in entry.options.items()}
    principal = options.get("principal")
    if options.get("usekeytab", "").lower() == "true":
        if not principal or not options.get("keytab"):
            raise SaslSetupError('useKeyTab=true needs keyTab="/PATH/OF.keytab" principal="NAME@REALM"')
        return Tickets(Login(service, principal, options["keytab"]))
    if options.get("useticketcache", "").lower() != "true":
        raise SaslSetupError(f"{KERBEROS_MODULE} needs useKeyTab=true or useTicketCache=true")
    return Tickets(Login(service, principal, None, options.get("ticketcache")))
