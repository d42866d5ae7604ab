"""Services of the broker with which a produce request is answered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.cluster.metadata.store import MetadataStore
    from barnabas.cluster.replicas.manager import Replicas
    from barnabas.config.loading import BrokerConfig
    from barnabas.coordinators.transactions.ports import TransactionVerifier
    from barnabas.environment import Threads
    from barnabas.serving.loop_budget import LoopBudget
    from barnabas.serving.step_runner import StepRunner


@dataclass(eq=False)
class ProduceServices:
    """Fields of the handler of Produce."""

    metadata: MetadataStore
    replicas: Replicas
    transaction_verifier: TransactionVerifier
    config: BrokerConfig
    budget: LoopBudget
    step_runner: StepRunner
    threads: Threads
