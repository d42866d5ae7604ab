"""All cases, in their order: frames and tables by API, then behaviour, then random walks."""

from __future__ import annotations

from barnabas.conformance import frames, rows, walks
from barnabas.conformance.cases import Case
from barnabas.conformance.suites import connections, fetching, new_groups, producing
from barnabas.conformance.suites import groups as group_suites
from barnabas.conformance.suites import topics as topic_suites
from barnabas.conformance.suites import transactions as transaction_suites
from barnabas.conformance.tables import (
    access,
    cluster,
    groups,
    log_offsets,
    metadata,
    odd_entries,
    partitions,
    records,
    settings,
    topics,
    transactions,
)
from barnabas.conformance.tables import new_groups as new_group_rows
from barnabas.wire import registry

TABLES = (
    cluster, metadata, topics, partitions, records, odd_entries, log_offsets, groups, new_group_rows, transactions,
    settings, access,
)  # fmt: skip
SUITES = (connections, topic_suites, producing, fetching, group_suites, new_groups, transaction_suites)


def all_cases(*, random_walks: int = 0) -> list[Case]:
    """Return every case; ids are unique."""
    by_api = [*frames.cases(), *(case for table in TABLES for case in rows.cases_of(table.rows()))]
    by_api.sort(key=lambda case: registry.key_of(case.group))
    behaviour = [case for suite in SUITES for case in suite.cases()]
    return [*by_api, *behaviour, *walks.cases(random_walks)]
