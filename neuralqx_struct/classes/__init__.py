"""Classes: schema documents to Struct classes, checks of their instances, and Struct classes back to schema documents."""
