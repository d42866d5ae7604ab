"""Kafka's own command line tools, run against a cluster.

The rule: a tool that ends with an error, or lacks an expected text in its output, is a finding.
"""

from __future__ import annotations

import subprocess

from compat.cluster.nodes import ZOOKEEPER_SHELL, Brokers, ClusterError
from compat.kafka import release, tool_command

TOOL_S = 90


def run(
    cluster: Brokers,
    name: str,
    *arguments: str,
    stdin: str = "",
    expect: str = "",
    at: str = "",
    controllers: str = "",
) -> str:
    """Run a tool with the cluster's addresses, or at one broker's, or at `controllers`; returns its output.

    Raises ClusterError.
    """
    if name == ZOOKEEPER_SHELL:
        words = ["-server", cluster.zookeeper_connect, *arguments]
    else:
        where = ["--bootstrap-server", at or cluster.bootstrap]
        if controllers:
            where = ["--bootstrap-controller", controllers]
        # kafka-cluster has its action first, and its options after it.
        words = [arguments[0], *where, *arguments[1:]] if name == "cluster" else [*where, *arguments]
    command = tool_command(release(cluster.version), name, *words)
    try:
        done = subprocess.run(
            command, input=stdin, capture_output=True, text=True, check=False, timeout=TOOL_S
        )
    except subprocess.TimeoutExpired as error:
        raise ClusterError(
            f"{name} {' '.join(arguments)} has not ended in {TOOL_S} s: {error.stdout!r}"
        ) from None
    output = done.stdout + done.stderr
    if done.returncode:
        raise ClusterError(f"{name} {' '.join(arguments)} ended with {done.returncode}: {output[-1500:]}")
    if expect not in output:
        raise ClusterError(f"{name} {' '.join(arguments)} does not say {expect!r}: {output[-1500:]}")
    return output
