"""Codecs: values to manifest nodes, and back."""
