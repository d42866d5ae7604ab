"""SCRAM credentials as the command line names them: what each part means, and which parts make no sense."""

from base64 import b64encode

import pytest

from barnabas.security import scram
from barnabas.security.scram import SCRAM_SHA_256, SCRAM_SHA_512
from barnabas.security.scram_options import parse_credential

RANDOM = b"random salt of 24 bytes."
SALT = b"a salt of its own"
SALTED = scram.salted_password(SCRAM_SHA_256, "secret", SALT, 4096)


def text_of(data: bytes) -> str:
    return b64encode(data).decode()


@pytest.mark.parametrize("mechanism", [SCRAM_SHA_256, SCRAM_SHA_512])
def test_password_is_salted_randomly_with_enough_iterations(mechanism):
    parsed = parse_credential(f" {mechanism.name}=[name=alice,password=secret] ", RANDOM)
    assert (parsed.user, parsed.mechanism) == ("alice", mechanism.name)
    assert parsed.credential == scram.credential(mechanism, "secret", RANDOM, mechanism.iterations_min)


@pytest.mark.parametrize(
    ("quoted", "password"),
    [
        ("secret", "secret"), ('"secret"', "secret"), ("se=cret", "se=cret"), ('"secret', '"secret'),
        ('secret"', 'secret"'), ('"', '"'), ('""secret""', '"secret"'), ("'secret'", "'secret'"), ("asa", "asa"),
    ],
)  # fmt: skip
def test_quotes_around_a_value_do_not_belong_to_it(quoted, password):
    parsed = parse_credential(f"SCRAM-SHA-256=[password={quoted}, name=alice]", RANDOM)
    assert parsed.credential == scram.credential(SCRAM_SHA_256, password, RANDOM, 4096)


def test_a_salt_and_iterations_that_are_given_are_taken():
    parsed = parse_credential(
        f"SCRAM-SHA-256=[name=a,password=p,salt={text_of(SALT)},iterations=5000]", RANDOM
    )
    assert parsed.credential == scram.credential(SCRAM_SHA_256, "p", SALT, 5000)


def test_a_salted_password_is_the_credential_of_its_password():
    parsed = parse_credential(
        f"SCRAM-SHA-256=[name=a,saltedpassword={text_of(SALTED)},salt={text_of(SALT)}]", RANDOM
    )
    assert parsed.credential == scram.credential(SCRAM_SHA_256, "secret", SALT, 4096)


@pytest.mark.parametrize("iterations", [4096, 16384])
def test_the_bounds_of_iterations_are_allowed(iterations):
    parsed = parse_credential(f"SCRAM-SHA-256=[name=a,password=p,iterations={iterations}]", RANDOM)
    assert parsed.credential.iterations == iterations


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SCRAM-SHA-1=[name=a,password=secret]", "begins with one of"),
        ("SCRAM-SHA-256=name=a,password=secret", "a list in brackets"),
        ("SCRAM-SHA-256=[name=a,password=secret", "a list in brackets"),
        ("SCRAM-SHA-256=name=a,password=secret]", "a list in brackets"),
        ("SCRAM-SHA-256=[password=secret]", "a name is missing"),
        ("SCRAM-SHA-256=[name=,password=secret]", "a name is missing"),
        ("SCRAM-SHA-256=[name=a]", "needs a password or a saltedpassword"),
        ("SCRAM-SHA-256=[name=a,password=secret,saltedpassword=c2VjcmV0]", "and not both"),
        ("SCRAM-SHA-256=[name=a,saltedpassword=c2VjcmV0]", "needs its salt"),
        ("SCRAM-SHA-256=[name=a,password=secret,salt=secret]", "salt is not in base64"),
        ("SCRAM-SHA-256=[name=a,password=secret,salt=]", "salt is not in base64"),
        ("SCRAM-SHA-256=[name=a,password=secret,iterations=4095]", "are from 4096 to 16384"),
        ("SCRAM-SHA-256=[name=a,password=secret,iterations=16385]", "are from 4096 to 16384"),
        ("SCRAM-SHA-256=[name=a,password=secret,iterations=secret]", "iterations is not a number"),
        ("SCRAM-SHA-256=[name=a,secret]", "the parts in brackets"),
        ("SCRAM-SHA-256=[name=a,password=x,secret=y]", "the parts in brackets"),
    ],
)
def test_senseless_option_is_refused_without_showing_a_password(text, message):
    with pytest.raises(ValueError, match=message) as refused:
        parse_credential(text, RANDOM)
    assert "=secret" not in str(refused.value)
    assert "c2VjcmV0" not in str(refused.value)
