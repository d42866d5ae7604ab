"""A registry of others: reached over TLS, with a certificate, a user or a token; and what is said where it is not."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

import pytest
import trio

from barnabas.registry.client_settings import PREFIX, RegistryAt, over
from barnabas.registry.errors import RegistryError
from tests.support.certificates import Signed, signed

Files = Callable[[str], str]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    """Return paths of certificates and keys, by name."""
    directory = tmp_path_factory.mktemp("certificates")
    ours, others = signed({"CN": "ours"}), signed({"CN": "others"})
    certificates: dict[str, Signed] = {
        "server": signed({"CN": "registry"}, ours),
        "elsewhere": signed({"CN": "x"}, ours, host="elsewhere.example", has_address=False),
        "me": signed({"CN": "me"}, ours),
        "stranger": signed({"CN": "stranger"}, others),
    }
    for name, certificate in {"ca": ours, "other-ca": others, **certificates}.items():
        (directory / f"{name}.pem").write_text(certificate.pem)
        (directory / f"{name}.key").write_text(certificate.key_pem)
        (directory / f"{name}.locked.key").write_text(certificate.encrypted_key_pem("opens"))
    return lambda name: str(directory / name)


@asynccontextmanager
async def registry(
    files: Files | None, *, name: str = "server", wants_certificate: bool = False, answer: bytes = b""
) -> AsyncIterator[tuple[str, list[bytes]]]:
    """Serve one that has no subjects, or answers so; yields host and port, and the heads of requests."""
    heads: list[bytes] = []
    content = answer or b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]"

    async def serve(stream: trio.abc.Stream) -> None:
        with suppress(trio.BrokenResourceError):
            async with stream:
                heads.append(bytes(await stream.receive_some(65536)))
                await stream.send_all(content)

    async with trio.open_nursery() as nursery:
        if files is None:
            starting: Callable[..., Awaitable[Any]] = partial(trio.serve_tcp, serve, 0, host="127.0.0.1")
        else:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=files("ca.pem"))
            context.load_cert_chain(files(f"{name}.pem"), files(f"{name}.key"))
            if wants_certificate:
                context.verify_mode = ssl.CERT_REQUIRED
            starting = partial(
                trio.serve_ssl_over_tcp, serve, 0, context, host="127.0.0.1", https_compatible=True
            )
        [listener] = await nursery.start(starting)
        bound = getattr(listener, "transport_listener", listener).socket
        yield f"127.0.0.1:{bound.getsockname()[1]}", heads
        nursery.cancel_scope.cancel()


def at(url: str, **options: str) -> RegistryAt:
    place = RegistryAt.of({PREFIX + name.replace("_", "."): text for name, text in options.items()}, url)
    assert place is not None
    return place


async def refusal(registry: RegistryAt, timeout_s: float = 10) -> str:
    client = registry.client()
    client._timeout_s = timeout_s
    with pytest.raises(RegistryError) as error:
        await client.subjects()
    return str(error.value)


async def test_a_certificate_of_its_own_authority_and_ours(files: Files) -> None:
    async with registry(files, wants_certificate=True) as (place, heads):
        mine = {"ssl_ca_location": files("ca.pem"), "ssl_certificate_location": files("me.pem")}
        url = f"https://{place}"
        plain = at(url, **mine, ssl_key_location=files("me.key"), basic_auth_user_info="ann:p:w")
        assert await plain.client().subjects() == []
        assert b"Authorization: Basic YW5uOnA6dw==" in heads[-1]
        locked = {"ssl_key_location": files("me.locked.key"), "ssl_key_password": "opens"}
        with_token = at(url, **mine, **locked, bearer_auth_token="t0k")
        assert await with_token.client().subjects() == []
        assert b"Authorization: Bearer t0k" in heads[-1]
        assert b"Basic" not in heads[-1]

        without = await refusal(at(url, ssl_ca_location=files("ca.pem")))
        assert without.endswith(
            "closed the connection without a response; it may require a certificate of the client"
        )


async def test_broker_user_is_told_to_the_brokers_own_registry_alone() -> None:
    async with registry(None) as (place, heads):
        url = f"http://{place}"
        logins = {
            "": {},
            "Basic YW5uOnBAc3M=": {"basic_auth_user_info": "ann:p@ss"},
            "Bearer t": {"bearer_auth_token": "t"},
        }
        for login, options in logins.items():
            assert await at(url, **options).client_of("bob", "secret").subjects() == []
            told = [line for line in heads[-1].split(b"\r\n") if line.startswith(b"Authorization")]
            assert told == ([f"Authorization: {login}".encode()] if login else []), "its own login or none"
        assert await at(f"http://ann:p%40ss@{place}").client_of("bob", "secret").subjects() == []
        assert b"Basic YW5uOnBAc3M=" in heads[-1]
        assert await RegistryAt(url, is_of_the_broker=True).client_of("bob", "x").subjects() == []
        assert b"Authorization: Basic Ym9iOng=" in heads[-1]
        assert await RegistryAt(url, is_of_the_broker=True).client().subjects() == []
        assert b"Authorization" not in heads[-1]


@pytest.mark.parametrize(
    ("above", "result"),
    [
        ({}, {"url": "https://a:8081/x", "user": "ann:x", "ca": "1"}),
        ({"url": "https://A:8081/y"}, {"url": "https://A:8081/y", "user": "ann:x", "ca": "1"}),
        ({"url": "https://bob@a:8081"}, {"url": "https://bob@a:8081", "user": "ann:x", "ca": "1"}),
        ({"url": "http://a:8081/x"}, {"url": "http://a:8081/x"}),
        ({"url": "https://a"}, {"url": "https://a"}),
        ({"url": "https://b:8081"}, {"url": "https://b:8081"}),
        ({"url": "https://b:8081", "user": "bob:y"}, {"url": "https://b:8081", "user": "bob:y"}),
        ({"user": "bob:y"}, {"url": "https://a:8081/x", "user": "bob:y", "ca": "1"}),
        ({"url": "nonsense:x"}, {"url": "nonsense:x"}),
    ],
)  # fmt: skip
def test_settings_of_one_registry_are_not_for_another(above: dict[str, str], result: dict[str, str]) -> None:
    names = {
        "url": "schema.registry.url",
        "user": "schema.registry.basic.auth.user.info",
        "ca": "schema.registry.ssl.ca.location",
    }
    below = {"url": "https://a:8081/x", "user": "ann:x", "ca": "1"}

    def settings(values: dict[str, str]) -> dict[str, str]:
        return {names[name]: text for name, text in values.items()}

    assert over(settings(below) | {"sasl.username": "u"}, settings(above)) == settings(result) | {
        "sasl.username": "u"
    }


async def test_whom_nobody_trusts_and_who_has_another_name(files: Files) -> None:
    async with registry(files) as (place, _):
        for options in ({}, {"ssl_ca_location": files("other-ca.pem")}):
            reason = await refusal(at(f"https://{place}", **options))
            assert reason.startswith(f"https://{place} cannot be reached: its certificate is not trusted (")
            assert reason.endswith("): name its CA")
        reason = await refusal(at(f"http://{place}"))
        assert reason == f"http://{place} closed the connection without a response"
    async with registry(files, name="elsewhere") as (place, _):
        assert "its certificate is of another name" in await refusal(
            at(f"https://{place}", ssl_ca_location=files("ca.pem"))
        )
    async with registry(None) as (place, _):
        assert "it does not speak TLS: http:// is expected" in await refusal(at(f"https://{place}"))


@pytest.mark.parametrize(
    ("answer", "options", "reason"),
    [
        ("401 x", {}, "{url} requires a login (401)"),
        ("401 x", {"basic_auth_user_info": "a:b"}, "{url} refused the login (401)"),
        ('401 x {"error_code": 40101, "message": "Unauthorized"}', {"bearer_auth_token": "t"},
         "{url} refused the login: Unauthorized (40101)"),
        ('403 x {"error_code": 40301, "message": "Denied"}', {}, "Denied (40301)"),
        ("403 x <html>", {}, "{url} responded to /subjects with status 403 (403)"),
        ("404 x <html>", {}, "{url} responded to /subjects with status 404: is it the address of a registry? (404)"),
        ("302 x", {}, "{url} responded to /subjects with status 302: is it the address of a registry? (302)"),
        ("200 x <html>", {}, "{url} is not a registry: its response to /subjects is not JSON"),
        ("503 x", {}, "{url} responded to /subjects with status 503 (503)"),
    ],
)  # fmt: skip
async def test_answers_that_are_none(answer: str, options: dict[str, str], reason: str) -> None:
    status, _, body = answer.partition(" x")
    content = body.strip().encode()
    head = f"HTTP/1.1 {status} x\r\nContent-Length: {len(content)}\r\n\r\n".encode()
    async with registry(None, answer=head + content) as (place, _):
        url = f"http://{place}"
        assert await refusal(at(url, **options)) == reason.format(url=url)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"url": "https://r", "ssl.ca.file": "x"}, r"schema.registry.ssl.ca.file is not a setting; there are: "),
        ({"url": "https://r", "ssl.ca.location": "/nowhere"}, r"schema.registry.ssl.ca.location '/nowhere'"),
        ({"url": "https://r", "ssl.certificate.location": "/no"}, r"schema.registry.ssl.certificate.location '/no'"),
        ({"url": "http://r", "ssl.ca.location": "x"}, r"schema.registry.ssl.ca.location needs an address with https"),
        ({"url": "http://r", "basic.auth.user.info": "ann"}, r"schema.registry.basic.auth.user.info is USER:PASSWORD"),
        ({"url": "http://r", "basic.auth.user.info": "a:b", "bearer.auth.token": "t"}, "exclude each other"),
        ({"url": "r:8081"}, "is not the address of a registry"),
    ],
)  # fmt: skip
def test_settings_that_make_no_sense(options: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RegistryAt.of({PREFIX + name: text for name, text in options.items()})
