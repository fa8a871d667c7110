"""A store of fsspec that another process imports by its name: a folder of this machine."""

from fsspec.implementations.local import LocalFileSystem


class Shelf(LocalFileSystem):
    protocol = "shelf"

    def __init__(self, **options):
        super().__init__(auto_mkdir=True, **options)

    @classmethod
    def _strip_protocol(cls, path):
        return super()._strip_protocol(path.removeprefix("shelf://"))
