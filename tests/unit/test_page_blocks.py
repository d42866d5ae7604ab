"""Every block of code in every page is run, served, parsed or set as it is printed, or is listed here with a reason."""

from __future__ import annotations

import argparse
import re
import shlex
import subprocess
from importlib import import_module

import click
import pytest

from barnabas.cli import TOOLS, _parsers
from barnabas.commands import COMMANDS
from barnabas.commands.program import Root
from barnabas.config.loading import BrokerConfig
from tests.support.pages import ROOT, Block, blocks, typed

PRINTED = ("docs/reference/", "docs/conformance/", "docs/gallery.md", "CHANGELOG.md")
"""Pages, or folders of them, that are printed from tables."""
RUN_BY = {
    ("docs/how-to/seeds.md", "yaml"): "tests/e2e/test_page_servers.py",
    ("docs/how-to/faults.md", "yaml"): "tests/e2e/test_page_servers.py",
}
"""Tests that run the fenced blocks of a page in a language."""
FOLLOWED_BY = {
    "README.md": "tests/e2e/test_pages.py",
    "docs/tutorial.md": "tests/e2e/test_pages.py",
    "docs/coming-from.md": "tests/e2e/test_pages.py",
    "docs/how-to/http.md": "tests/e2e/test_pages.py",
    "docs/how-to/registry.md": "tests/e2e/test_pages.py",
    "docs/how-to/mirror.md": "tests/pipeline/test_mirror_crashes.py",
}
"""Tests that type the sessions of a page."""
FRAGMENTS = {
    ("docs/how-to/quotas.md", "console"): "Kafka's tool, whose requests `make compare` sends",
    (
        "docs/how-to/tiered-storage.md",
        "console",
    ): "Kafka's tools, whose requests compat/tiered/answers.py sends",
    ("docs/how-to/tiered-storage.md", "properties"): "settings of tests/e2e/test_tiered.py",
    ("ARCHITECTURE.md", ""): "a picture",
    ("clients/go/README.md", "go"): "what clients/go/tests does",
    ("clients/java/README.md", "xml"): "lines of a pom.xml",
    ("clients/rust/README.md", "toml"): "lines of a Cargo.toml",
    ("docs/how-to/test-with-security.md", "go"): "what clients/go/tests does",
    ("docs/how-to/test-with-security.md", "java"): "what its KafkaSecurityTest does",
    ("docs/how-to/test-with-security.md", "js"): "what index.test.js does",
    ("docs/how-to/test-with-security.md", "rust"): "what tests/broker.rs does",
    ("docs/how-to/agents.md", "json"): "settings of editors, whose command tests/e2e/test_mcp.py runs",
    ("clients/python/README.md", "python"): "what tests/e2e/test_client_distribution.py does",
    ("clients/java/README.md", "java"): "what its KafkaBrokerTest does",
    ("clients/node/README.md", "js"): "what index.test.js does",
    ("clients/rust/README.md", "rust"): "what tests/broker.rs does",
}
"""Fenced blocks that are part of something."""
FOREIGN = {
    "kafka-acls.sh": "Kafka's",
    "kafka-cluster.sh": "Kafka's",
    "kafka-configs.sh": "Kafka's",
    "kafka-features.sh": "Kafka's",
    "kafka-delegation-tokens.sh": "Kafka's",
    "kafka-client-metrics.sh": "Kafka's",
    "spark-submit": "Spark's",
    "curl": "asks what a test of the control API or the console asks",
    "podman": "of deploy/",
    "docker": "of deploy/",
    "dpkg": "tried by make try-release",
    "systemctl": "of deploy/",
    "pip": "an installation",
    "python3": "an installation",
    "tcpdump": "a capture",
    "wsl": "of Windows",
    "eval": "of a shell",
    "source": "of a shell",
    "git": "a checkout",
    "go": "an installation",
    "npm": "an installation",
    "cd": "a place",
    "sudo": "of a system",
    "apt-get": "of a system",
    "kinit": "MIT's",
    "kadmin.local": "MIT's",
    "tar": "an archive",
    "install": "of a system",
    "useradd": "of a system",
    "rm": "of a system",
    "for": "of a shell",
    "export": "of a shell",
    "kcat": "tests/e2e/test_pages.py",
}
"""Programs of others that pages name, and where they are tried or why they are not."""
SETTING = re.compile(r"[a-z][\w.-]*=")
OF_TAP = re.compile(r"\d\d:\d\d:\d\d\.\d{3} #")
OWN = ("barnabas", "barnabas-pipeline", "make", "python")
LISTED = {
    ("CONTRIBUTING.md", "make test"): "targets of make with what they do, in columns",
    ("bench/README.md", "make bench"): "the same",
    ("codegen/README.md", "parse "): "steps in columns",
    (
        "compat/",
        "",
    ): "programs of the compatibility suite: test_docs looks whether modules and targets are there",
    (
        "docs/design/",
        "",
    ): "targets of make, and code of the sources: test_docs and test_architecture look at both",
    ("schemas/README.md", "api/"): "folders",
    ("findings/README.md", "make findings"): "needs registries",
    ("docs/coming-from.md", "[(6,), ()]"): "printed by its program, which test_examples compares",
    ("docs/how-to/acls.md", "Principal = "): "a line of the log of an authorizer",
    ("docs/how-to/bug-report.md", "16:40"): "printed by a tap, with times",
    ("docs/how-to/cluster.md", "cat >broker.properties"): "run by make compat-cluster (the check as_printed)",
    ("docs/how-to/cluster.md", "cat >controller.properties"): "run by tests/e2e/test_quorum.py",
    ("docs/how-to/cluster.md", "for host"): "names machines",
    ("docs/how-to/cluster.md", "receives"): "a reckoning",
    ("docs/how-to/cluster.md", "until it"): "a reckoning",
    ("docs/how-to/commands.md", "default ="): "a file of profiles",
    ("docs/how-to/operate-the-pipeline.md", "ok  "): "printed by tests/pipeline/test_doctor.py",
    ("docs/how-to/operate-the-pipeline.md", "views -> "): "printed by tests/pipeline/test_plan.py",
    ("docs/how-to/operate-the-pipeline.md", "views-0 offset"): "printed by tests/pipeline/test_lineage.py",
    ("docs/how-to/operate-the-pipeline.md", "rule_files:"): "a part of Prometheus' settings",
    ("docs/how-to/load-many-topics.md", "defaults:"): "a file of topics: tests/pipeline reads one like it",
    ("docs/how-to/load-many-topics.md", "data loss"): "printed of a loss",
    ("docs/how-to/load-many-topics.md", '{"event"'): "lines of a log",
    ("docs/how-to/pipeline-formats.md", "[project"): "of a package of the reader's",
    ("docs/how-to/pipeline-jobs.md", "[project"): "of a package of the reader's",
    (
        "docs/how-to/pipeline-formats.md",
        '{"name"',
    ): "a schema that tests/pipeline/test_format_schemas.py reads",
    ("docs/how-to/current-rows.md", "barnabas-pipeline load"): "names a schema's file of the reader's",
    (
        "docs/how-to/test-your-application.md",
        '{"bootstrap_servers"',
    ): "a ready line, whose fields test_testing reads",
    ("docs/how-to/test-your-application.md", "barnabas is ready"): "a ready line",
    ("docs/how-to/test-your-client.md", "for version"): "runs the reader's tests",
    ("docs/how-to/trio-client.md", ""): "printed by its programs, which test_examples compares",
    ("docs/how-to/listeners.md", "podman"): "of deploy/",
    ("docs/how-to/spark-cluster.md", "spark.speculation"): "settings of Spark",
    ("docs/metrics.md", "scrape_configs"): "of Prometheus",
    ("docs/metrics.md", "org_apache"): "printed by the endpoint",
    ("docs/pipeline.md", "spark ="): "part of a program",
    ("docs/pipeline.md", "load_catalog"): "part of a program",
    ("docs/pipeline.md", "lake/"): "folders",
    ("docs/pipeline.md", '{"name"'): "a schema that tests/pipeline reads",
}
"""Blocks that are neither commands nor settings, by page (or folder) and beginning."""
QUOTED = re.compile(r"""'[^']*'|["][^"]*["]""")


