"""Stock clients, each with a `run`; see README.md."""
