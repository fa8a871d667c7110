"""Places: files and folders on a disk or behind a URL, read in ranges and replaced completely or not at all."""