def pages() -> list[str]:
    listed = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True)
    return [page for page in listed.stdout.split() if not page.startswith(PRINTED) and (ROOT / page).exists()]


BLOCKS = [block for page in pages() for block in blocks(page)]
INDENTED = [block for block in BLOCKS if not block.language and not block.is_session]


def reason_of(block: Block) -> str | None:
    """Return why a block is listed; None where it is not."""
    return next(
        (
            reason
            for (page, beginning), reason in LISTED.items()
            if block.page.startswith(page) and block.lines[0].startswith(beginning)
        ),
        None,
    )


def settings_of(block: Block) -> dict[str, str]:
    """The settings of a block, of a broker or of a client."""
    lines = [typed(line) for line in block.lines if SETTING.match(line)]
    return dict(re.split(r"\s*=\s*", line, maxsplit=1) for line in lines)


def named(block: Block) -> str:
    return f"{block.page}: {block.lines[0][:40]}"


REST = [block for block in INDENTED if reason_of(block) is None and block.page != "ARCHITECTURE.md"]


# --- each block is of a kind --------------------------------------------------------------------------------------


def test_each_fenced_block_is_run_by_a_test_or_listed() -> None:
    fenced = {(block.page, block.language) for block in BLOCKS if block.language and not block.is_example}
    assert fenced - {*RUN_BY, *FRAGMENTS} == set()
    assert {*RUN_BY} - fenced == set()
    for (page, _), test in RUN_BY.items():
        assert page in (ROOT / test).read_text(), (page, test)


