"""The REST interface of a Kafka Connect worker: its responses are those of Apache Kafka 4.3's worker."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

PLUGIN = "org.apache.kafka.connect.file.FileStreamSourceConnector"
SETTINGS = [
    ("topic", "STRING", True, None, "The topic to publish data to"),
    ("file", "STRING", False, None, "Source filename."),
    ("batch.size", "INT", False, "2000", "Most records that the task will read from the file at once."),
    ("pin", "PASSWORD", False, None, "What opens the file."),
]
TRACE = "org.apache.kafka.connect.errors.ConnectException: no file\n\tat java.base/java.lang.Thread.run(Thread.java:840)"


class Worker:
    """Connectors, and the requests about them."""

    def __init__(self) -> None:
        self.configs: dict[str, dict[str, str]] = {}
        self.states: dict[str, str] = {}
        self.traces: dict[str, str] = {}
        self.asked: list[str] = []
        self.url = ""

    def add(self, name: str, *, trace: str = "", **config: str) -> None:
        """Add a connector; with a trace its task has failed."""
        own = {key.replace("_", "."): value for key, value in config.items()}
        self.configs[name] = {
            "name": name,
            "connector.class": PLUGIN,
            "tasks.max": "1",
            "topic": "lines",
            **own,
        }
        self.states[name] = "RUNNING"
        if trace:
            self.traces[name] = trace

    def status(self, name: str) -> dict[str, Any]:
        state, worker = self.states[name], "127.0.0.1:8083"
        task: dict[str, Any] = {"id": 0, "state": state, "worker_id": worker}
        if name in self.traces and state == "RUNNING":
            task |= {"state": "FAILED", "trace": self.traces[name]}
        connector = {"state": state, "worker_id": worker, "version": "4.3.1"}
        return {
            "name": name,
            "connector": connector,
            "tasks": [] if state == "STOPPED" else [task],
            "type": "source",
        }

    def info(self, name: str) -> dict[str, Any]:
        tasks = [{"connector": name, "task": 0}]
        return {"name": name, "config": self.configs[name], "tasks": tasks, "type": "source"}

    def answer(self, method: str, path: str, query: dict[str, list[str]], body: Any) -> tuple[int, Any]:
        """Return status and JSON of an answer."""
        parts = [unquote(part) for part in path.strip("/").split("/") if part]
        if not parts:
            return 200, {"version": "4.3.1", "commit": "x", "kafka_cluster_id": "MkU3OEVBNTcwNTJENDM2Qk"}
        if parts[0] == "connector-plugins":
            return self._plugin(parts, body)
        if len(parts) == 1 and method == "POST":
            if body["config"].get("pin") == "0000":
                return 400, _error(400, "Invalid value 0000 for configuration pin")
            if body["name"] in self.configs:
                return 409, _error(409, f"Connector {body['name']} already exists")
            self.add(body["name"])
            self.configs[body["name"]] = body["config"]
            return 201, self.info(body["name"])
        if len(parts) == 1:
            return 200, {
                name: {"status": self.status(name), "info": self.info(name)} for name in self.configs
            }
        name = parts[1]
        if name not in self.configs:
            return 404, _error(404, f"Connector {name} not found")
        return self._of_connector(name, method, parts[2:], query, body)

    def _of_connector(
        self, name: str, method: str, rest: list[str], query: dict[str, list[str]], body: Any
    ) -> tuple[int, Any]:
        if rest == ["config"] and method == "PUT":
            self.configs[name] = body
            return 200, self.info(name)
        if method == "GET":
            shown = {
                "status": self.status(name),
                "config": self.configs[name],
                "topics": {name: {"topics": ["lines"]}},
            }
            return 200, shown[rest[0]] if rest else self.info(name)
        if method == "DELETE":
            del self.configs[name]
            return 204, None
        if rest[-1] == "restart":
            self.traces.pop(name, None)
            return (202, self.status(name)) if query.get("includeTasks") == ["true"] else (204, None)
        self.states[name] = {"pause": "PAUSED", "resume": "RUNNING", "stop": "STOPPED"}[rest[0]]
        return (204 if rest == ["stop"] else 202), None

    def _plugin(self, parts: list[str], config: Any) -> tuple[int, Any]:
        if len(parts) == 1:
            return 200, [{"class": PLUGIN, "type": "source", "version": "4.3.1"}]
        if parts[1] != PLUGIN:
            return 404, _error(404, f"Unknown plugin {parts[1]}.")
        definitions = [
            {
                "name": name,
                "type": kind,
                "required": is_required,
                "default_value": default,
                "documentation": text,
            }
            for name, kind, is_required, default, text in SETTINGS
        ]
        if parts[-1] == "config":
            return 200, definitions
        errors = {
            definition["name"]: [
                f'Missing required configuration "{definition["name"]}" which has no default value.'
            ]
            for definition in definitions
            if definition["required"] and not config.get(definition["name"])
        }
        if not config.get("batch.size", "1").isdecimal():
            errors["batch.size"] = [
                f"Invalid value {config['batch.size']} for configuration batch.size, pin {config.get('pin')}"
            ]
        rows = [
            {"definition": row, "value": {"name": row["name"], "value": config.get(row["name"]),
                                          "recommended_values": [], "errors": errors.get(row["name"], []), "visible": True}}
            for row in definitions
        ]  # fmt: skip
        return 200, {"name": PLUGIN, "error_count": len(errors), "groups": [], "configs": rows}


def _error(code: int, message: str) -> dict[str, Any]:
    return {"error_code": code, "message": message}


@contextmanager
def worker() -> Iterator[Worker]:
    """Run a worker for the length of a block."""
    state = Worker()

    class Handler(BaseHTTPRequestHandler):
        def _handle(self) -> None:
            size = int(self.headers.get("Content-Length") or 0)
            data = self.rfile.read(size)
            where = urlsplit(self.path)
            state.asked.append(f"{self.command} {self.path}")
            if data and self.headers["Content-Type"] != "application/json":
                status, value = 415, _error(415, "HTTP 415 Unsupported Media Type")
            else:
                query = parse_qs(where.query)
                status, value = state.answer(self.command, where.path, query, json.loads(data or b"null"))
            content = b"" if value is None else json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_PUT = do_POST = do_DELETE = _handle  # noqa: N815

        def log_message(self, format: str, *arguments: Any) -> None:
            """Keep quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        state.url = f"http://127.0.0.1:{server.server_port}"
        try:
            yield state
        finally:
            server.shutdown()
            thread.join()
