"""Schema evolution: differences, compatibility rules, migration steps, and their application."""
