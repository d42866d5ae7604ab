"""Authentication and authorization of clients. Pure."""
