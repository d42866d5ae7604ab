"""Tools for those who work on the project; not part of what is installed."""
