"""Exports: schema documents as JSON Schema, Python stubs, Mermaid diagrams and templates."""
