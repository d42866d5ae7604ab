"""A log at a start: the choice of its files, repairs after a crash, and loading, many logs in parallel."""
