"""A log at a start: which files belong to it, what is mended after a crash, and its loading, many logs in parallel."""
