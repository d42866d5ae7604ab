"""Share groups (KIP-932): who has which record, for how long, and how often it was tried. Pure."""
