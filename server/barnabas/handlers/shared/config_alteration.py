"""Altering the settings of resources, for AlterConfigs and IncrementalAlterConfigs.

The rule: an alteration is decided on the whole of a resource's own settings, and is applied completely or not.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from barnabas.cluster.metadata import topic_decisions
from barnabas.cluster.metadata.changes import ConfigChanged
from barnabas.cluster.metadata.image import (
    BROKER,
    BROKER_LOGGER,
    CLIENT_METRICS,
    GROUP,
    TOPIC,
    Change,
    ClusterImage,
)
from barnabas.config import client_metrics, releases, tables, without_effect
from barnabas.config import group as group_settings
from barnabas.config.broker import CORDONED_LOG_DIRS
from barnabas.config.keeper import is_in_quorum, is_on_zookeeper
from barnabas.config.listeners import concerns_security
from barnabas.config.loading import BrokerConfig
from barnabas.config.quorum import check_cordoned
from barnabas.config.setting import Setting, SettingError
from barnabas.errors import RequestError, detached
from barnabas.handlers.shared import broker_loggers, config_resources
from barnabas.handlers.shared.alterations import (
    APPEND,
    DELETE,
    SET,
    SUBTRACT,
    Alteration,
    altered,
    check_alterations,
)
from barnabas.handlers.shared.config_resources import check_broker_name, check_type, require_on_resource
from barnabas.security.authorizer import Operation
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.primitives import STRING_BYTES_MAX

if TYPE_CHECKING:
    from barnabas.cluster.kraft.forwarding import Forwarder
    from barnabas.cluster.metadata.store import MetadataStore
    from barnabas.config.listeners import ListenerSecurity
    from barnabas.serving.context import RequestContext
    from barnabas.serving.loop_budget import LoopBudget

log = logging.getLogger(__name__)

ALTERATIONS_PER_REQUEST_MAX = 10_000
"""Kafka's MAX_RECORDS_PER_USER_OP."""


@dataclass(slots=True)
class ResourceChange:
    """Alterations of one resource that a request asks for, and why they are refused."""

    resource_type: int
    name: str
    alterations: list[Alteration]
    refused: RequestError | None = None

    @property
    def key(self) -> tuple[int, str]:
        """Type and name of the resource, its unique key."""
        return self.resource_type, self.name


class Answer(Protocol):
    """Answer for one resource, in a response of either API."""

    resource_type: int
    resource_name: str
    error_code: int
    error_message: str | None


A = TypeVar("A", bound=Answer)


@dataclass(eq=False)
class ConfigServices:
    """Fields of the handlers that alter settings."""

    metadata: MetadataStore
    config: BrokerConfig
    budget: LoopBudget
    broker_id: int
    security: ListenerSecurity
    forwarder: Forwarder | None
    """Forwarder of changes to the active controller of a KRaft quorum; None without one."""


