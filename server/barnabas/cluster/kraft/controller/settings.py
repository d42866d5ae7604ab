"""Settings of topics, brokers, groups and client metrics: Incremental- and AlterConfigs v0-v2, DescribeConfigs v1-v4.

The rule: either all alterations of a resource are applied or none, and each resource has its own result. Values of broker
settings are not validated: the forwarding broker has done that, and this node's own settings differ.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from barnabas.cluster.kraft.controller.conditions import check_size
from barnabas.cluster.kraft.controller.features import MIN_IN_SYNC, has_elr, voter_ids
from barnabas.cluster.kraft.controller.outcome import Caller, ControllerState, Handlers, Outcome
from barnabas.cluster.kraft.controller.versions import CORDONED_LEVEL
from barnabas.cluster.kraft.image import BROKER, CLIENT_METRICS, GROUP, TOPIC
from barnabas.cluster.metadata import topic_decisions
from barnabas.cluster.metadata.config_description import (
    Described,
    describe_all_brokers,
    describe_broker,
    describe_client_metrics,
    describe_group,
    describe_topic,
)
from barnabas.config import client_metrics, tables
from barnabas.config import group as group_settings
from barnabas.config import topic as topic_settings
from barnabas.config.broker import CORDONED_LOG_DIRS
from barnabas.config.setting import INT, INT_MAX, LIST, SettingError
from barnabas.errors import RequestError, detached
from barnabas.security.authorizer import CLUSTER_NAME, Operation, ResourceType
from barnabas.wire.generated.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from barnabas.wire.generated.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from barnabas.wire.generated.metadata_records.clear_elr import ClearElrRecord
from barnabas.wire.generated.metadata_records.config import ConfigRecord
from barnabas.wire.primitives import STRING_BYTES_MAX

DESCRIBE_CONFIGS: Final = 32
ALTER_CONFIGS: Final = 33
INCREMENTAL_ALTER_CONFIGS: Final = 44
SET, DELETE, APPEND, SUBTRACT = range(4)
"""Operations of IncrementalAlterConfigs (KIP-339)."""
BROKER_LOGGER: Final = 8
_DIGITS_MAX: Final = 11

_AUTHORIZED_ON: Final = {
    BROKER: ResourceType.CLUSTER,
    CLIENT_METRICS: ResourceType.CLUSTER,
    TOPIC: ResourceType.TOPIC,
    GROUP: ResourceType.GROUP,
}
Own = Mapping[str, str]
"""Settings of the resource itself, without defaults."""
Changes = dict[str, str | None]
"""New values of settings; None resets a setting to its default."""


def incremental_alter_configs(
    state: ControllerState, request: IncrementalAlterConfigsRequest, caller: Caller
) -> Outcome:
    """Set, delete, append to and subtract from single settings."""
    response = IncrementalAlterConfigsResponse()
    return _altered(state, request, caller, response, response.AlterConfigsResourceResponse)


def alter_configs(state: ControllerState, request: AlterConfigsRequest, caller: Caller) -> Outcome:
    """Replace all settings of a resource; settings that are not named return to their defaults."""
    response = AlterConfigsResponse()
    return _altered(
        state, request, caller, response, response.AlterConfigsResourceResponse, replaces_all=True
    )


def check_topic_configs(state: ControllerState, configs: Mapping[str, str | None]) -> RequestError | None:
    """Return why a new topic cannot have these settings, None if it can."""
    missing = sorted(name for name, value in configs.items() if value is None)
    if missing:
        return RequestError(ErrorCode.INVALID_CONFIG, f"settings without a value: {', '.join(missing)}")
    try:
        own = {name: value for name, value in configs.items() if value is not None}
        _check_sizes(own)
        topic_decisions.check_settings(own, state.config)
    except RequestError as error:
        return detached(error)
    return None


def _altered(
    state: ControllerState,
    request: Any,
    caller: Caller,
    response: Any,
    new_answer: Callable[[], Any],
    *,
    replaces_all: bool = False,
) -> Outcome:
    """Complete the response to a request of either API, and return it with the records."""
    counts = Counter((resource.resource_type, resource.resource_name) for resource in request.resources)
    answers: dict[tuple[int, str], Any] = {}
    records: list[ConfigRecord] = []
    for resource in request.resources:
        key = resource.resource_type, resource.resource_name
        answer = answers[key] = new_answer()
        answer.resource_type, answer.resource_name, answer.error_message = *key, None
        try:
            if counts[key] > 1:
                raise RequestError(ErrorCode.INVALID_REQUEST, "the resource is named twice")
            _authorize(caller, Operation.ALTER_CONFIGS, *key)
            records += _alter(state, resource, caller, replaces_all=replaces_all)
        except RequestError as error:
            answer.error_code, answer.error_message = error.code, error.message
    check_size(records)
    response.responses = list(answers.values())
    return Outcome(response, () if request.validate_only else (*records, *_cleared_elr(state, records)))


def _authorize(caller: Caller, operation: Operation, resource_type: int, name: str) -> None:
    """Raise unless the caller may do this, and controllers keep settings of this type of resource."""
    on = _AUTHORIZED_ON.get(resource_type)
    if on is not None:
        caller.require(operation, on, CLUSTER_NAME if on is ResourceType.CLUSTER else name)
    elif resource_type == BROKER_LOGGER:
        raise RequestError(ErrorCode.INVALID_REQUEST, "controllers do not serve the levels of loggers")
    else:
        is_change = operation is Operation.ALTER_CONFIGS  # Kafka has a different code for each
        code = ErrorCode.UNSUPPORTED_VERSION if is_change else ErrorCode.INVALID_REQUEST
        raise RequestError(code, f"there are no resources of type {resource_type}")


def _cleared_elr(state: ControllerState, records: Sequence[ConfigRecord]) -> list[ClearElrRecord]:
    """Return the records that clear the ELRs that depended on the old min.insync.replicas (KIP-966)."""
    if not has_elr(state.image):
        return []
    return [
        ClearElrRecord(record.resource_name if record.resource_type == TOPIC else "")
        for record in records
        if record.name == MIN_IN_SYNC
    ]


# --- one resource ---------------------------------------------------------------------------------------------------


def _alter(
    state: ControllerState, resource: Any, caller: Caller, *, replaces_all: bool
) -> list[ConfigRecord]:
    """Return the records that alter a resource. Raises RequestError."""
    resource_type, name = resource.resource_type, resource.resource_name
    own: Own = state.image.settings.get((resource_type, name), {})
    changes: Changes = {}
    for entry in resource.configs:  # if a setting is named twice, the last counts, as in Kafka
        changes[entry.name] = entry.value if replaces_all else _changed(resource_type, own, entry)
    if replaces_all:
        changes |= {setting: None for setting in own if setting not in changes}
    if resource_type == BROKER:
        _check_broker_changes(state, name, own, changes, caller)
    else:  # only brokers get unchanged values: they reload files that settings name, such as certificates
        changes = {setting: value for setting, value in changes.items() if own.get(setting) != value}
    _check_sizes(changes)
    after = {setting: value for setting, value in {**own, **changes}.items() if value is not None}
    _check_resource(state, resource_type, name, after)
    return [ConfigRecord(resource_type, name, setting, value) for setting, value in changes.items()]


def _changed(
    resource_type: int, own: Own, entry: IncrementalAlterConfigsRequest.AlterableConfig
) -> str | None:
    """Return the new value of a setting. Raises INVALID_REQUEST, INVALID_CONFIG."""
    name, operation, value = entry.name, entry.config_operation, entry.value
    if operation == SET:
        return value
    if operation == DELETE:
        return None
    if operation not in (APPEND, SUBTRACT) or value is None:
        raise RequestError(
            ErrorCode.INVALID_REQUEST, f"{name}: there is no operation {operation} with such a value"
        )
    row = tables.find(name) if resource_type == BROKER else topic_settings.SETTINGS.get(name)
    if row is None or row.kind is not LIST or resource_type not in (TOPIC, BROKER):
        raise RequestError(ErrorCode.INVALID_CONFIG, f"{name} is no list")
    if operation == APPEND and not value:
        raise RequestError(ErrorCode.INVALID_CONFIG, f"{name}: there is nothing to append")
    text = own.get(name)
    items = list(row.default or ()) if text is None else list(LIST.parse(text))
    changed = LIST.parse(value)
    if operation == APPEND:
        items += [item for item in changed if item not in items]
    else:
        items = [item for item in items if item not in changed]
    return ",".join(items)


def _check_sizes(values: Mapping[str, str | None]) -> None:
    for name, value in values.items():
        if value is not None and len(value.encode()) > STRING_BYTES_MAX:
            raise RequestError(
                ErrorCode.INVALID_CONFIG,
                f"{name} would have {len(value)} characters; {STRING_BYTES_MAX} bytes are the most",
            )


def _check_broker_changes(
    state: ControllerState, broker: str, own: Own, changes: Changes, caller: Caller
) -> None:
    """Check the broker settings that only a controller can judge. Raises INVALID_CONFIG."""
    if MIN_IN_SYNC in changes and has_elr(state.image):
        if broker:
            raise RequestError(
                ErrorCode.INVALID_CONFIG, f"{MIN_IN_SYNC} is a setting of all brokers, not of one"
            )
        if changes[MIN_IN_SYNC] is None:
            raise RequestError(
                ErrorCode.INVALID_CONFIG, f"{MIN_IN_SYNC} cannot be taken away from all brokers"
            )
    name = CORDONED_LOG_DIRS.name
    if name not in changes:
        return
    if state.image.metadata_version < CORDONED_LEVEL:
        raise RequestError(ErrorCode.INVALID_CONFIG, f"{name} needs metadata.version {CORDONED_LEVEL}")
    paths = set(LIST.parse(changes[name] or ""))
    if not caller.is_forwarded and not paths <= set(LIST.parse(own.get(name, ""))):
        raise RequestError(
            ErrorCode.INVALID_CONFIG,
            f"{name}: only the broker can say whether a log dir is its own; ask a broker to add one",
        )


def _check_resource(state: ControllerState, resource_type: int, name: str, own: Own) -> None:
    """Raise RequestError unless the resource exists and may have these settings."""
    if resource_type == TOPIC and not name:  # Kafka has a different code in DescribeConfigs
        raise _without_a_name()
    _check_name(resource_type, name)
    try:
        if resource_type == TOPIC:
            topic_decisions.check_settings(own, state.config, state.image.settings.get((TOPIC, name), {}))
        elif resource_type == GROUP:
            group_settings.check(own, state.config)
        elif resource_type == CLIENT_METRICS:
            client_metrics.check(own)
    except SettingError as error:
        raise RequestError(ErrorCode.INVALID_CONFIG, str(error)) from error
    _check_presence(state, resource_type, name)


def _check_name(resource_type: int, name: str) -> None:
    """Raise RequestError if no resource of this type can have this name."""
    if resource_type == TOPIC:
        topic_decisions.check_topic_name(name)
    elif resource_type != BROKER:
        if not name:
            raise _without_a_name()
    elif name:
        _broker_id(name)


def _without_a_name() -> RequestError:
    return RequestError(ErrorCode.INVALID_REQUEST, "the name of the resource is empty")


def _check_presence(state: ControllerState, resource_type: int, name: str) -> None:
    """Raise RequestError if a topic or node does not exist; groups and client metrics need not exist."""
    image = state.image
    if resource_type == TOPIC and name not in image.topic_ids:
        raise RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
    if resource_type == BROKER and name:
        node_id = _broker_id(name)
        if node_id not in (image.brokers.keys() | image.controllers.keys() | voter_ids(state)):
            raise RequestError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"there is no node {node_id}")


def _broker_id(name: str) -> int:
    """Return a broker's name as a number. Raises INVALID_REQUEST."""
    with suppress(ValueError):
        node_id: int = INT.parse(name) if len(name) <= _DIGITS_MAX else -1
        if 0 <= node_id <= INT_MAX:
            return node_id
    raise RequestError(ErrorCode.INVALID_REQUEST, f"the number of a broker is needed, not {name!r}")


