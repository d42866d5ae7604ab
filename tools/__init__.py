"""Tools for developers of the project; they are not installed."""
