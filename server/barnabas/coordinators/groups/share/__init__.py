"""Share groups (KIP-932): members, and what each of them fetches from. Pure."""
