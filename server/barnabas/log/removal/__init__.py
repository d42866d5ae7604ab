"""Removal of logs and of parts of them: renamed, pending until they are due, removed."""
