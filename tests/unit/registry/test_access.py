"""Users of subjects: the broker's verdict on the topic, and credentials that are taken for a user's."""

from __future__ import annotations

from base64 import b64encode
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.client import ClientSettings, ResponseError
from barnabas.network.http import CREDENTIALS_BYTES_MAX, basic_credentials
from barnabas.registry.access import CHANGE, DELETE, READ, WRITE, Caller, Logins, User, topic_of
from barnabas.registry.errors import RegistryError
from barnabas.registry.parsing import dependencies_of, pinned
from barnabas.registry.records import Version
from barnabas.registry.schemas import Reference, Schema
from barnabas.registry.state import State
from barnabas.wire.generated.errors import ErrorCode as Code
from barnabas.wire.generated.metadata import MetadataResponse

NEEDS = (READ, WRITE, DELETE, CHANGE)
BITS = {"write": 4, "delete": 6, "alter": 7, "alter_configs": 11}


@pytest.mark.parametrize(
    ("subject", "topic"),
    [("t-key", "t"), ("t-value", "t"), ("t", "t"), ("-key", "-key"), ("t-key-value", "t-key"), (":.c:t-value", "t")],
)  # fmt: skip
def test_a_subject_is_judged_by_its_topic(subject: str, topic: str) -> None:
    assert topic_of(subject) == topic


class Broker:
    """Stands for a client of a broker that lets a user do so much with each topic, and with the cluster."""

    def __init__(
        self, code: int = 0, may: str = "", may_cluster: str = "", makes: int = 0, version: int = 8
    ) -> None:
        self._code, self._may, self._may_cluster, self.makes = code, may, may_cluster, makes
        self.version = version
        self.asked: list[list[str]] = []
        """Topics of each request."""

    @staticmethod
    def _bits(names: str) -> int:
        return sum(1 << BITS[name] for name in names.split())

    async def any_connection(self) -> Any:
        return SimpleNamespace(version_of=lambda _: self.version)

    async def ask(self, request: Any, **_: Any) -> Any:
        self.asked.append([topic.name for topic in request.topics])
        topic = MetadataResponse.MetadataResponseTopic
        return MetadataResponse(
            topics=[
                topic(self._code, row.name, topic_authorized_operations=self._bits(self._may))
                for row in request.topics
            ],
            cluster_authorized_operations=self._bits(self._may_cluster),
        )


async def allowed(broker: Broker, subject: str | None = "t-value") -> set[str]:
    client: Any = broker
    needs = set()
    for need in NEEDS:
        try:
            await User(client).check(need, subject)
            needs.add(need)
        except RegistryError as error:
            if (error.status, error.code) != (403, 40301):
                raise
    return needs


