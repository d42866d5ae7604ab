"""Parts for testers and operators: nothing of the broker imports them."""
