"""The contract every trace keeps: tables, closed vocabularies, and the SQL views that define each metric."""
