"""PostgreSQL and Debezium against our broker: a table of current rows beside the table that it is a copy of."""
