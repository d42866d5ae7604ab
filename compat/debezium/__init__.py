"""PostgreSQL and Debezium with our broker: a table of current rows, compared with its source table."""
