"""The first hour of somebody new, as a user without rights on a machine with hardly anything on it."""
