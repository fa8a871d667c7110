"""Manifests: the content of ``manifest.json``, its models, text and checks."""
