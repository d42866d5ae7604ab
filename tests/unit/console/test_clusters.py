"""Several clusters in one console: addresses, sessions and rights of each, and what the command says of wrong names."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
from click.testing import CliRunner

from barnabas.client import parse_bootstrap
from barnabas.console.command import COMMAND
from barnabas.console.server import ConsoleServer
from barnabas.console.target import Cluster, Target
from barnabas.network.visitors import Address
from tests.support.console import Visitor, console_beside


def _at(bootstrap: str, *mechanisms: str) -> Cluster:
    target = Target(tuple(parse_bootstrap(bootstrap)), mechanisms)
    return Cluster(lambda: target)


async def test_clusters_have_addresses_and_sessions_of_their_own(tmp_path: Path) -> None:
    async with console_beside(tmp_path) as console, trio.open_nursery() as nursery:
        await console.make_topic("t")
        clusters = {
            "shop": _at(console.bootstrap),
            "gone": _at("127.0.0.1:1"),
            "login": _at(console.bootstrap, "PLAIN"),
        }
        server = ConsoleServer(Address("127.0.0.1", 0), clusters)
        await nursery.start(server.run)
        visitor = Visitor(server.url)
        for path, status, where in (
            ("/", 307, "/clusters/shop/"), ("/clusters/gone", 307, "/clusters/gone/"), ("/clusters/none/", 404, None),
            ("/api/topics", 404, None), ("/clusters/shop/", 200, None), ("/clusters/shop/js/main.js", 200, None),
            ("/clusters/shop/../server.py", 404, None),
        ):  # fmt: skip
            answer = await visitor.ask("GET", path)
            assert (answer.status, answer.headers.get("location")) == (status, where), path
        foreign = await visitor.ask("GET", "/", headers={"Host": "evil.example"})
        assert foreign.status == 403
        session = await visitor.ask("GET", "/clusters/shop/api/session")
        assert "; Path=/clusters/shop/; HttpOnly" in session.headers["set-cookie"]
        assert (session.json["cluster"], session.json["clusters"]) == ("shop", ["shop", "gone", "login"])
        visitor.cookie, visitor.csrf = session.headers["set-cookie"].partition(";")[0], session.json["csrf"]
        assert [row["name"] for row in (await visitor.get("/clusters/shop/api/topics"))["rows"]] == ["t"]
        await visitor.do("POST", "/clusters/shop/api/topics", {"name": "u"})
        for path, status in (("gone/api/topics", 401), ("login/api/topics", 401)):
            assert (await visitor.ask("POST", f"/clusters/{path}", {"name": "v"})).status == status, path
        assert (await visitor.ask("GET", "/clusters/gone/api/topics")).status == 503
        assert (await visitor.ask("GET", "/clusters/login/api/topics")).status == 401
        nursery.cancel_scope.cancel()


async def test_numbers_of_a_cluster_are_kept_from_the_start_on(tmp_path: Path) -> None:
    async with console_beside(tmp_path, keeps_history=True) as console:
        first = await console.visitor()
        samples = (await first.get("/api/history"))["samples"]
        other = await console.visitor()
        assert (await other.get("/api/history"))["samples"][0] == samples[0]
        metrics = (await other.get("/api/metrics/history"))["samples"]
        assert any("connection" in name for name in metrics[0]["sums"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--cluster", "a b=x:1"], "--cluster a b=x:1: each has a name of its own, of up to 60 letters"),
        (["--cluster", "a=x:1", "--cluster", "a=y:1"], "--cluster a=y:1: each has a name of its own"),
        (
            ["--cluster", "a=x:1", "--connect", "b/c=http://x"],
            "--connect b/c=http://x: there is no --cluster b",
        ),
        (
            ["--cluster", "a=x:1", "--connect", "a/c=x"],
            "--connect: 'x' is not the address of a Kafka Connect worker",
        ),
        (
            ["--connect", "http://u:secret@x:0"],
            "--connect: 'http://x:0' is not the address of a Kafka Connect worker",
        ),
        ([f"--cluster=c{number}=x:1" for number in range(33)], "--cluster: up to 32 of them"),
        (["--cluster", "shop"], "has no profile 'shop'"),
        (["--cluster", "a=x:y"], "x:y"),
    ],
)
def test_clusters_that_are_wrong_are_named(options: list[str], message: str, tmp_path: Path) -> None:
    result = CliRunner(env={"XDG_CONFIG_HOME": str(tmp_path)}).invoke(
        COMMAND, ["--listen", "127.0.0.1:0", *options]
    )
    assert result.exit_code != 0
    assert message in result.output + str(result.exception)


def test_default_profile_is_not_of_clusters_by_address(tmp_path: Path) -> None:
    (tmp_path / "barnabas").mkdir()
    file = tmp_path / "barnabas" / "profiles.toml"
    file.write_text('default = "p"\n[p]\nbootstrap.servers = "p:1"\nsecurity.protocol = "WRONG"\n')
    runner = CliRunner(env={"XDG_CONFIG_HOME": str(tmp_path)})
    taken = runner.invoke(COMMAND, ["--listen", "x", "--cluster", "a=x:1"])
    refused = runner.invoke(COMMAND, ["--listen", "x", "--cluster", "p"])
    file.write_text('[p]\nbootstrap.servers = "p:1"\nconnect.urls = "a=http://c:8083, b=nonsense"\n')
    connects = runner.invoke(COMMAND, ["--listen", "x", "--cluster", "p"])
    assert "--connect: 'nonsense' is not the address of a Kafka Connect worker" in connects.output
    assert "WRONG" not in taken.output
    assert "WRONG" in refused.output
