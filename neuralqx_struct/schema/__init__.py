"""The schema language: documents, their types, their reader, and the versions of one schema."""