class ConfigAlteration:
    """Changes that one request makes to the settings of resources. Lifecycle: `apply`, once.

    With `replace_all` settings that are not named are reset, as in AlterConfigs.
    """

    def __init__(
        self, services: ConfigServices, context: RequestContext, *, replace_all: bool, validate_only: bool
    ) -> None:
        self._services = services
        self._context = context
        self._replace_all = replace_all
        self._validate_only = validate_only

    async def apply(self, request: Any, new_answer: Callable[[], A]) -> list[A]:
        """Alter all resources in one change, and answer each; a refused resource does not affect the others.

        Raises StorageError.
        """
        changes = await self._wanted_changes(request.resources)
        await self._check(changes)
        await self._check_security(changes)
        if self._services.forwarder is not None:
            await self._forward(self._services.forwarder, changes, request)
        else:
            await self._change(changes)
        answers = []
        for change in changes:
            answer = new_answer()
            answer.resource_type, answer.resource_name, answer.error_message = *change.key, None
            if change.refused is not None:
                answer.error_code, answer.error_message = change.refused.code, change.refused.message
            answers.append(answer)
            await self._services.budget.checkpoint()
        return answers

    async def _wanted_changes(self, resources: Sequence[Any]) -> list[ResourceChange]:
        """Return the requested changes, all of them refused if there are more than Apache Kafka accepts."""
        count = 0
        for resource in resources:
            count += len(resource.configs)
            await self._services.budget.checkpoint()
        too_many = None
        if count > ALTERATIONS_PER_REQUEST_MAX:
            too_many = RequestError(
                ErrorCode.POLICY_VIOLATION,
                f"{count} settings are changed; at most {ALTERATIONS_PER_REQUEST_MAX} in one request",
            )
        changes = []
        for resource in resources:
            change = ResourceChange(resource.resource_type, resource.resource_name, [], too_many)
            if too_many is None:
                for entry in resource.configs:
                    operation = SET if self._replace_all else entry.config_operation
                    change.alterations.append(Alteration(entry.name, operation, entry.value))
                    await self._services.budget.checkpoint()
            changes.append(change)
            await self._services.budget.checkpoint()
        return changes

    async def _check(self, changes: Sequence[ResourceChange]) -> None:
        """Refuse changes that are invalid regardless of present settings, and set the levels of loggers.

        The codes: INVALID_REQUEST, INVALID_TOPIC_EXCEPTION, INVALID_CONFIG, and those of the authorizer.
        """
        counts: Counter[tuple[int, str]] = Counter()
        for change in changes:
            counts[change.key] += 1
            await self._services.budget.checkpoint()
        for change in changes:
            await self._services.budget.checkpoint()
            if change.refused is not None:
                continue
            try:
                if counts[change.key] > 1:
                    raise RequestError(ErrorCode.INVALID_REQUEST, "the resource is named twice")
                self._check_resource(change)
            except RequestError as error:
                change.refused = detached(error)

    def _check_resource(self, change: ResourceChange) -> None:
        check_alterations(change.alterations)
        check_type(change.resource_type, self._services.config)
        if change.resource_type == BROKER:
            check_broker_name(change.name, broker_id=self._services.broker_id)
        require_on_resource(self._context, Operation.ALTER_CONFIGS, change.resource_type, change.name)
        if change.resource_type != BROKER_LOGGER:
            _check_resource(change.resource_type, change.name, broker_id=self._services.broker_id)
        elif self._replace_all:
            raise RequestError(ErrorCode.INVALID_REQUEST, "loggers can only be altered one by one")
        else:
            _alter_loggers(
                change.name,
                change.alterations,
                validate_only=self._validate_only,
                broker_id=self._services.broker_id,
            )

    async def _check_security(self, changes: Sequence[ResourceChange]) -> None:
        """Refuse settings of TLS and SASL that would break a listener: keys are read before they are applied."""
        image, config = self._services.metadata.image, self._services.config
        for change in changes:
            await self._services.budget.checkpoint()
            if change.resource_type != BROKER or change.refused is not None:
                continue
            is_of_security = any(concerns_security(alteration.name) for alteration in change.alterations)
            if not is_of_security and self._services.forwarder is None:
                continue  # `_change` checks it
            try:
                before = {} if self._replace_all else image.settings_of(BROKER, change.name)
                settings = altered(BROKER, before, change.alterations, config)
                checked = settings
                if self._services.forwarder is not None:  # others may be settings of Kafka's brokers alone
                    names = {alteration.name for alteration in change.alterations}
                    checked = {name: text for name, text in settings.items() if name in names}
                _check_settings(BROKER, change.name, checked, before, config=config)
                if not is_of_security:
                    continue
                others = image.settings_of(BROKER, "") if change.name else {}
                own = (others, settings) if change.name else (settings, {})
                await self._services.security.check(config.with_dynamic(*own))
            except RequestError as error:
                change.refused = detached(error)
            except SettingError as error:
                change.refused = RequestError(ErrorCode.INVALID_REQUEST, str(error))

    async def _change(self, changes: Sequence[ResourceChange]) -> None:
        """Change the own settings of all resources that are not refused, in one change.

        Refuses those that cannot be changed as a whole: INVALID_CONFIG, INVALID_REQUEST, UNKNOWN_TOPIC_OR_PARTITION.
        """

        def decide(image: ClusterImage) -> Iterator[Change | None]:
            for resource_change in changes:
                yield None
                if resource_change.refused is None and resource_change.resource_type != BROKER_LOGGER:
                    try:
                        change = self._changed(image, resource_change)
                    except RequestError as error:
                        resource_change.refused = detached(error)
                    else:
                        yield change

        if self._validate_only:
            for _ in decide(self._services.metadata.image):
                await self._services.budget.checkpoint()
            return
        await self._services.metadata.change(decide)
        for change in changes:
            if change.resource_type == BROKER and change.refused is None:
                _log_unknown(self._context, change, self._services.config)
            await self._services.budget.checkpoint()

    async def _forward(self, forwarder: Forwarder, changes: Sequence[ResourceChange], request: Any) -> None:
        """Forward the valid changes, except those of loggers, to the controller; records its errors."""
        accepted = {
            change.key: change
            for change in changes
            if change.refused is None and change.resource_type != BROKER_LOGGER
        }
        resources = [
            resource
            for resource in request.resources
            if (resource.resource_type, resource.resource_name) in accepted
        ]
        if not resources:
            return
        response = await forwarder.forward(self._context, replace(request, resources=resources))
        for answer in response.responses:
            change = accepted.get((answer.resource_type, answer.resource_name))
            if change is not None and answer.error_code:
                change.refused = RequestError(answer.error_code, answer.error_message or "")
            await self._services.budget.checkpoint()

    def _changed(self, image: ClusterImage, change: ResourceChange) -> ConfigChanged:
        resource_type, name = change.key
        before = image.settings_of(resource_type, name)
        if resource_type == BROKER and self._services.config.kept_for_all:
            settings = self._with_kept(before, change)
        else:
            first = {} if self._replace_all else before
            settings = altered(resource_type, first, change.alterations, self._services.config)
        _check_settings(resource_type, name, settings, before, config=self._services.config)
        if resource_type == TOPIC and name not in image.topics:
            raise RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
        return ConfigChanged(resource_type, name, tuple(sorted(settings.items())))

    def _with_kept(self, before: Mapping[str, str], change: ResourceChange) -> dict[str, str]:
        """Settings of brokers after these alterations, if some can only be set for all brokers (KIP-966).

        Those can neither be set for one broker nor be removed for all. Raises INVALID_CONFIG.
        """
        name, of_all = change.name, self._services.config.kept_for_all
        kept = of_all if not name else {}
        first = {} if self._replace_all else {**kept, **before}
        settings = altered(BROKER, first, change.alterations, self._services.config)
        named = {alteration.name: alteration.operation for alteration in change.alterations}
        for setting in of_all:
            if name and named.get(setting, DELETE) != DELETE:
                raise RequestError(
                    ErrorCode.INVALID_CONFIG, f"{setting} is a setting of all brokers, not of one"
                )
            if not name and setting not in settings:
                raise RequestError(
                    ErrorCode.INVALID_CONFIG, f"{setting} cannot be taken away from all brokers"
                )
        return {
            key: text for key, text in settings.items() if key not in kept or key in before or key in named
        }


