"""Errors of commands about log dirs."""


class RefusedError(Exception):
    """The command is not carried out; the message is the reason."""
