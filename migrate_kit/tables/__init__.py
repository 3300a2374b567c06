"""Facts are data: one CSV file a subject, each row with the source it was read in."""

from migrate_kit.tables.tables import read_table, table_names

__all__ = ["read_table", "table_names"]
