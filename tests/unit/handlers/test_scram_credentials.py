"""DescribeUserScramCredentials and AlterUserScramCredentials, as clients see them."""

import pytest

from barnabas.security import scram
from barnabas.wire.generated.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from barnabas.wire.generated.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from barnabas.wire.generated.errors import ErrorCode
from tests.support.broker import broker_to_ask

Alter = AlterUserScramCredentialsRequest
SALTED = scram.salted_password(scram.SCRAM_SHA_256, "secret", b"salt", 4096)


def upsert(user, mechanism=1, iterations=4096, salted=SALTED):
    return Alter.ScramCredentialUpsertion(
        name=user, mechanism=mechanism, iterations=iterations, salt=b"salt", salted_password=salted
    )


def delete(user, mechanism=1):
    return Alter.ScramCredentialDeletion(name=user, mechanism=mechanism)


async def alter(asked, *alterations):
    """The error codes by user."""
    request = Alter(
        deletions=[a for a in alterations if isinstance(a, Alter.ScramCredentialDeletion)],
        upsertions=[a for a in alterations if isinstance(a, Alter.ScramCredentialUpsertion)],
    )
    answer = await asked(request, 0)
    return {result.user: result.error_code for result in answer.results}


async def described(asked, *users):
    """(error code, {mechanism: iterations}) by user."""
    names = [DescribeUserScramCredentialsRequest.UserName(name=name) for name in users]
    answer = await asked(DescribeUserScramCredentialsRequest(users=names or None), 0)
    assert answer.error_code == 0
    return {
        row.user: (row.error_code, {info.mechanism: info.iterations for info in row.credential_infos})
        for row in answer.results
    }


async def test_credentials_are_set_described_and_deleted(tmp_path):
    async with broker_to_ask(tmp_path) as asked:
        assert await alter(asked, upsert("alice"), upsert("bob", 2, 16384)) == {"alice": 0, "bob": 0}
        assert await alter(asked, upsert("alice", 2, 5000)) == {"alice": 0}
        assert await described(asked) == {"alice": (0, {1: 4096, 2: 5000}), "bob": (0, {2: 16384})}
        kept = asked.services.metadata.image.scram["alice"]["SCRAM-SHA-256"]
        assert kept == scram.credential(scram.SCRAM_SHA_256, "secret", b"salt", 4096)
        assert await alter(asked, delete("alice", 2), delete("bob", 2)) == {"alice": 0, "bob": 0}
        assert await described(asked) == {"alice": (0, {1: 4096})}
    async with broker_to_ask(tmp_path) as asked:
        assert await described(asked) == {"alice": (0, {1: 4096})}


async def test_what_cannot_be_described_is_said_for_each_user(tmp_path):
    async with broker_to_ask(tmp_path) as asked:
        await alter(asked, upsert("alice"))
        assert await described(asked, "alice", "mallory", "alice", "") == {
            "alice": (ErrorCode.DUPLICATE_RESOURCE, {}),
            "mallory": (ErrorCode.RESOURCE_NOT_FOUND, {}),
            "": (ErrorCode.RESOURCE_NOT_FOUND, {}),
        }


@pytest.mark.parametrize(
    ("alterations", "code"),
    [
        ([upsert("")], ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ([upsert("u\nUser:root")], ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ([delete("")], ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ([upsert("u", iterations=4095)], ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ([upsert("u", iterations=16385)], ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ([upsert("u", mechanism=0)], ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        ([upsert("u", mechanism=3)], ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        ([delete("u", mechanism=99)], ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        ([upsert("u", salted=b"")], ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ([delete("u")], ErrorCode.RESOURCE_NOT_FOUND),
        ([delete("u"), upsert("u")], ErrorCode.RESOURCE_NOT_FOUND),
        ([upsert("u"), upsert("u", mechanism=2)], ErrorCode.DUPLICATE_RESOURCE),
        ([upsert("u"), upsert("u")], ErrorCode.DUPLICATE_RESOURCE),
        ([delete("there"), upsert("there")], ErrorCode.DUPLICATE_RESOURCE),
        ([delete("there"), delete("there")], ErrorCode.DUPLICATE_RESOURCE),
    ],
)
async def test_wrong_alteration_is_the_error_of_its_user_alone(tmp_path, alterations, code):
    async with broker_to_ask(tmp_path) as asked:
        await alter(asked, upsert("there"))
        answered = await alter(asked, *alterations, upsert("other"))
        assert answered == {alterations[0].name: code, "other": 0}
        assert await described(asked) == {"there": (0, {1: 4096}), "other": (0, {1: 4096})}