@pytest.mark.parametrize(
    ("broker", "may"),
    [
        (Broker(), {READ}),
        (Broker(may="write"), {READ, WRITE}),
        (Broker(may="delete"), {READ, DELETE}),
        (Broker(may="alter_configs"), {READ, CHANGE}),
        (Broker(may_cluster="alter"), {READ}),
        (Broker(Code.TOPIC_AUTHORIZATION_FAILED, may="write", may_cluster="alter"), set()),
        (Broker(Code.UNKNOWN_TOPIC_OR_PARTITION), {READ, WRITE}),
        (Broker(Code.UNKNOWN_TOPIC_OR_PARTITION, makes=Code.TOPIC_AUTHORIZATION_FAILED), {READ}),
        (Broker(Code.UNKNOWN_TOPIC_OR_PARTITION, makes=Code.CLUSTER_AUTHORIZATION_FAILED), {READ}),
        (
            Broker(Code.UNKNOWN_TOPIC_OR_PARTITION, makes=Code.POLICY_VIOLATION, may_cluster="alter"),
            set(NEEDS),
        ),
        (Broker(Code.INVALID_TOPIC_EXCEPTION), set()),
        (Broker(Code.INVALID_TOPIC_EXCEPTION, may_cluster="alter"), set(NEEDS)),
    ],
)
async def test_subject_rights_are_those_of_its_topic(
    broker: Broker, may: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Admin:
        def __init__(self, client: Broker) -> None:
            self._client = client

        async def create_topics(self, topics: list[Any], *, only_check: bool) -> dict[str, Any]:
            assert only_check, "nothing is made"
            code = self._client.makes
            return {topics[0].name: ResponseError(code, "making") if code else None}

    monkeypatch.setattr("barnabas.registry.access.Admin", Admin)
    assert await allowed(broker) == may


@pytest.mark.parametrize("subject", [None, ":.c:"])
async def test_the_settings_of_all_are_for_who_may_alter_the_cluster(subject: str | None) -> None:
    assert await allowed(Broker(may="write"), subject) == {READ}
    assert await allowed(Broker(may_cluster="alter"), subject) == set(NEEDS)


async def test_readable_subjects_are_those_of_described_topics() -> None:
    subjects = ["t-key", "t-value", "u"]
    for code, expected in (
        (0, set(subjects)), (Code.UNKNOWN_TOPIC_OR_PARTITION, set(subjects)), (Code.TOPIC_AUTHORIZATION_FAILED, set()),
    ):  # fmt: skip
        client: Any = Broker(code)
        assert await User(client).readable(subjects) == expected
    assert await User(client).readable([]) == set()
    many = [f"s{number}" for number in range(2500)]
    asking = Broker()
    client = asking
    assert await User(client).readable(many) == set(many)
    assert [len(topics) for topics in asking.asked] == [1000, 1000, 500], "a request has a bound"
    assert await Caller().readable(subjects) == set(subjects)


def basic(text: bytes, scheme: bytes = b"Basic") -> bytes:
    return scheme + b" " + b64encode(text)


@pytest.mark.parametrize(
    ("header", "login"),
    [
        (basic(b"ann:secret"), ("ann", "secret")),
        (basic(b"ann:a:b", b"bAsIc"), ("ann", "a:b")),
        (basic(b"ann:"), ("ann", "")),
        (basic("änn:sécret".encode()), ("änn", "sécret")),
    ],
)
def test_a_user_comes_with_a_password(header: bytes, login: tuple[str, str]) -> None:
    assert basic_credentials(header) == login


@pytest.mark.parametrize(
    "header",
    [b"", b"Basic", basic(b"ann:x", b"Bearer"), b"Basic !!", basic(b"ann"), basic(b":x"), basic(b"\xff:x"),
     basic(b"a:" + b"x" * CREDENTIALS_BYTES_MAX)],
)  # fmt: skip
async def test_who_is_nobody_is_refused(header: bytes) -> None:
    assert basic_credentials(header) is None
    with pytest.raises(RegistryError) as refused:
        async with Logins([], lambda user, password: ClientSettings()).caller(header):
            pass
    assert (refused.value.status, refused.value.code) == (401, 40101)


def test_reference_to_the_newest_version_names_the_current_one() -> None:
    state = State()
    for number in (1, 2, 4, 5):
        schema = Schema("JSON", f'{{"title":"{number}"}}')
        state.put(Version("other", number, number, schema, is_deleted=number == 5))
    references = (
        Reference("a", "other", -1), Reference("b", "other", 1), Reference("c", "not there", -1),
        Reference("d", "other", 9),
    )  # fmt: skip
    resolved = pinned(state, "s", Schema("JSON", "{}", references))
    assert [reference.version for reference in resolved.references] == [4, 1, -1, 9]
    plain = Schema("JSON", "{}", references[1:2])
    assert pinned(state, "s", plain) is plain


def test_references_that_lead_in_a_circle_end() -> None:
    """As another registry, or a writer of the topic by hand, may have left them."""
    state = State()
    for number, (subject, other) in enumerate((("a", "b"), ("b", "a")), 1):
        references = (Reference(f"{other}.json", other, 1),)
        state.put(Version(subject, 1, number, Schema("JSON", f'{{"title":"{subject}"}}', references)))
    dependencies = dependencies_of(state, "c", [Reference("a.json", "a", 1)])
    assert dependencies == [("b.json", '{"title":"b"}'), ("a.json", '{"title":"a"}')]
