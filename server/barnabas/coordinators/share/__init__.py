"""Share groups (KIP-932): pure machines of acquired records and their state, and the share coordinator."""
