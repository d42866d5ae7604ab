"""Parts of a broker from which all others are created."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import trio

    from barnabas.broker.storage_parts import Storage
    from barnabas.config.loading import BrokerConfig
    from barnabas.environment import Environment
    from barnabas.serving.loop_budget import LoopBudget
    from barnabas.serving.release import ReleaseProfile


class BaseParts(NamedTuple):
    """Configuration, release, environment and opened storage of one broker; `background` runs its periodic work."""

    config: BrokerConfig
    release: ReleaseProfile
    environment: Environment
    budget: LoopBudget
    storage: Storage
    background: trio.Nursery
