"""Settings: tables of what can be set, and typed reading of what is set. Pure."""
