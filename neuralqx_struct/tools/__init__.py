"""Tools: validate, inspect and infer, the functions behind the commands."""
