"""Each command of `docs/how-to/commands.md`, tried on Barnabas and on Apache Kafka: python -m compat.commands."""