# --- DescribeConfigs ------------------------------------------------------------------------------------------------


def describe_configs(state: ControllerState, request: DescribeConfigsRequest, caller: Caller) -> Outcome:
    """Describe settings of resources; for brokers, of the cluster default and of this node only."""
    response = DescribeConfigsResponse()
    for resource in request.resources:
        kind, name = resource.resource_type, resource.resource_name
        result = DescribeConfigsResponse.DescribeConfigsResult(resource_type=kind, resource_name=name)
        response.results.append(result)
        try:
            _authorize(caller, Operation.DESCRIBE_CONFIGS, kind, name)
            described = _described(state, kind, name)
        except RequestError as error:
            result.error_code, result.error_message = error.code, error.message
            continue
        keys = frozenset(resource.configuration_keys or ())
        for entry in described:
            if keys and entry.name not in keys:
                continue
            if not request.include_synonyms:
                entry.synonyms = []
            if not request.include_documentation:
                entry.documentation = None
            result.configs.append(entry)
    return Outcome(response)


def _described(state: ControllerState, kind: int, name: str) -> Iterable[Described]:
    """Describe the settings of one resource. Raises RequestError."""
    settings = state.image.settings
    own = settings.get((kind, name), {})
    of_all, of_this = settings.get((BROKER, ""), {}), settings.get((BROKER, str(state.node_id)), {})
    config = state.config
    with suppress(SettingError):  # an invalid value has no effect
        config = config.with_dynamic(of_all, of_this)
    if kind == BROKER:
        if not name:
            return describe_all_brokers(own, config)
        if _broker_id(name) != state.node_id:
            raise RequestError(
                ErrorCode.INVALID_REQUEST, f"broker {name} was asked for; this is node {state.node_id}"
            )
        return describe_broker(config)
    _check_name(kind, name)
    _check_presence(state, kind, name)
    if kind == TOPIC:
        return describe_topic(own, config)
    return describe_group(own, config) if kind == GROUP else describe_client_metrics(own)


HANDLERS: Handlers = {
    DESCRIBE_CONFIGS: describe_configs,
    ALTER_CONFIGS: alter_configs,
    INCREMENTAL_ALTER_CONFIGS: incremental_alter_configs,
}
