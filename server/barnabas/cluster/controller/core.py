"""State and settings of a controller, and requests to send, for all parts of the core. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from barnabas.cluster.controller.batches import Batch
from barnabas.cluster.controller.state import ControllerState
from barnabas.cluster.controller.steps import Steps
from barnabas.cluster.metadata import protocol_version as versions
from barnabas.cluster.metadata.protocol_version import ProtocolVersion
from barnabas.config import broker as settings
from barnabas.config.listeners import inter_broker_listener
from barnabas.config.loading import BrokerConfig


@dataclass(frozen=True, slots=True)
class ControllerSettings:
    """Settings of the broker that affect the controller. `listener` is that between brokers."""

    broker_id: int
    listener: str = "PLAINTEXT"
    protocol: ProtocolVersion = versions.V3_9_IV0
    delete_topic_enable: bool = True
    auto_leader_rebalance_enable: bool = True
    leader_imbalance_check_interval_s: float = 300
    leader_imbalance_per_broker_percentage: int = 10

    @classmethod
    def of(cls, config: BrokerConfig, broker_id: int) -> ControllerSettings:
        """Read them. Raises SettingError."""
        get = config.get
        return cls(
            broker_id=broker_id,
            listener=inter_broker_listener(config),
            protocol=versions.protocol_of(config),
            delete_topic_enable=get(settings.DELETE_TOPIC_ENABLE),
            auto_leader_rebalance_enable=get(settings.AUTO_LEADER_REBALANCE_ENABLE),
            leader_imbalance_check_interval_s=get(settings.LEADER_IMBALANCE_CHECK_INTERVAL_SECONDS),
            leader_imbalance_per_broker_percentage=get(settings.LEADER_IMBALANCE_PER_BROKER_PERCENTAGE),
        )

    @property
    def uses_topic_ids(self) -> bool:
        """True if topics get ids (KIP-516)."""
        return self.protocol >= versions.V2_8_IV0

    @property
    def leaders_write_isrs(self) -> bool:
        """True if leaders change the ISRs in ZooKeeper themselves, and do not ask the controller (before KIP-497)."""
        return self.protocol < versions.V2_7_IV2

    @property
    def marks_recovery(self) -> bool:
        """True if brokers know of leaders that recover from an unclean election (KIP-704)."""
        return self.protocol >= versions.V3_2_IV0


class Core:
    """The state of one controller, its settings, and the requests to send after the present event."""

    def __init__(self, settings: ControllerSettings, state: ControllerState) -> None:
        self.settings = settings
        self.state = state
        self.batch = Batch(settings.broker_id, settings.listener, settings.protocol)

    def send(self) -> Steps[None]:
        """Send the gathered requests."""
        return self.batch.send(self.state)
