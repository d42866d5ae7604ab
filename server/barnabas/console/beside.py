"""The console beside the broker that it shows: `barnabas serve --console`."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import trio

from barnabas.broker.startup import StartupError
from barnabas.client.settings import SaslCredentials
from barnabas.config import broker as settings
from barnabas.console.connect_client import ConnectClient, connects_of
from barnabas.console.log_lines import Lines
from barnabas.console.server import DEFAULT_PORT, WHAT, ConsoleServer
from barnabas.console.target import LOGINS, Cluster
from barnabas.errors import leaves
from barnabas.network.visitors import AddressError, read_address
from barnabas.registry.addresses import has_login
from barnabas.registry.client_settings import CONSOLE_PREFIX, PREFIX, URL, USER_INFO, RegistryAt

if TYPE_CHECKING:
    from barnabas.broker.app import Broker
    from barnabas.broker.registry_beside import RegistryBeside
    from barnabas.config.loading import BrokerConfig
    from barnabas.console.own_broker import OwnBroker
    from barnabas.console.target import Target
    from barnabas.tools.control.host import Host

AUTO = "auto"
"""Value of console.listener for an address that is free."""
REGISTRY = (
    settings.CONSOLE_REGISTRY_URL,
    settings.CONSOLE_REGISTRY_CA,
    settings.CONSOLE_REGISTRY_CERTIFICATE,
    settings.CONSOLE_REGISTRY_KEY,
    settings.CONSOLE_REGISTRY_KEY_PASSWORD,
    settings.CONSOLE_REGISTRY_USER_INFO,
    settings.CONSOLE_REGISTRY_TOKEN,
)
"""Settings of the registry that values are read by, which its client has after another prefix."""


class ConsoleBeside:
    """A companion of one broker."""

    def __init__(self, config: BrokerConfig, host: Host | None, registry: RegistryBeside | None) -> None:
        """`registry` is that in the same process, which the console shows unless another is set."""
        self._config = config
        self._host = host
        self._registry = registry
        self._server: ConsoleServer | None = None
        self._lines = Lines()
        self._broker: Broker | None = None
        self._inside: OwnBroker | None = None

    def begin(self) -> str:
        """Bind the address; returns words for the ready line. Raises StartupError."""
        self._login()
        try:
            self._server = self._bound()
        except AddressError as error:
            raise StartupError(str(error)) from error
        return f" console={self._server.url}"

    def _bound(self) -> ConsoleServer:
        text = self._config.get(settings.CONSOLE_LISTENER)
        if text != AUTO:
            return self._server_on(text)
        try:
            return self._server_on(f"127.0.0.1:{DEFAULT_PORT}")
        except AddressError:
            return self._server_on("127.0.0.1:0")

    def _server_on(self, text: str) -> ConsoleServer:
        config = self._config
        origins: tuple[str, ...] = config.get(settings.CONSOLE_ORIGINS)
        certificate, key = config.get(settings.CONSOLE_CERTIFICATE), config.get(settings.CONSOLE_KEY)
        return ConsoleServer(
            read_address(text, WHAT, certificate=certificate, key=key),
            Cluster(self._where, self._registry_at(), self._connects(), self._own),
            token=config.get(settings.CONSOLE_TOKEN),
            origins=origins,
            keeps_history=True,
        )

    def _login(self) -> SaslCredentials | None:
        """Return the console's own login, None without one. Raises StartupError."""
        config = self._config
        user, password = (
            config.get(settings.CONSOLE_SASL_USERNAME),
            config.get(settings.CONSOLE_SASL_PASSWORD),
        )
        if not user and not password:
            return None
        mechanism = config.get(settings.CONSOLE_SASL_MECHANISM).upper()
        if not user or not password:
            raise StartupError(
                f"{settings.CONSOLE_SASL_USERNAME.name} and {settings.CONSOLE_SASL_PASSWORD.name} are set together"
            )
        if mechanism not in LOGINS:
            raise StartupError(
                f"{settings.CONSOLE_SASL_MECHANISM.name} is one of {', '.join(LOGINS)}, not {mechanism}"
            )
        return SaslCredentials(mechanism, user, password)

    def _connects(self) -> dict[str, ConnectClient]:
        texts: tuple[str, ...] = self._config.get(settings.CONSOLE_CONNECT_URLS)
        try:
            connects = connects_of(texts)
            if any("@" in text for text in texts):
                raise ValueError("it must not name a user, as settings of the broker are shown")
        except ValueError as error:
            raise StartupError(f"{settings.CONSOLE_CONNECT_URLS.name}: {error}") from None
        return connects

    def _registry_at(self) -> RegistryAt | None:
        texts = {setting.name: self._config.get(setting) for setting in REGISTRY}
        settings = {name.replace(CONSOLE_PREFIX, PREFIX): text for name, text in texts.items() if text}
        try:
            registry = RegistryAt.of(settings)
            if registry is not None and has_login(registry.url):
                raise ValueError(
                    f"{URL} must not name a user, as settings of the broker are shown: use {PREFIX}{USER_INFO}"
                )
        except ValueError as error:
            raise StartupError(str(error).replace(PREFIX, CONSOLE_PREFIX)) from None
        if registry is not None:
            return registry
        own = self._registry
        return None if own is None else RegistryAt(own.local_url, own.client_tls(), is_of_the_broker=True)

    def _own(self) -> OwnBroker:
        """Return the broker from inside; created for the first visitor."""
        if self._inside is None:
            from barnabas.console.own_broker import OwnBroker

            self._inside = OwnBroker(self._lines, self._host, self._login())
            if self._broker is not None:
                self._inside.attach(self._broker)
        return self._inside

    def _where(self) -> Target:
        return self._own().target

    def attach(self, broker: Broker) -> None:
        """Attach to this broker."""
        self._broker = broker
        if self._inside is not None:
            self._inside.attach(broker)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled. Raises StartupError."""
        assert self._server is not None
        logging.getLogger().addHandler(self._lines)
        try:
            await self._server.run(task_status=task_status)
        except* AddressError as group:
            raise StartupError(str(leaves(group)[0])) from None
        finally:
            logging.getLogger().removeHandler(self._lines)
