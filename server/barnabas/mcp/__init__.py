"""`barnabas mcp`: a cluster for agents that use the Model Context Protocol, over standard input or HTTP.

The rule: a tool is a row of `tools.TOOLS`, which names a route of the console or of the control API: all work is done by
those routes. Nothing is changed unless the command was started with `--write`.
"""
