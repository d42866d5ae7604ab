"""The first hour of a new user, as a user without rights on a machine with hardly anything on it."""