def test_each_session_is_typed_by_a_test() -> None:
    with_sessions = {block.page for block in BLOCKS if block.is_session and block.language == ""}
    assert with_sessions == {*FOLLOWED_BY}
    for page, test in FOLLOWED_BY.items():
        assert page in (ROOT / test).read_text(), (page, test)


def test_each_line_of_commands_has_a_program_that_is_known() -> None:
    unknown = [
        f"{block.page}: {line}"
        for block in REST
        for line in block.lines
        if not re.match(f"#|{SETTING.pattern}|{OF_TAP.pattern}", line)
        and program_of(line) not in {*OWN, *FOREIGN}
    ]
    assert unknown == []


def test_each_row_of_the_list_is_needed() -> None:
    unused = [
        key
        for key in LISTED
        if not any(block.page.startswith(key[0]) and block.lines[0].startswith(key[1]) for block in INDENTED)
    ]
    assert unused == []


def program_of(line: str) -> str:
    return re.sub(r"^(?:[A-Z_]+=\S+ )*(?:\S*/)?", "", typed(line)).split()[0]


# --- settings ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("block", [block for block in REST if settings_of(block)], ids=named)
def test_settings_of_pages_are_settings(block: Block) -> None:
    pairs = settings_of(block)
    config = BrokerConfig(pairs, dict.fromkeys(pairs, block.page))
    unknown = {
        name
        for name in config.unknown
        if not name.startswith(("listener.name.", "ssl.", "sasl.", "security."))
    }
    assert unknown == set()


# --- commands ---------------------------------------------------------------------------------------------------


def own_commands() -> list[tuple[str, str]]:
    """Commands of ours in blocks and in sessions, and the page of each."""
    commands = []
    for block in BLOCKS:
        lines = (
            [line[2:] for line in block.lines if line.startswith("$ ")] if block.is_session else block.lines
        )
        for line in lines if not block.language else ():
            bare = QUOTED.sub(lambda quoted: "_" * len(quoted[0]), typed(line))
            first = re.split(r"\s(?:\||&&|&|>|2>|<)(?:\s|$)|;\s", bare)[0]
            text = typed(line)[: len(first)].strip()
            if re.match(r"barnabas [a-z]", text) and not re.match(r"barnabas (?:\w+ )?is ready", text):
                commands.append((block.page, text))
    return commands


@pytest.mark.parametrize(("page", "command"), sorted(set(own_commands())), ids=str)
def test_a_command_of_a_page_is_understood_as_it_is_printed(page: str, command: str) -> None:
    """Those of the pipeline, with parsers that need Spark, have options that test_docs looks for."""
    parse([word for word in shlex.split(command)[1:] if word != "..."])


def parse(words: list[str]) -> None:
    """Have the parser of a command take its words, without running it."""
    name, *arguments = words
    if name in COMMANDS:
        group: click.Command = Root()
        context = click.Context(group, info_name="barnabas")
        arguments = words
        while isinstance(group, click.Group) and not (
            group.invoke_without_command and arguments[0][0] == "-"
        ):
            word, command, arguments = group.resolve_command(context, arguments)
            assert command is not None
            context, words = click.Context(command, parent=context, info_name=word), arguments
            if not isinstance(command, click.Group):
                break
            group = command
        try:
            command.make_context(word, words, parent=context.parent)
        except click.BadParameter as error:
            if "does not exist" not in error.message:  # which a file of the reader's does
                raise
        except click.exceptions.Exit:  # of --help
            pass
        return
    parser = _parsers()["serve"][1]() if name == "serve" else import_module(TOOLS[name][0]).parser()
    parser.parse_args(arguments)


def test_a_command_that_is_not_understood_is_noticed() -> None:
    for words in (["topics", "create"], ["topics", "create", "a", "--partitions", "x"], ["lag", "--nothing"]):
        with pytest.raises(click.UsageError):
            parse(words)
    for words in (["serve", "--workers", "x"], ["log", "nothing"], ["tap", "--nothing"]):
        with pytest.raises((SystemExit, argparse.ArgumentError)):
            parse(words)
