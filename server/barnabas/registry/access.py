"""Permissions on subjects, derived from the user's permissions on the subject's topic.

The rule: the broker decides. The registry logs in to it as the user, with the name and password of the request; it keeps
neither passwords nor verdicts. A subject's topic is its name without `-key` or `-value`, and without its context.

    read      Describe on the topic, which Read and Write imply
    write     Write on the topic; Create if it does not exist yet
    delete    Delete on the topic
    change    AlterConfigs on the topic; for settings of all subjects, Alter on the cluster

If the topic does not exist, or its name is invalid, `delete` and `change` need Alter on the cluster.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from barnabas.client import AuthenticationError, ClientError, ResponseError, open_client
from barnabas.client.admin import Admin
from barnabas.client.administration.topics import NewTopic
from barnabas.network.http import basic_credentials
from barnabas.registry import names
from barnabas.registry.errors import RegistryError
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.metadata import MetadataRequest

if TYPE_CHECKING:
    from barnabas.client import Client, ClientSettings, Endpoint
    from barnabas.wire.generated.metadata import MetadataResponse

READ, WRITE, DELETE, CHANGE = "read", "write", "delete", "change"
_WRITE_BIT, _DELETE_BIT, _ALTER_BIT, _ALTER_CONFIGS_BIT = 1 << 4, 1 << 6, 1 << 7, 1 << 11
_BITS = {WRITE: _WRITE_BIT, DELETE: _DELETE_BIT, CHANGE: _ALTER_CONFIGS_BIT}
_METADATA = 3
_OPERATIONS_SINCE = 8
_OF_CLUSTER_MAX = 10
_TOPICS_MAX = 1000
"""Topics per request to the broker."""
_SUFFIXES = ("-key", "-value")
_REFUSED = (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


def topic_of(subject: str) -> str:
    """Return the topic that determines the permissions on a subject."""
    name = names.split(subject)[1]
    for suffix in _SUFFIXES:
        if name.endswith(suffix) and name != suffix:
            return name.removesuffix(suffix)
    return name


class Caller:
    """Sender of a request where there are no users: it has all rights."""

    name = ""
    """The user's name; empty without one."""

    async def check(self, need: str, subject: str | None) -> None:
        """Raise RegistryError unless a subject, or with None the settings of all, may be used so."""

    async def readable(self, subjects: Iterable[str]) -> set[str]:
        """Return the readable subjects among these."""
        return set(subjects)


class User(Caller):
    """Sender of a request, as a user of the broker's."""

    def __init__(self, client: Client, name: str = "") -> None:
        self._client = client
        self.name = name

    async def check(self, need: str, subject: str | None) -> None:
        """Raise RegistryError unless a subject, or with None the settings of all, may be used so."""
        if not await self._may(need, subject):
            raise RegistryError(403, 40301, "User is denied operation on this server.")

    async def readable(self, subjects: Iterable[str]) -> set[str]:
        """Return the readable subjects among these."""
        by_topic: dict[str, list[str]] = {}
        for subject in subjects:
            by_topic.setdefault(topic_of(subject), []).append(subject)
        readable: set[str] = set()
        topics = [*by_topic]
        for at in range(0, len(topics), _TOPICS_MAX):
            response = await self._metadata(topics[at : at + _TOPICS_MAX])
            for topic in response.topics:
                if _is_described(topic.error_code):
                    readable.update(by_topic.get(topic.name or "", ()))
        return readable

    async def _may(self, need: str, subject: str | None) -> bool:
        if subject is None or not names.split(subject)[1]:
            return need == READ or await self._may_alter_cluster()
        topic = topic_of(subject)
        [described] = (await self._metadata([topic])).topics
        if need == READ:
            return _is_described(described.error_code) or (
                described.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION and await self._may_alter_cluster()
            )
        if described.error_code == 0:
            return bool(described.topic_authorized_operations & _BITS[need])
        if described.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and need == WRITE:
            outcome = (await Admin(self._client).create_topics([NewTopic(topic)], only_check=True))[topic]
            return not (isinstance(outcome, ResponseError) and outcome.code in _REFUSED)
        if described.error_code in (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.INVALID_TOPIC_EXCEPTION,
        ):
            return await self._may_alter_cluster()
        return False

    async def _metadata(self, topics: Sequence[str]) -> MetadataResponse:
        await self._check_version()
        request = MetadataRequest(
            topics=[MetadataRequest.MetadataRequestTopic(name=topic) for topic in topics],
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=True,
        )
        response: MetadataResponse = await self._client.ask(request, version_max=12)
        return response

    async def _may_alter_cluster(self) -> bool:
        await self._check_version()
        request = MetadataRequest(topics=[], include_cluster_authorized_operations=True)
        response = await self._client.ask(request, version_max=_OF_CLUSTER_MAX)
        return bool(response.cluster_authorized_operations & _ALTER_BIT)

    async def _check_version(self) -> None:
        connection = await self._client.any_connection()
        if connection.version_of(_METADATA) < _OPERATIONS_SINCE:
            raise RegistryError(500, 500, "the broker, older than Kafka 2.3, cannot say what users may do")


def _is_described(code: int) -> bool:
    return code in (0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE)


class Logins:
    """Has users log in to the broker, with `Authorization: Basic`."""

    def __init__(
        self, bootstrap: Sequence[Endpoint], settings_of: Callable[[str, str], ClientSettings]
    ) -> None:
        """`settings_of` returns the settings with which a user, with a password, connects."""
        self._bootstrap = bootstrap
        self._settings_of = settings_of

    @asynccontextmanager
    async def caller(self, authorization: bytes) -> AsyncIterator[Caller]:
        """Open a caller for the user of a request. Raises RegistryError if the broker rejects the user."""
        credentials = basic_credentials(authorization)
        if credentials is None:
            raise _refused()
        user, password = credentials
        settings = self._settings_of(user, password)
        try:
            async with open_client(self._bootstrap, settings) as client:
                try:
                    await client.any_connection()
                except AuthenticationError:
                    raise _refused() from None
                yield User(client, user)
        except ClientError as error:
            raise RegistryError(500, 50001, f"the request to the broker failed: {error}") from None


def _refused() -> RegistryError:
    return RegistryError(
        401, 40101, "Unauthorized: log in with the name and the password of a user of the broker"
    )
