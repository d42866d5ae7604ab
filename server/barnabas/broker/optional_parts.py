"""Parts that only some brokers need: each is created, with its task, on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from barnabas.cluster.metadata.internal_topics import SHARE_TOPIC
from barnabas.config import broker as settings
from barnabas.config.authorizer import token_secret_key
from barnabas.config.features import finalized
from barnabas.environment.lazy import Lazy
from barnabas.serving.apis import SHARES

if TYPE_CHECKING:
    from barnabas.broker.base_parts import BaseParts
    from barnabas.broker.coordinator_parts import CoordinatorParts
    from barnabas.cluster.metadata.credentials import ClusterCredentials
    from barnabas.cluster.metadata.delegation_tokens import DelegationTokens
    from barnabas.coordinators.share.shares import Shares
    from barnabas.metrics.client_telemetry import Telemetry
    from barnabas.serving.log_limit import LogLimit
    from barnabas.serving.step_runner import StepRunner


LEVEL_OF_QUEUES = 2
"""Of `share.version`: groups have dead letter queues from it on (KIP-1191)."""


class OptionalParts(NamedTuple):
    """Share groups, client telemetry, users and delegation tokens."""

    shares: Lazy[Shares]
    telemetry: Lazy[Telemetry]
    credentials: Lazy[ClusterCredentials]
    delegation_tokens: Lazy[DelegationTokens]

    def connection_closed(self, connection_id: int) -> None:
        """End the share sessions and the client instance that began on a connection."""
        if self.shares.if_made is not None:
            self.shares.if_made.connection_closed(connection_id)
        if self.telemetry.if_made is not None:
            self.telemetry.if_made.instances.connection_closed(connection_id)


def optional_parts(
    base: BaseParts, coordinators: CoordinatorParts, step_runner: StepRunner, log_limit: LogLimit
) -> OptionalParts:
    """Return the optional parts, none of which is created yet."""
    credentials = _credentials(base)
    delegation_tokens = _delegation_tokens(base, credentials)
    if token_secret_key(base.config) is not None:  # expired ones
        delegation_tokens.get()
    return OptionalParts(
        _shares(base, coordinators, step_runner, log_limit), _telemetry(base), credentials, delegation_tokens
    )


def _shares(
    base: BaseParts, coordinators: CoordinatorParts, step_runner: StepRunner, log_limit: LogLimit
) -> Lazy[Shares]:
    config, environment, storage = base.config, base.environment, base.storage

    def make() -> Shares:
        from barnabas.coordinators.share.counts import ShareCounts
        from barnabas.coordinators.share.dead_letter_queue import DeadLetterQueues
        from barnabas.coordinators.share.shares import Shares

        def has_queues() -> bool:
            features = finalized(base.release.features, storage.metadata.image.features)
            return any(each.name == SHARES and each.finalized_level >= LEVEL_OF_QUEUES for each in features)

        counts = ShareCounts()
        shares = Shares(
            config,
            coordinators.internal(SHARE_TOPIC),
            groups=coordinators.groups,
            metadata=storage.metadata,
            replicas=storage.replicas,
            budget=base.budget,
            step_runner=step_runner,
            now_ms=environment.wall_clock_ms,
            steady_ms=environment.monotonic_ms,
            elsewhere=coordinators.share_state,
            high_watermarks=coordinators.high_watermarks(),
            queues=DeadLetterQueues(
                config,
                storage.metadata,
                coordinators.ports.topic_creation,
                coordinators.letter_writer(step_runner),
                environment.entropy,
                base.budget,
                environment.wall_clock_ms,
                has_queues,
                log_limit,
                counts,
            ),
            counts=counts,
        )
        base.background.start_soon(shares.run)
        return shares

    return Lazy(
        make,
        "barnabas.coordinators.share.shares",
        "barnabas.coordinators.share.high_watermarks",
        "barnabas.coordinators.share.dead_letter_queue",
        "barnabas.coordinators.share.letter_writers",
        "barnabas.coordinators.runtime.entries",
        "encodings.utf_16_be",
        beside=environment.threads.run,
    )


def _telemetry(base: BaseParts) -> Lazy[Telemetry]:
    environment, metadata = base.environment, base.storage.metadata

    def make() -> Telemetry:
        from barnabas.metrics.client_telemetry import Telemetry

        telemetry = Telemetry(
            base.config,
            metadata.image.configs,
            environment.threads,
            base.budget,
            environment.wall_clock_ms,
            environment.entropy,
        )
        base.background.start_soon(telemetry.run)
        return telemetry

    return Lazy(make, "barnabas.metrics.client_telemetry", "barnabas.metrics.telemetry.payload")


def _credentials(base: BaseParts) -> Lazy[ClusterCredentials]:
    environment = base.environment

    def make() -> ClusterCredentials:
        from barnabas.cluster.metadata.credentials import ClusterCredentials

        return ClusterCredentials(
            base.storage.metadata,
            token_secret_key(base.config),
            clock_ms=environment.wall_clock_ms,
            entropy=environment.entropy,
            threads=environment.threads,
            budget=base.budget,
        )

    return Lazy(make, "barnabas.cluster.metadata.credentials")


def _delegation_tokens(base: BaseParts, credentials: Lazy[ClusterCredentials]) -> Lazy[DelegationTokens]:
    config, environment = base.config, base.environment

    def make() -> DelegationTokens:
        from barnabas.cluster.metadata.delegation_tokens import DelegationTokens
        from barnabas.security.tokens import Lifetime

        tokens = DelegationTokens(
            base.storage.metadata,
            credentials.get(),
            lifetime=Lifetime(
                config.get(settings.DELEGATION_TOKEN_MAX_LIFETIME_MS),
                config.get(settings.DELEGATION_TOKEN_EXPIRY_TIME_MS),
            ),
            per_owner_max=config.get(settings.DELEGATION_TOKEN_MAX_PER_OWNER),
            check_interval_ms=config.get(settings.DELEGATION_TOKEN_EXPIRY_CHECK_INTERVAL_MS),
            clock_ms=environment.wall_clock_ms,
            entropy=environment.entropy,
        )
        base.background.start_soon(tokens.run)
        return tokens

    return Lazy(
        make,
        "barnabas.cluster.metadata.credentials",
        "barnabas.cluster.metadata.delegation_tokens",
    )
