"""Everyday commands for any Kafka: topics, groups, settings, access, and diagnosis of connections.

The rule: a command is a module named here with a click command `COMMAND`, which is imported when it is run; this table
imports nothing, so that the start of a broker loads neither click nor the imports of commands.
"""

from __future__ import annotations

COMMANDS = {
    "produce": ("barnabas.commands.produce", "send records from the command line, files or standard input"),
    "consume": (
        "barnabas.commands.consume",
        "print records: from offsets or times, filtered, formatted, followed",
    ),
    "topics": ("barnabas.commands.topics", "list, describe, create, change and delete topics"),
    "groups": ("barnabas.commands.groups", "list and describe groups with their lag, reset offsets, delete"),
    "lag": ("barnabas.commands.lag", "show how far groups are behind, also as metrics"),
    "configs": ("barnabas.commands.configs", "show and change settings of topics, brokers, groups, ..."),
    "acls": ("barnabas.commands.acls", "list, create and delete ACLs"),
    "users": ("barnabas.commands.users", "users with passwords of SCRAM"),
    "tokens": ("barnabas.commands.tokens", "delegation tokens"),
    "quotas": ("barnabas.commands.quotas", "quotas of users, clients and addresses"),
    "transactions": ("barnabas.commands.transactions", "show transactions, find and abort those that hang"),
    "brokers": ("barnabas.commands.brokers", "brokers, log dirs, features, moves of replicas, elections"),
    "metadata": (
        "barnabas.commands.metadata",
        "metadata of a Kafka 4 cluster: from its log on disk, or its controllers",
    ),
    "registry": ("barnabas.commands.registry", "serve a schema registry that the cluster keeps, or ask one"),
    "http": (
        "barnabas.commands.http",
        "serve a REST API for produce, consume and administration of any cluster",
    ),
    "console": ("barnabas.console.command", "serve a console for browsers, of any cluster"),
    "mcp": ("barnabas.mcp.command", "give agents tools for a cluster, by the Model Context Protocol"),
    "profiles": (
        "barnabas.commands.profile_commands",
        "name clusters with their logins: list, create, use, edit",
    ),
    "completion": ("barnabas.commands.completion", "print completion for bash, zsh or fish"),
    "doctor": ("barnabas.commands.doctor", "find out why clients cannot work with a broker"),
}
"""Module and summary of each command, in the order of the help."""
