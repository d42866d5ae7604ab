"""Services of the broker with which a fetch is answered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.cluster.metadata.store import MetadataStore
    from barnabas.cluster.replicas.failures import LogDirFailures
    from barnabas.cluster.replicas.manager import Replicas
    from barnabas.cluster.tiering.manager import TieredStorage
    from barnabas.config.loading import BrokerConfig
    from barnabas.serving.fetch_sessions import FetchSessions
    from barnabas.serving.loop_budget import LoopBudget
    from barnabas.serving.step_runner import StepRunner


@dataclass(eq=False)
class FetchServices:
    """Fields of the handler of Fetch."""

    metadata: MetadataStore
    replicas: Replicas
    config: BrokerConfig
    budget: LoopBudget
    step_runner: StepRunner
    fetch_sessions: FetchSessions
    failures: LogDirFailures
    tiered: TieredStorage | None
