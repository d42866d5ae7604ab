"""Log dirs as `barnabas doctor` finds them: failed, nearly full, not told."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.client import ClientError
from barnabas.client.administration.cluster import LogDir
from barnabas.commands.findings import OK, PROBLEM, SKIPPED, Findings
from barnabas.commands.wellness import check_log_dirs


@pytest.mark.parametrize(
    ("total", "usable", "status", "words"),
    [
        (1000, 100, OK, "2 replicas"),
        (1000, 99, PROBLEM, "only 9 % of the disk are free"),
        (1000, 0, PROBLEM, "only 0 % of the disk are free"),
        (1000, 1000, OK, "2 replicas"),
        (0, 0, OK, "2 replicas"),
        (-1, -1, OK, "2 replicas"),
    ],
)
async def test_a_disk_is_nearly_full_where_less_than_a_tenth_is_free(
    total: int, usable: int, status: str, words: str
) -> None:
    result = Findings(lambda _: None)
    replicas: Any = ("a", "b")
    dirs = {7: [LogDir(7, "/full", total, usable, None, replicas), LogDir(7, "/free", 10, 9, None, ())]}
    await check_log_dirs(admin_of(dirs), result)
    assert [(finding.check, finding.subject, finding.status, finding.text) for finding in result.all] == [
        ("log dirs", "broker 7 /full", status, words),
        ("log dirs", "broker 7 /free", OK, "0 replicas"),
    ]
    assert [bool(finding.advice) for finding in result.all] == [status == PROBLEM, False]


async def test_a_dir_that_has_failed_and_a_broker_that_does_not_tell() -> None:
    result = Findings(lambda _: None)
    failed = LogDir(1, "/a", 1000, 1, ClientError("no"), ())
    await check_log_dirs(admin_of({1: [failed], 2: ClientError("refused")}), result)
    assert [(finding.subject, finding.status) for finding in result.all] == [
        ("broker 1 /a", PROBLEM),
        ("broker 2", SKIPPED),
    ]
    assert result.all[0].advice == "look at the disk and at the broker's log"


def admin_of(dirs: Any) -> Any:
    async def log_dirs() -> Any:
        return dirs

    return SimpleNamespace(log_dirs=log_dirs)
