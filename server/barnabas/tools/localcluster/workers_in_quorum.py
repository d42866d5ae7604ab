"""Workers in a KRaft quorum of their own.

The rule: the first worker is the only controller, too: on one machine one copy of the metadata is enough, as of the data.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import trio

from barnabas.config import broker as settings
from barnabas.config.authorizer import has_authorizer
from barnabas.config.loading import BrokerConfig
from barnabas.config.setting import SettingError
from barnabas.config.without_effect import judge
from barnabas.tools.localcluster import quorum
from barnabas.tools.localcluster.quorum import LISTENER, Node, Quorum
from barnabas.tools.localcluster.workers import Workers


class QuorumWorkers(Workers):
    """Workers of which the first is the controller.

    The controller's listener is on loopback and has a login that is new at each start: with an open listener, the
    authorizer and the logins of the workers' own listeners would be useless.
    """

    def __init__(self, *arguments: Any, **parts: Any) -> None:
        super().__init__(*arguments, **parts)
        self._quorum = Quorum("", {self.first_id: 1})
        self._user = f"workers{secrets.token_hex(16)}"
        self._password = secrets.token_hex(16)

    def check(self) -> None:
        """Raise SettingError, ChildError unless the workers can be started so."""
        if self.config.get(settings.KAFKA_VERSION):
            raise SettingError(
                f"--workers: workers are brokers of the newest release; {settings.KAFKA_VERSION.name} (--as-version) is "
                "for a broker that is alone"
            )
        listeners = self.config.listeners()
        if any(text.upper().startswith(f"{LISTENER}://") for text in listeners):
            raise SettingError(
                f"--workers: {LISTENER} is the listener of their controller; give the one for clients another name"
            )
        kept = quorum.read(self.directory)
        if kept is not None and self.first_id not in kept.ports:
            (first_id,) = kept.ports
            raise SettingError(
                f"--workers: the number of the first worker in {self.directory} is {first_id} since its first start, and "
                f"{settings.BROKER_ID.name} is {self.first_id}"
            )
        node = Node(self.first_id, tuple(self.config.log_dirs), listeners)
        own = self._settings(node, self._shared_settings)
        refusals = judge(BrokerConfig(own), dict.fromkeys(own, "--workers")).refusals
        if refusals:
            raise SettingError(refusals[0])

    async def begin(self, ports: Collection[int], _: trio.Nursery) -> None:
        """Choose the controller, at the first start, and its port. Raises ChildError."""
        self.directory.mkdir(parents=True, exist_ok=True)
        self._quorum = quorum.prepare(self.directory, [self.first_id], ports)

    def prepare(self, node: Node, shared: Mapping[str, str], file: Path) -> None:
        """Write a worker's file of settings, and format its log dirs before its first start. Raises ChildError."""
        quorum.format_and_write(self._settings(node, shared), self._quorum.cluster_id, file)

    def _settings(self, node: Node, shared: Mapping[str, str]) -> dict[str, str]:
        name = settings.LISTENER_SECURITY_PROTOCOL_MAP.name
        protocols = ",".join(
            f"{listener}:{protocol}"
            for listener, protocol in self.config.listener_security_protocols().items()
        )
        login = {
            name: f"{protocols},{LISTENER}:SASL_PLAINTEXT",
            settings.SASL_MECHANISM_CONTROLLER_PROTOCOL.name: "PLAIN",
            f"listener.name.{LISTENER.lower()}.sasl.enabled.mechanisms": "PLAIN",
            f"listener.name.{LISTENER.lower()}.plain.sasl.jaas.config": (
                "org.apache.kafka.common.security.plain.PlainLoginModule required "
                f'username="{self._user}" password="{self._password}" user_{self._user}="{self._password}";'
            ),
        }
        if has_authorizer(self.config):
            users = self.config.get(settings.SUPER_USERS)
            login[settings.SUPER_USERS.name] = f"{users};User:{self._user}" if users else f"User:{self._user}"
        return quorum.settings_of_node(self._quorum, node, {**shared, **login})

    async def stop(self) -> None:
        """Stop the worker that is the controller after the others, which report their shutdown to it."""
        await self.stop_workers(
            worker for worker in self.workers if worker.broker_id not in self._quorum.ports
        )
        await self.stop_workers(worker for worker in self.workers if worker.broker_id in self._quorum.ports)
