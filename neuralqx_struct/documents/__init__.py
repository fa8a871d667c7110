"""The schema documents of Struct classes, written from the classes or held by them, and the checks of instances by them."""
