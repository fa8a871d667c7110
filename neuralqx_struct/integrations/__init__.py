"""Structs in other libraries; each module is imported by its users, and never by the package."""
