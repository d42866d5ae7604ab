"""`barnabas serve`: options become settings, settings are validated, and a broker or a controller runs.

The rule: modules for only some options are imported if these are used.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from barnabas.ending import USAGE_ERROR
from barnabas.environment.lazy import OPENSSL_USERS, import_when_used

if TYPE_CHECKING:
    import argparse

    from barnabas.broker.app import Broker, Companion
    from barnabas.broker.process import Companions
    from barnabas.config.loading import BrokerConfig
    from barnabas.serving.seams import Watcher
    from barnabas.tools.control.host import Host
    from barnabas.tools.demo.security import Demo


def serve(options: argparse.Namespace) -> int:
    """Start a broker by the options; returns the exit code."""
    gc.disable()  # what a start makes stays, so looking for garbage in it is in vain; `run` switches it on again
    import_when_used(*OPENSSL_USERS)
    from barnabas.broker.serve_options import SET_OPTION, collect, has_metadata_log
    from barnabas.config.loading import BrokerConfig, explain_unknown
    from barnabas.config.setting import SettingError
    from barnabas.config.without_effect import judge
    from barnabas.environment import log_lines

    log_lines.begin(options.log_level)
    try:
        demo = _demo(options) if options.demo_security else None
        collected = collect(options, demo.settings if demo is not None else None)
        config = BrokerConfig(collected.settings, collected.origins)
        config.has_metadata_log = not options.ephemeral and has_metadata_log(config)
    except SettingError as error:
        print(f"barnabas: {error}", file=sys.stderr)
        return USAGE_ERROR
    for name in config.unknown:
        # In a file it may be a plugin's; on the command line it is a slip.
        print(f"barnabas: {collected.origins[name]}: {explain_unknown(name)}", file=sys.stderr)
        if collected.origins[name] == SET_OPTION:
            return USAGE_ERROR
    verdict = judge(config, collected.origins)
    for line in verdict.refusals:
        print(f"barnabas: {line}", file=sys.stderr)
    if verdict.refusals:
        return USAGE_ERROR
    if verdict.ignored:
        names = ", ".join(f"{name} ({collected.origins[name]})" for name in verdict.ignored)
        print(f"barnabas: these settings have no effect here: {names}", file=sys.stderr)

    if demo is not None:
        from barnabas.tools.demo.clients import instructions

        print(
            instructions(demo, _first_address(config, "SASL_SSL"), _first_address(config, "SSL")), flush=True
        )
    if not options.ephemeral:
        return _run_serve(options, config, collected.settings)

    from barnabas.environment.ephemeral import ephemeral_directory

    with ephemeral_directory() as directory:
        in_memory = {**collected.settings, "log.dirs": f"{directory}/data"}
        return _run_serve(options, BrokerConfig(in_memory, collected.origins), in_memory)


def _first_address(config: BrokerConfig, protocol: str) -> str:
    """Return the address of the first listener with a security protocol; empty without one."""
    protocols = config.listener_security_protocols()
    for listener in config.listeners():
        name, _, address = listener.partition("://")
        if protocols.get(name) == protocol:
            return address
    return ""


def _demo(options: argparse.Namespace) -> Demo:
    """Prepare a demonstration of security. Raises SettingError."""
    from pathlib import Path

    from barnabas.config.setting import SettingError
    from barnabas.errors import StorageError
    from barnabas.tools.demo.security import prepare

    for name in ("config", "zookeeper", "listen"):
        if getattr(options, name):
            raise SettingError(f"--{name} and --demo-security do not go together; --set changes one setting")
    if options.workers > 1:
        raise SettingError("--workers and --demo-security do not go together")
    try:
        return prepare(Path(options.demo_security))
    except (OSError, StorageError) as error:
        raise SettingError(f"--demo-security: {error}") from error


def _run_serve(options: argparse.Namespace, config: BrokerConfig, own_settings: Mapping[str, str]) -> int:
    from barnabas.broker.serve_options import check_workers
    from barnabas.config import broker as settings
    from barnabas.config.keeper import is_clustered, is_controller
    from barnabas.config.setting import SettingError

    if is_controller(config):
        return _run_controller(options, config)
    try:
        check_workers(config.log_dirs, options.workers, is_clustered=is_clustered(config))
        prepare = _prepare(options, is_alone=options.workers == 1 and not is_clustered(config))
        watcher = _watcher(options)
    except SettingError as error:
        print(f"barnabas: {error}", file=sys.stderr)
        return USAGE_ERROR
    is_tested = _is_tested(options, config)
    if options.workers > 1:
        registry, http, console = (
            settings.REGISTRY_LISTENER,
            settings.HTTP_LISTENER,
            settings.CONSOLE_LISTENER,
        )
        for is_asked, text in (
            (config.get(registry), "a registry is for one broker: start `barnabas registry` beside them"),
            (is_tested, "faults, the control API and a virtual clock are for one broker"),
            (config.get(http), "the REST API is for one broker: start `barnabas http` beside them"),
            (config.get(console), "start `barnabas console --bootstrap HOST:PORT` beside them"),
        ):
            if is_asked:
                print(f"barnabas: --workers: {text}", file=sys.stderr)
                return USAGE_ERROR
        from barnabas.tools.localcluster.workers_command import run as run_workers

        gc.enable()
        return run_workers(config, own_settings, options.workers, options.log_level)

    if is_tested:
        from barnabas.tools.control.process import run as run_with_control

        return run_with_control(
            config,
            options.fault,
            prepare=prepare,
            watcher=watcher,
            companions_of=partial(_companions, config),
        )

    from barnabas.broker.process import run

    return run(config, prepare, watcher, _companions(config, None))


def _is_tested(options: argparse.Namespace, config: BrokerConfig) -> bool:
    """Return whether faults, the control API or a virtual clock are requested."""
    from barnabas.config import broker as settings

    files = config.get(settings.CONTROL_LISTENER), config.get(settings.FAULTS_FILE)
    return bool(options.fault) or any(files) or config.get(settings.CLOCK_VIRTUAL)


def _run_controller(options: argparse.Namespace, config: BrokerConfig) -> int:
    from barnabas.broker.controller_process import check_options, run
    from barnabas.config.setting import SettingError

    try:
        check_options(options, config)
    except SettingError as error:
        print(f"barnabas: {error}", file=sys.stderr)
        return USAGE_ERROR
    if _is_tested(options, config):
        from barnabas.tools.control.process import run as run_with_control

        return run_with_control(config, options.fault)
    return run(config)


def _companions(config: BrokerConfig, host: Host | None) -> Companions:
    """Return the servers beside the broker; modules of others are not imported."""
    from barnabas.broker.process import Companions
    from barnabas.config import broker as settings

    companions: list[Companion] = []
    registry = None
    if config.get(settings.REGISTRY_LISTENER):
        from barnabas.broker.registry_beside import RegistryBeside

        registry = RegistryBeside(config)
        companions.append(registry)
    if config.get(settings.HTTP_LISTENER):
        from barnabas.broker.rest_beside import RestBeside

        companions.append(RestBeside(config, registry))
    if config.get(settings.CONSOLE_LISTENER):
        from barnabas.console.beside import ConsoleBeside

        companions.append(ConsoleBeside(config, host, registry))
    return Companions(companions)


def _watcher(options: argparse.Namespace) -> Watcher | None:
    """Return the viewer of requests; None without --tap. Raises SettingError."""
    if options.tap is None:
        return None
    from barnabas.config.setting import SettingError
    from barnabas.tools.tap.broker_tap import BrokerTap

    if options.workers > 1:
        raise SettingError("--tap shows one broker, not --workers")
    try:
        return BrokerTap(options.tap)
    except ValueError as error:
        raise SettingError(f"--tap={options.tap}: {error}") from error


def _prepare(options: argparse.Namespace, *, is_alone: bool) -> Callable[[Broker], Awaitable[None]] | None:
    """Return the function that plants seeds in the broker before it serves; None without seeds. Raises SettingError."""
    if not options.topic and options.seed_file is None:
        return None
    from barnabas.config.setting import SettingError
    from barnabas.tools.seeding.files import seeds_of_options
    from barnabas.tools.seeding.planting import preparing
    from barnabas.tools.seeding.seeds import SeedError

    if not is_alone:
        raise SettingError("--topic and --seed-file are for a broker that is alone")
    try:
        return preparing(seeds_of_options(options.topic, options.seed_file))
    except SeedError as error:
        raise SettingError(str(error)) from error
