"""Files behind URLs: ``hf://``, ``s3://``, ``https://`` and whatever else fsspec reads, in ranges of bytes.

The first bytes are fetched once; after that each range that is wanted. Errors name the URL without passwords and tokens.

Example:
    >>> is_url("s3://bucket/model.safetensors"), is_url("model.safetensors")
    (True, False)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path, PurePosixPath
from posixpath import basename
from tempfile import TemporaryDirectory
from typing import Any, Final, Self

from neuralqx_struct.bundle.storage import BundleMissingError
from neuralqx_struct.errors import IntegrityError, SerializationError, StructError
from neuralqx_struct.formats.ranges import Blocks, Ranges
from neuralqx_struct.stores.store import BundleReadError, imported

_URL: Final = re.compile(r"(?P<scheme>[a-zA-Z][a-zA-Z0-9+.-]+)://")
_SECRETS: Final = re.compile(r"(?<=://)[^/@]*@|[?#].*")
_FIRST: Final = 64 << 10  # bytes that are fetched first: most headers end in them


def is_url(path: object) -> bool:
    """True for a text that is a URL, and for nothing else, such as a path."""
    return isinstance(path, str) and _URL.match(path) is not None


class RemotePath:
    """A file or folder behind a URL, with those members of a path that formats use.

    Args:
        files: The file system of fsspec.
        place: The place in it.
        url: The URL, for messages.
    """

    def __init__(self, files: Any, place: str, url: str) -> None:
        self._files = files
        self._place = place.rstrip("/")
        self._url = _SECRETS.sub("", url).rstrip("/")
        self.name = basename(self._place)

    def __str__(self) -> str:
        return self._url

    @property
    def suffix(self) -> str:
        """The suffix of its name."""
        return PurePosixPath(self.name).suffix

    @property
    def parent(self) -> RemotePath:
        """The folder around it."""
        return RemotePath(
            self._files, *(text.rpartition("/")[0] for text in (self._place, self._url))
        )

    def __truediv__(self, name: str) -> Self:
        return type(self)(self._files, f"{self._place}/{name}", f"{self._url}/{name}")

    @cached_property
    def _facts(self) -> Mapping[str, Any]:
        with _refusals(self._url):
            found: Mapping[str, Any] = self._files.info(self._place)
        return found

    def is_dir(self) -> bool:
        """True for a folder."""
        return bool(self._facts["type"] == "directory")

    def is_file(self) -> bool:
        """True for a file; False for a folder, and for nothing."""
        try:
            return not self.is_dir()
        except BundleMissingError:
            return False

    def is_symlink(self) -> bool:
        """False: file systems of fsspec follow links."""
        return False

    def iterdir(self) -> Iterator[Self]:
        """Yields the files and folders in a folder."""
        with _refusals(self._url):
            listed = self._files.ls(self._place, detail=True)
        for facts in listed:
            name = basename(facts["name"].rstrip("/"))
            if name:
                made = self / name
                made._facts = facts  # noqa: SLF001 - of the same class
                yield made

    def names(self) -> frozenset[str]:
        """The names in a folder."""
        return frozenset(each.name for each in self.iterdir())

    @cached_property
    def size(self) -> int:
        """The size of a file."""
        size = self._facts.get("size")
        if type(size) is int and size > 0:
            return size
        message = f"expected a file of a known size, got {size!r}"
        raise SerializationError(message, code="NQX401", file=self._url, hint="download the file")

    @cached_property
    def start(self) -> memoryview:
        """The first bytes of a file."""
        return self._fetched(0, min(self.size, _FIRST))

    def content(self, most: int) -> bytes:
        """The bytes of a file, of a large one the first so many."""
        return bytes(self._read(0, min(self.size, most)))

    def ranges(self) -> Ranges:
        """The bytes of a file."""
        return Ranges(self.size, self._read, Blocks(self.size, self._read), cheap=False)

    def downloaded(self) -> tuple[Path, Callable[[], None]]:
        """A copy of a file or folder on this disk, for programs that read nothing else; and the function that removes it."""
        holder = TemporaryDirectory(prefix="neuralqx-struct-")
        place = Path(holder.name, self.name)
        try:
            with _refusals(self._url):
                self._files.get(self._place, str(place), recursive=self.is_dir())
        except BaseException:
            holder.cleanup()
            raise
        return place, holder.cleanup

    def _read(self, start: int, end: int) -> memoryview:
        return self.start[start:end] if end <= len(self.start) else self._fetched(start, end)

    def _fetched(self, start: int, end: int) -> memoryview:
        with _refusals(self._url):
            data = self._files.cat_file(self._place, start=start, end=end)
        if len(data) == end - start:
            return memoryview(data)
        message = f"expected {end - start} bytes from byte {start}, got {len(data)}"
        hint = "the file changed, or its server sends no ranges: download the file"
        raise IntegrityError(message, code="NQX408", file=self._url, hint=hint)


def located(url: str, options: Mapping[str, Any] | None = None) -> RemotePath:
    """The file or folder behind a URL.

    Args:
        url: The URL.
        options: Options of fsspec for its file system, such as keys.

    Raises:
        SerializationError: fsspec, or a package that it needs for this URL, is not installed.
    """
    core = imported("fsspec.core", "remote", "URLs")
    with _refusals(_SECRETS.sub("", url)):
        files, place = core.url_to_fs(url, **(options or {}))
    return RemotePath(files, place, url)


@contextmanager
def _refusals(url: str) -> Iterator[None]:
    """Raises errors of file systems, which are of many classes, as errors that name the URL."""
    try:
        yield
    except StructError:
        raise
    except FileNotFoundError as error:
        raise BundleMissingError("expected a file or folder, got none", file=url) from error
    except ImportError as error:
        message = f"expected the package that reads this URL, got: {error}"
        raise SerializationError(message, code="NQX615", file=url, hint="install it") from error
    except Exception as error:
        message = (
            f"expected to read the URL, got {type(error).__name__}: {_SECRETS.sub('', str(error))}"
        )
        raise BundleReadError(
            message, file=url, hint="check the URL and its credentials"
        ) from error
