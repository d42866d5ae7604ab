"""The summary as text and as JSON."""

from __future__ import annotations

from typing import Any

from barnabas.environment.terminal import counted
from barnabas.tools.inspection.errors import code_name
from barnabas.tools.tap.findings import findings
from barnabas.tools.tap.summary import CLIENTS_MAX, Client, Summary


def as_text(summary: Summary) -> list[str]:
    """Return the summary as lines."""
    lines = []
    for client in summary.clients():
        identity = ", ".join((*sorted(client.software), *(f"user {user}" for user in sorted(client.users))))
        lines.append(f"{client.name}{f' ({identity})' if identity else ''}")
        lines.append(
            f"  {counted(client.count, 'request')} on "
            f"{counted(client.connections, 'connection')} in {client.seconds:.1f} s: {_apis(client)}"
        )
        if client.batches:
            lines.append(
                f"  produced {counted(client.records, 'record')} in "
                f"{counted(client.batches, 'batch', 'batches')}, {client.produced_bytes:,} bytes"
            )
        if client.fetches:
            lines.append(
                f"  fetched {client.fetched_bytes:,} bytes in "
                f"{counted(client.fetches, 'fetch', 'fetches')}, {client.empty_fetches} empty"
            )
        if client.commits:
            lines.append(
                f"  committed {counted(client.commits, 'time')}, {client.commits / client.seconds:.1f} per second"
            )
        slow = sorted(client.latencies.items(), key=lambda item: -item[1].max_ms)[:3]
        if slow:
            shown = ", ".join(
                f"{api} {latency.total_ms / latency.count:.1f} ms, at most {latency.max_ms:.1f}"
                for api, latency in slow
            )
            lines.append(f"  latency: {shown}")
        if client.errors:
            shown = ", ".join(
                f"{code_name(code)} to {api} {count}" for (api, code), count in client.errors.most_common(5)
            )
            lines.append(f"  errors: {shown}")
        lines += [
            f"  unusual: {finding.name}: {finding.text}; {finding.reason}" for finding in findings(client)
        ]
    if summary.left_out:
        left_out = counted(summary.left_out, "event of further clients is", "events of further clients are")
        lines.append(f"{left_out} not counted: there are {CLIENTS_MAX}")
    return lines or ["no clients"]


def _apis(client: Client) -> str:
    by_api: dict[str, list[tuple[int, int]]] = {}
    for (api, version), count in client.requests.items():
        by_api.setdefault(api, []).append((version, count))
    ordered = sorted(by_api.items(), key=lambda item: -sum(count for _, count in item[1]))
    return ", ".join(
        f"{api}{' ' + '+'.join(f'v{version}' for version, _ in sorted(counts)) if counts[0][0] >= 0 else ''} "
        f"{sum(count for _, count in counts)}"
        for api, counts in ordered
    )


def as_json(summary: Summary) -> list[dict[str, Any]]:
    """Return the summary as JSON, an object for each client."""
    return [
        {
            "type": "client",
            "client_id": client.name,
            "software": sorted(client.software),
            "users": sorted(client.users),
            "seconds": round(client.seconds, 3),
            "connections": client.connections,
            "requests": [
                {"api": api, "version": version, "count": count}
                for (api, version), count in sorted(client.requests.items())
            ],
            "latency_ms": {
                api: {
                    "count": latency.count,
                    "mean": round(latency.total_ms / latency.count, 3),
                    "max": round(latency.max_ms, 3),
                }
                for api, latency in sorted(client.latencies.items())
            },
            "errors": [
                {"api": api, "code": code, "name": code_name(code), "count": count}
                for (api, code), count in sorted(client.errors.items())
            ],
            "unanswered": client.unanswered,
            "produced": {
                "batches": client.batches,
                "records": client.records,
                "bytes": client.produced_bytes,
                "repeated_batches": client.repeated_batches,
            },
            "fetched": {
                "fetches": client.fetches,
                "empty": client.empty_fetches,
                "tiny": client.tiny_fetches,
                "bytes": client.fetched_bytes,
            },
            "commits": client.commits,
            "unusual": [finding._asdict() for finding in findings(client)],
        }
        for client in summary.clients()
    ]