def _check_resource(resource_type: int, name: str, *, broker_id: int) -> None:
    """Raise RequestError unless such a resource is possible; its existence is checked later."""
    if resource_type == BROKER:
        check_broker_name(name, broker_id=broker_id)
    elif resource_type not in (TOPIC, GROUP, CLIENT_METRICS):
        raise RequestError(ErrorCode.INVALID_REQUEST, f"there are no resources of type {resource_type}")
    elif not name:
        raise RequestError(ErrorCode.INVALID_REQUEST, "the name of the resource is empty")
    elif resource_type == TOPIC:
        topic_decisions.check_topic_name(name)


def _check_settings(
    resource_type: int,
    name: str,
    settings: Mapping[str, str],
    before: Mapping[str, str],
    *,
    config: BrokerConfig,
) -> None:
    for setting, text in settings.items():
        if len(text) > STRING_BYTES_MAX:
            raise RequestError(
                ErrorCode.INVALID_CONFIG,
                f"{setting} would have {len(text)} characters; {STRING_BYTES_MAX} are the most",
            )
    if resource_type == BROKER:
        _check_broker_settings(config, name, settings)
        return
    try:
        if resource_type == TOPIC:
            topic_decisions.check_settings(settings, config, before)
        elif resource_type == GROUP:
            group_settings.check(settings, config)
        else:
            client_metrics.check(settings)
    except SettingError as error:
        raise RequestError(ErrorCode.INVALID_CONFIG, str(error)) from error


