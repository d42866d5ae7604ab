"""A real browser, a real broker with its console, and stock clients beside them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from playwright.sync_api import Browser, BrowserContext, Locator, Page, expect, sync_playwright

from barnabas.testing.running import import_path

ROOT = Path(__file__).resolve().parents[2]
AXE = ROOT / ".tools" / "browser" / "node_modules" / "axe-core" / "axe.min.js"
PICTURES = ROOT / "docs" / "console"
BROWSERS = (os.environ.get("BARNABAS_BROWSER", ""), "chromium", "chromium-browser", "google-chrome")
SECONDS_MAX = 20
expect.set_options(timeout=SECONDS_MAX * 1000)


@dataclass
class Served:
    """A broker process with its console."""

    process: subprocess.Popen[str]
    bootstrap: str
    url: str
    registry_url: str
    arguments: list[str]

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(SECONDS_MAX)
        assert self.process.stdout is not None
        self.process.stdout.close()

    @cached_property
    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap})

    def create(self, name: str, partitions: int = 1, **config: str) -> None:
        settings = {key.replace("_", "."): value for key, value in config.items()}
        for future in self.admin.create_topics([NewTopic(name, partitions, 1, config=settings)]).values():
            future.result()

    def produce(self, topic: str, *records: Any) -> None:
        """Append records: values, or (key, value, headers)."""
        producer = Producer({"bootstrap.servers": self.bootstrap})
        for record in records:
            key, value, headers = record if isinstance(record, tuple) else (None, record, None)
            producer.produce(topic, value, key=key, headers=headers)
        assert producer.flush(SECONDS_MAX) == 0

    def produce_avro(self, topic: str, schema: str, *values: Any) -> None:
        """Append values by a schema of Avro, as Confluent's serialiser writes them."""
        with SchemaRegistryClient({"url": self.registry_url}) as client:
            serialize = AvroSerializer(client, schema)
            context = SerializationContext(topic, MessageField.VALUE)
            self.produce(topic, *(serialize(value, context) for value in values))

    def consume(self, group: str, topic: str, count: int) -> None:
        """Read and commit so many records as a group."""
        settings = {"bootstrap.servers": self.bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
        consumer = Consumer({**settings, "enable.auto.commit": False, "client.id": f"{group}-1"})
        consumer.subscribe([topic])
        while count:
            message = consumer.poll(SECONDS_MAX)
            assert message is not None
            assert message.error() is None
            count -= 1
            consumer.commit(message, asynchronous=False)
        consumer.close()


def serve(
    *options: str, data: Path | None = None, listen: str = "127.0.0.1:0", console: str = "127.0.0.1:0"
) -> Served:
    """Start a broker with its console."""
    where = ["--ephemeral"] if data is None else ["--data", str(data)]
    arguments = [
        sys.executable,
        "-m",
        "barnabas",
        "serve",
        "--listen",
        listen,
        "--console",
        console,
        *where,
        *options,
    ]
    environment = {**os.environ, "PYTHONPATH": import_path(ROOT)}
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    words = dict(word.split("=", 1) for word in process.stdout.readline().split() if "=" in word)
    return Served(process, words["bootstrap.servers"], words["console"], words.get("registry", ""), arguments)


def serve_secured() -> Served:
    """Start a broker with its console, the users admin (a super user) and ann, and an authorizer."""
    module = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    users = 'username="admin" password="admin-secret" user_admin="admin-secret" user_ann="ann-secret";'
    return serve(
        "--set", "listener.security.protocol.map=PLAINTEXT:SASL_PLAINTEXT",
        "--set", "sasl.enabled.mechanisms=PLAIN",
        "--set", f"listener.name.plaintext.plain.sasl.jaas.config={module} {users}",
        "--set", "authorizer.class.name=kafka.security.authorizer.AclAuthorizer",
        "--set", "super.users=User:admin",
    )  # fmt: skip


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """The browser of this machine, without a window."""
    path = next(filter(None, (shutil.which(name) for name in BROWSERS if name)), None)
    if path is None or not AXE.exists():
        pytest.fail("no browser, or no axe-core: `make test-browser` says what is missing")
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield launched
        launched.close()


@pytest.fixture(scope="session")
def served() -> Iterator[Served]:
    """A broker with a registry and the bench's control, for all tests: they keep apart by names."""
    broker = serve("--registry", "127.0.0.1:0", "--control", "127.0.0.1:0", "--virtual-clock")
    yield broker
    broker.stop()


@dataclass
class Shown:
    """A console in a browser, and what went wrong on its page."""

    page: Page
    url: str
    problems: list[str] = field(default_factory=list)

    def open(self, path: str = "") -> Page:
        """Open a view, and wait until it is there."""
        self.page.goto(f"{self.url}/#/{path}")
        expect(self.page.locator("main h1")).to_be_visible()
        return self.page

    def dialog(self) -> Locator:
        return self.page.get_by_role("dialog")

    def is_settled(self) -> None:
        """Wait until no dialog is left, and its entry of the history neither, as a person does."""
        expect(self.page.locator("dialog")).to_have_count(0)

    def said(self, text: str) -> None:
        """See that a message says so, and put it away: it would cover what is below it."""
        toast = self.page.locator(".toast", has_text=text)
        expect(toast.first).to_be_visible()
        self.page.evaluate("document.getElementById('toasts').replaceChildren()")

    def confirm(self, name: str, button: str) -> None:
        """Type the name of what is to be destroyed, as the dialog wants it."""
        dialog = self.dialog()
        expect(dialog.get_by_role("button", name=button)).to_be_disabled()
        dialog.get_by_label("Type the name").fill(name)
        dialog.get_by_role("button", name=button).click()

    def check_access(self) -> None:
        """See that axe finds nothing serious."""
        findings = self.page.evaluate(
            "async () => (await axe.run(document, {resultTypes: ['violations']})).violations.map((one) => "
            "({id: one.id, impact: one.impact, help: one.help, nodes: one.nodes.map((node) => node.html.slice(0, 200))}))"
        )
        serious = [finding for finding in findings if finding["impact"] in ("serious", "critical")]
        assert not serious, json.dumps(serious, indent=1)

    def picture(self, name: str) -> None:
        """Take a picture for the documentation, if that is asked for."""
        if os.environ.get("BARNABAS_PICTURES"):
            PICTURES.mkdir(exist_ok=True)
            self.page.screenshot(path=PICTURES / f"{name}.png", animations="disabled")


Show = Callable[..., Shown]


@pytest.fixture
def show(browser: Browser, served: Served) -> Iterator[Show]:
    """Open consoles; a script of another origin, a failure or an error of a page fails the test."""
    contexts: list[BrowserContext] = []
    shown: list[Shown] = []

    def begin(url: str = "", *, theme: str = "light", width: int = 1280, height: int = 800) -> Shown:
        context = browser.new_context(
            color_scheme=theme,  # type: ignore[arg-type]
            viewport={"width": width, "height": height},
            bypass_csp=False,
            accept_downloads=True,
            reduced_motion="reduce",
        )
        contexts.append(context)
        context.set_default_timeout(SECONDS_MAX * 1000)
        page = context.new_page()
        view = Shown(page, url or served.url)
        origin = "/".join(view.url.split("/")[:3])
        page.on("pageerror", lambda error: view.problems.append(f"error: {error}"))
        page.on(
            "console",
            lambda line: (
                view.problems.append(line.text)
                if "Content Security" in line.text or "Trusted" in line.text
                else None
            ),
        )
        page.on(
            "request",
            lambda sent: (
                None if sent.url.startswith((origin, "data:", "blob:")) else view.problems.append(sent.url)
            ),
        )
        page.add_init_script(path=AXE)
        shown.append(view)
        return view

    yield begin
    for context in contexts:
        context.close()
    assert [view.problems for view in shown] == [[] for _ in shown]


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A name that no other test has."""
    text: str = request.node.name
    return text.removeprefix("test_").replace("[", "-").replace("]", "")[:60]
