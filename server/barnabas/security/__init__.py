"""Who may do what. Pure."""
