"""Parts of handlers that several APIs share."""
