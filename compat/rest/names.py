"""Names of the cases, and what all programs here share. Standard library only."""

CASES = ("cluster", "topics", "produce", "consume", "acls")
COUNT = 20
"""Records of a topic."""
SECONDS_MAX = 60
