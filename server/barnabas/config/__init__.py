"""Settings: tables of all settings, and typed reading of configured values. Pure."""
