"""All cases, in their order: frames and tables by API, then behaviour, then random walks."""

from __future__ import annotations

from barnabas.tools.conformance import frames, rows, walks
from barnabas.tools.conformance.cases import Case
from barnabas.tools.conformance.suites import connections, fetching, new_groups, producing
from barnabas.tools.conformance.suites import groups as group_suites
from barnabas.tools.conformance.suites import topics as topic_suites
from barnabas.tools.conformance.suites import transactions as transaction_suites
from barnabas.tools.conformance.tables import (
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
from barnabas.tools.conformance.tables import new_groups as new_group_rows
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