def _known(name: str, config: BrokerConfig) -> Setting[Any] | None:
    """Return the row of a broker's setting; None for an unknown or removed name."""
    row = config.find(name)
    return None if row is None or tables.is_gone(row, in_cluster=is_on_zookeeper(config)) else row


def _log_unknown(context: RequestContext, change: ResourceChange, config: BrokerConfig) -> None:
    """Log which of a broker's new settings are unknown: they are kept, and have no effect."""
    unknown = [
        alteration.name
        for alteration in change.alterations
        if alteration.operation != DELETE and _known(alteration.name, config) is None
    ]
    if unknown:
        context.log(
            log, logging.WARNING, "unknown settings of brokers",
            "%d settings of broker %r are not known here, the first of them %r",
            len(unknown), change.name, unknown[0],
        )  # fmt: skip


def _check_broker_settings(config: BrokerConfig, broker: str, settings: Mapping[str, str]) -> None:
    """Check broker settings: unknown names are accepted as a plugin's, all faults have one code, as in Kafka."""
    for name, text in settings.items():
        row = _known(name, config)
        if row is None:
            continue
        if not row.dynamic:
            raise RequestError(ErrorCode.INVALID_REQUEST, f"{name} cannot be changed while the broker runs")
        if row.changes == "broker" and not broker:
            raise RequestError(ErrorCode.INVALID_REQUEST, f"{name} can only be set for one broker")
        try:
            value = config.limited(row).parse(text)
            if releases.refuses_repeated_items(config.release):
                row.check_items_differ(text)
            if name == CORDONED_LOG_DIRS.name and is_in_quorum(config):
                check_cordoned(value, config.log_dirs)
                continue
        except SettingError as error:
            raise RequestError(ErrorCode.INVALID_REQUEST, str(error)) from error
        if row.stops and without_effect.differs(row, value):
            raise RequestError(ErrorCode.INVALID_CONFIG, without_effect.explain(row, text))
        if name in config_resources.THREAD_POOLS:
            now = config.value_of(name)
            if not now / 2 <= value <= now * 2:
                raise RequestError(
                    ErrorCode.INVALID_REQUEST,
                    f"{name}={text}: from half to twice of the {now} there are now expected",
                )
    config_resources.check_local_retention(config, broker, settings)


def _alter_loggers(
    name: str, alterations: Sequence[Alteration], *, validate_only: bool, broker_id: int
) -> None:
    if not name:
        raise RequestError(ErrorCode.INVALID_REQUEST, "the number of a broker is needed")
    check_broker_name(name, broker_id=broker_id)
    levels = broker_loggers.levels()
    new_levels: dict[str, str | None] = {}
    for alteration in alterations:
        if alteration.operation in (APPEND, SUBTRACT):
            raise RequestError(ErrorCode.INVALID_REQUEST, "a logger's level can only be set or deleted")
        if alteration.name not in levels:
            raise RequestError(ErrorCode.INVALID_CONFIG, f"there is no logger {alteration.name!r}")
        if alteration.operation == DELETE:
            if alteration.name == broker_loggers.ROOT:
                raise RequestError(ErrorCode.INVALID_REQUEST, "the root logger cannot be without a level")
            new_levels[alteration.name] = None
            continue
        if alteration.value not in broker_loggers.LEVELS:
            names = ", ".join(broker_loggers.LEVELS)
            raise RequestError(
                ErrorCode.INVALID_CONFIG, f"{alteration.value!r} is no level; the levels are {names}"
            )
        new_levels[alteration.name] = alteration.value
    if not validate_only:
        broker_loggers.set_levels(new_levels)
