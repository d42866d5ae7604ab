"""AlterUserScramCredentials of an active controller."""

import pytest

from barnabas.cluster.kraft.controller import scram
from barnabas.cluster.kraft.values import Credential
from barnabas.errors import RequestError
from barnabas.security.authorizer import Operation
from barnabas.security.scram import BY_TYPE, credential, salted_password
from barnabas.wire.generated.alter_user_scram_credentials import AlterUserScramCredentialsRequest as Request
from barnabas.wire.generated.errors import ErrorCode
from tests.support.active_controller import ActiveController

SHA_256, SHA_512 = 1, 2
SALT = b"salt"


def upsertion(name="alice", mechanism=SHA_256, iterations=4096, password="secret", salted=None):
    if salted is None:
        salted = salted_password(BY_TYPE.get(mechanism, BY_TYPE[1]), password, SALT, 1)
    return Request.ScramCredentialUpsertion(name, mechanism, iterations, SALT, salted)


def deletion(name="alice", mechanism=SHA_256):
    return Request.ScramCredentialDeletion(name, mechanism)


def alter(bench, *alterations, **caller):
    """Return the code by user."""
    kinds = (Request.ScramCredentialDeletion, Request.ScramCredentialUpsertion)
    request = Request(
        *([alteration for alteration in alterations if isinstance(alteration, kind)] for kind in kinds)
    )
    results = bench.ask(scram.ALTER_USER_SCRAM_CREDENTIALS, request, **caller).results
    assert all((result.error_message is None) == (result.error_code == 0) for result in results)
    assert len({result.user for result in results}) == len(results)
    return {result.user: ErrorCode(result.error_code).name for result in results}


def with_alice(level=30):
    bench = ActiveController(level)
    alter(bench, upsertion())
    return bench


@pytest.mark.parametrize("mechanism", [SHA_256, SHA_512])
@pytest.mark.parametrize("iterations", [4096, 16384])
def test_credential_is_that_of_the_salted_password(mechanism, iterations):
    bench = ActiveController()
    salted = salted_password(BY_TYPE[mechanism], "secret", SALT, iterations)
    asked = upsertion("alice", mechanism, iterations, salted=salted)
    assert alter(bench, asked) == {"alice": "NONE"}
    expected = credential(BY_TYPE[mechanism], "secret", SALT, iterations)
    assert bench.image.users == {
        ("alice", mechanism): Credential(expected.salt, expected.stored_key, expected.server_key, iterations)
    }


def test_credentials_are_replaced_and_deleted():
    bench = with_alice()
    before = bench.image.users["alice", SHA_256]
    assert alter(bench, upsertion(password="other"), upsertion("bob", SHA_512)) == {
        "alice": "NONE",
        "bob": "NONE",
    }
    assert bench.image.users["alice", SHA_256] != before
    assert alter(bench, deletion(), deletion("bob", SHA_512)) == {"alice": "NONE", "bob": "NONE"}
    assert bench.image.users == {}


@pytest.mark.parametrize(
    ("alteration", "code"),
    [
        (deletion("alice", SHA_512), "RESOURCE_NOT_FOUND"),
        (deletion("carol"), "RESOURCE_NOT_FOUND"),
        (deletion("", SHA_256), "UNACCEPTABLE_CREDENTIAL"),
        (deletion("alice", 0), "UNSUPPORTED_SASL_MECHANISM"),
        (deletion("alice", 3), "UNSUPPORTED_SASL_MECHANISM"),
        (upsertion(""), "UNACCEPTABLE_CREDENTIAL"),
        (upsertion("alice", 3), "UNSUPPORTED_SASL_MECHANISM"),
        (upsertion(iterations=4095), "UNACCEPTABLE_CREDENTIAL"),
        (upsertion(iterations=16385), "UNACCEPTABLE_CREDENTIAL"),
        (upsertion("alice", SHA_512, 4095), "UNACCEPTABLE_CREDENTIAL"),
        (upsertion(salted=b""), "UNACCEPTABLE_CREDENTIAL"),
        (upsertion("a\nb"), "UNACCEPTABLE_CREDENTIAL"),
    ],
)
def test_alteration_that_cannot_be_is_refused_alone(alteration, code):
    bench = with_alice()
    before = bench.image.users["alice", SHA_256]
    assert alter(bench, alteration, upsertion("bob")) == {alteration.name: code, "bob": "NONE"}
    assert bench.image.users.keys() == {("alice", SHA_256), ("bob", SHA_256)}
    assert bench.image.users["alice", SHA_256] == before


@pytest.mark.parametrize(
    ("alterations", "code"),
    [
        ((deletion(), deletion()), "DUPLICATE_RESOURCE"),
        ((upsertion(), upsertion("alice", SHA_512)), "DUPLICATE_RESOURCE"),
        ((deletion(), upsertion("alice", SHA_512)), "DUPLICATE_RESOURCE"),
        ((upsertion(), upsertion(), upsertion()), "DUPLICATE_RESOURCE"),
        ((deletion("alice", SHA_512), upsertion()), "RESOURCE_NOT_FOUND"),
        ((upsertion(iterations=1), upsertion()), "UNACCEPTABLE_CREDENTIAL"),
    ],
)
def test_user_that_is_altered_twice_stays_as_it_is(alterations, code):
    bench = with_alice()
    assert alter(bench, *alterations, upsertion("bob")) == {"alice": code, "bob": "NONE"}
    assert len(bench.records) == 1


def test_levels_before_scram_refuse_it():
    assert alter(ActiveController(11), upsertion()) == {"alice": "NONE"}
    bench = ActiveController(10)
    assert alter(bench, upsertion(), deletion("bob")) == dict.fromkeys(
        ("alice", "bob"), "UNSUPPORTED_VERSION"
    )
    assert bench.records == []


def test_alteration_needs_alter_on_the_cluster():
    with pytest.raises(RequestError) as raised:
        alter(ActiveController(), upsertion(), may=lambda operation, *_: operation is not Operation.ALTER)
    assert raised.value.code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
