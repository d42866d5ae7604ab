"""`barnabas doctor`: finds out why clients cannot use a broker, or the brokers that it advertises.

The rule: findings are printed immediately; the exit code is 1 if there is a problem.
"""

from __future__ import annotations

from typing import Any

import click
import trio

from barnabas.client import ClientError, Endpoint, open_client
from barnabas.client.admin import Admin
from barnabas.client.connection import open_connection
from barnabas.commands.connection import NAMES, Connecting, connecting_of, connection_options
from barnabas.commands.errors import explain
from barnabas.commands.findings import NOTE, OK, PROBLEM, SKIPPED, Finding, Findings
from barnabas.commands.listening import Seen, look_at, resolve, try_login
from barnabas.commands.output import Output, Table, cell
from barnabas.commands.wellness import (
    check_clock,
    check_controller,
    check_local_files,
    check_log_dirs,
    check_partitions,
    check_versions,
)
from barnabas.ending import DONE, FOUND
from barnabas.environment.terminal import counted, visible

FINDINGS = Table(
    "findings",
    {
        "check": "name, port, protocol, certificate, TLS, login, versions, advertised, controller, partitions, log dirs, "
        "clock, open files",
        "subject": "address, broker or partitions",
        "status": "ok, note, problem or skipped",
        "text": "text of the finding",
        "advice": "advice; null for none",
    },
)
ADVERTISE = (
    "clients go there after the first answer: start that broker, or set advertised.listeners (`--advertise`) to an "
    "address that they reach"
)
_MARKS = {OK: "ok", NOTE: "note", PROBLEM: "PROBLEM", SKIPPED: "-"}


@click.command("doctor")
@click.argument("address", required=False, metavar="[HOST:PORT,...]")
@click.option(
    "--write", is_flag=True, help="Also read the broker's clock: a topic is made for it, and deleted again."
)
@connection_options
def COMMAND(address: str | None, write: bool, **options: Any) -> int:  # noqa: N802
    """Find out why clients cannot work with a broker: names, ports, TLS, logins, listeners, partitions, clocks."""
    shared_options = {name: options[name] for name in NAMES}
    if address is not None:
        shared_options["bootstrap"] = address
    connecting = connecting_of(shared_options)
    output = Output(as_json=shared_options["as_json"])
    findings = Findings((lambda _: None) if output.as_json else _tell)
    trio.run(_examine, connecting, findings, write)
    if output.as_json:
        output.show(
            FINDINGS,
            [
                {
                    "check": finding.check,
                    "subject": finding.subject,
                    "status": finding.status,
                    "text": finding.text,
                    "advice": finding.advice or None,
                }
                for finding in findings.all
            ],
        )
        output.finish()
    else:
        problems = sum(finding.status == PROBLEM for finding in findings.all)
        print(counted(problems, "problem"))
    return FOUND if findings.has_problems else DONE


COMMAND.callback.tables = (FINDINGS,)  # type: ignore[union-attr]


def _tell(finding: Finding) -> None:
    line = f"{_MARKS[finding.status]:8}{finding.check}: {cell('', finding.subject)}: {cell('', finding.text)}"
    print(line, flush=True)
    if finding.advice:
        print(f"{'':8}-> {visible(finding.advice)}", flush=True)


async def _examine(connecting: Connecting, findings: Findings, writes: bool) -> None:
    """Check the addresses, and then the cluster through one that works."""
    works: list[Endpoint] = []
    for endpoint in connecting.bootstrap:
        seen = await look_at(endpoint, connecting.settings, findings)
        if (
            seen is not None
            and _fits(seen, connecting)
            and await try_login(endpoint, connecting.settings, findings)
        ):
            works.append(endpoint)
    if not works:
        return
    async with open_connection(works[0], connecting.settings) as connection:
        check_versions(connection, findings)
    for endpoint in works:
        addresses = [
            str(address[4][0]) for address in await trio.socket.getaddrinfo(endpoint.host, endpoint.port)
        ]
        check_local_files(endpoint, addresses, findings)
    async with open_client(works, connecting.settings) as client:
        await client.refresh()
        admin = Admin(client)
        for broker_id, endpoint in sorted(client.brokers.items()):
            await _check_advertised(broker_id, endpoint, works, connecting, findings)
        for name, check in (
            ("controller", check_controller),
            ("partitions", check_partitions),
            ("log dirs", check_log_dirs),
        ):
            await _try(name, check(admin, findings), findings)
        await _try("clock", check_clock(admin, findings, writes=writes), findings)


async def _try(name: str, check: Any, findings: Findings) -> None:
    """Run a check; it is skipped if the broker refuses the information."""
    try:
        await check
    except ClientError as error:
        findings.add(name, "cluster", SKIPPED, explain(error))


def _fits(seen: Seen, connecting: Connecting) -> bool:
    """Return whether a login can be tried with these settings."""
    credentials = connecting.settings.sasl
    if credentials is None:
        return seen.mechanisms is None
    return seen.mechanisms is not None and credentials.mechanism in seen.mechanisms


async def _check_advertised(
    broker_id: int, endpoint: Endpoint, asked: list[Endpoint], connecting: Connecting, findings: Findings
) -> None:
    """Tell if the address that a broker gives to clients cannot be used from here."""
    subject = f"broker {broker_id} at {endpoint}"
    quiet = Findings(lambda _: None)
    if endpoint.host in ("", "0.0.0.0", "::"):
        findings.add(
            "advertised",
            subject,
            PROBLEM,
            "no client can connect to this address",
            "set advertised.listeners to a name that clients can resolve",
        )
        return
    if not await resolve(endpoint, quiet):
        findings.add(
            "advertised",
            subject,
            PROBLEM,
            quiet.all[-1].text,
            "set advertised.listeners (`--advertise`) to a name that clients can resolve",
        )
        return
    if endpoint in asked:
        findings.add("advertised", subject, OK, "it is the address that was asked")
        return
    seen = await look_at(endpoint, connecting.settings, quiet)
    problems = [finding for finding in quiet.all if finding.status == PROBLEM]
    if seen is None or problems:
        text = problems[0].text if problems else "it cannot be reached"
        findings.add(
            "advertised",
            subject,
            PROBLEM,
            text,
            ADVERTISE,
        )
        return
    try:
        async with open_connection(endpoint, connecting.settings):
            findings.add("advertised", subject, OK, "it can be reached")
    except ClientError as error:
        findings.add(
            "advertised", subject, PROBLEM, explain(error), "clients go there after the first answer"
        )
