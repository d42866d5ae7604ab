"""Logins at registries: those of the environment go to the registry that it names."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable

import pytest

from barnabas_pipeline.commands.formats import registry_of
from barnabas_pipeline.formats.registry import ADDRESS, PASSWORD, TOKEN, USER, Registry

A, B = "http://a:8081", "http://b:8081"


@pytest.mark.parametrize(
    ("named", "url", "is_told"),
    [
        ("", A, True),
        (A, A, True),
        (A, f"{A}/path", True),
        (A, B, False),
        (A, "http://a:8082", False),
        (A, "https://a:8081", False),
    ],
)
def test_login_of_the_environment_goes_to_its_registry_only(named: str, url: str, is_told: bool) -> None:
    login = {ADDRESS: named, USER: "ann", PASSWORD: "s3cret"}
    assert Registry.at(url, environment=login).login == (("ann", "s3cret") if is_told else ("", ""))
    token = {ADDRESS: named, TOKEN: "t0k"}
    assert Registry.at(url, environment=token).token == ("t0k" if is_told else "")


def test_a_user_that_is_typed_is_for_the_registry_beside_it(set_environment: Callable[..., None]) -> None:
    for name, text in ((ADDRESS, A), (USER, "ann"), (PASSWORD, "s3cret"), (TOKEN, "")):
        set_environment(**{name: text})
    options = Namespace(registry_user="bob", registry_ca="", registry_cert="", registry_key="")
    assert registry_of(options, B).login == ("bob", "s3cret")
    assert Registry.at(B).login == ("bob", "s3cret"), "also later in the process"
    assert Registry.at(A).login == ("", "")


def test_an_address_with_a_password_is_in_no_text() -> None:
    registry = Registry.at("http://ann:s3cret@a:8081")
    assert "s3cret" not in repr(registry)
    assert registry.to_dict() == {"url": A}
