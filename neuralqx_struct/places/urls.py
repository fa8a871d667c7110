"""Paths and URLs: ``hf://``, ``s3://``, ``https://`` and whatever else fsspec reaches, in ranges of bytes.

Every argument that is a path or a URL becomes a :data:`Place` by :func:`place_of`. A :class:`RemotePath` makes
one request for each of its methods. Errors name the URL without passwords and tokens.

Example:
    >>> is_url("s3://bucket/model.safetensors"), is_url("model.safetensors")
    (True, False)
    >>> place_of("file:///scratch/ckpt"), str(place_of("memory://run/ckpt", {"key": "..."}) / "manifest.json")
    (PosixPath('/scratch/ckpt'), 'memory://run/ckpt/manifest.json')
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import cached_property
from pathlib import Path
from posixpath import basename
from typing import Any, Final, Self

from neuralqx_struct.errors import OVERWRITE, WHOLE_PATH, SerializationError, StructError
from neuralqx_struct.places import answers, http
from neuralqx_struct.places.disk import (
    BundleExistsError,
    BundleMissingError,
    BundleReadError,
    BundleWriteError,
    OptionsError,
)
from neuralqx_struct.places.names import shown_names
from neuralqx_struct.references import imported

Options = Mapping[str, Any]
_SCHEME: Final = r"[a-zA-Z][a-zA-Z0-9+.-]*"
_URL: Final = re.compile(rf"({_SCHEME}::)*{_SCHEME}[a-zA-Z0-9+.-]://")
_USER: Final = re.compile(r"(?<=://)[^/@]*(?=@)")
_SECRETS: Final = re.compile(r"(?<=://)[^/@\s]*@|[?#]\S*")
_SECRET_OPTIONS: Final = re.compile(r"(?i)key|secret|token|passw|credential|auth|sas|connection")
#: A URL that became a path has only one of its slashes left.
_MANGLED: Final = re.compile(r"(s3|gs|gcs|az|abfs|memory|file|https?|hf|ftp|sftp):[\\/][^\\/]")
_SHORTEST: Final = 4  # characters of a secret that is looked for in messages
_AS_TEXT: Final = (
    "pass keys or tokens as text; or register a subclass of the file system under its protocol, by "
    "fsspec.register_implementation: it runs in your program, without limits"
)
_FIRST: Final = 64 << 10  # bytes that are fetched first: most headers end in them


def is_url(path: object) -> bool:
    """True for a text that is a URL, and for nothing else, such as a path."""
    return isinstance(path, str) and _URL.match(path) is not None


class RemotePath:
    """A file or folder behind a URL, with those members of a path that readers and writers use.

    Args:
        files: The file system of fsspec.
        place: The place in it.
        url: The URL, for messages.
        secrets: Texts that no message has: keys, passwords, tokens.
    """

    def __init__(self, files: Any, place: str, url: str, secrets: tuple[str, ...] = ()) -> None:
        self.files = files
        # The query of an http URL belongs to every file below it.
        self._place, self._mark, self._query = place.partition("?" if "://" in place else "\0")
        self._place = self._place.rstrip("/")
        self._url = _SECRETS.sub("", url).rstrip("/")
        self._secrets = secrets
        self.name = basename(self._place)

    def __str__(self) -> str:
        return self._url

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._url!r})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RemotePath):
            return NotImplemented
        return self.files is other.files and self.place == other.place

    def __hash__(self) -> int:
        return hash(self.place)

    @property
    def place(self) -> str:
        """The place in the file system."""
        return f"{self._place}{self._mark}{self._query}"

    @property
    def suffix(self) -> str:
        """The suffix of the name, such as ``.zip``."""
        return Path(self.name).suffix

    @property
    def parent(self) -> RemotePath:
        """The folder around it."""
        return self._beside(*(text.rpartition("/")[0] for text in (self._place, self._url)))

    def __truediv__(self, name: str) -> Self:
        return self._beside(f"{self._place}/{name}", f"{self._url}/{name}")

    def _beside(self, place: str, url: str) -> Self:
        return type(self)(self.files, f"{place}{self._mark}{self._query}", url, self._secrets)

    def is_below(self, folder: RemotePath) -> bool:
        """True if it is in a folder, or in one below it."""
        return self.files is folder.files and self._place.startswith(f"{folder._place}/")

    # Facts

    @cached_property
    def _facts(self) -> Mapping[str, Any]:
        with self.reading():
            found: Mapping[str, Any] = self.files.info(self.place)
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
        """Yields the files and folders in a folder, but hidden ones."""
        found = self.listing()
        for name in shown_names(found):
            facts = found[name]
            made = self / name
            made._facts = facts  # noqa: SLF001 - of the same class
            yield made

    def names(self) -> frozenset[str]:
        """The names in a folder, but hidden ones."""
        return frozenset(shown_names(self.listing()))

    def listing(self) -> dict[str, Mapping[str, Any]]:
        """The facts about each file and folder in a folder, by name; as they are now."""
        with self.reading():
            if http.is_http(self.files):
                return http.listing(self.files, self.place)
            self.files.invalidate_cache(self.place)
            found = self.files.ls(self.place, detail=True)
        named = {basename(each["name"].rstrip("/")): each for each in found}
        return {name: facts for name, facts in named.items() if name}

    def files_below(self) -> dict[str, Mapping[str, Any]]:
        """The facts about each file in a folder and in the folders below it, by relative path; nothing if there is none."""
        with self.reading():
            try:
                if http.is_http(self.files):
                    return http.files_below(self.files, self.place)
                self.files.invalidate_cache(self.place)
                found = self.files.find(self.place, detail=True)
            except FileNotFoundError:
                return {}
        above = f"{self._place.strip('/')}/"
        return {name.strip("/").removeprefix(above): facts for name, facts in found.items()}

    @property
    def known_size(self) -> int | None:
        """The size of a file as the server gives it, if it does."""
        size = self._facts.get("size")
        return size if type(size) is int else None

    @cached_property
    def size(self) -> int:
        """The size of a file that has bytes."""
        size = self.known_size
        if size is not None and size > 0:
            return size
        message = f"expected a file of a known size, got {size!r}"
        raise SerializationError(message, code="NQX401", file=self._url, hint="download the file")

    # Reading

    @cached_property
    def start(self) -> memoryview:
        """The first bytes of a file."""
        return self.fetched(0, min(self.size, _FIRST))

    def content(self, most: int) -> bytes:
        """The bytes of a file, of a large one the first so many; its size is asked for first."""
        return bytes(self.read(0, min(self.size, most)))

    def read(self, start: int, end: int) -> memoryview:
        """The bytes from one place to another, out of the first ones if these were fetched."""
        return self.start[start:end] if end <= len(self.start) else self.fetched(start, end)

    def fetched(self, start: int, end: int) -> memoryview:
        """The bytes from one place to another, in one request."""
        data = self._request(start, end)
        if len(data) == end - start:
            return memoryview(data)
        message = f"expected {end - start} bytes from byte {start}, got {len(data)}"
        hint = "the file changed, or its server sends no ranges: download the file"
        raise BundleReadError(message, code="NQX408", file=self._url, hint=hint)

    def opening(self, most: int) -> bytes:
        """The bytes of a file in one request, of a large one the first so many."""
        return self._request(0, most)[:most]

    def _request(self, start: int, end: int) -> bytes:
        """The bytes from one place to another, or fewer: at the end of a file, or if the server sends others."""
        with self.reading():
            if http.is_http(self.files):
                return http.body(self.files, self.place, start, end)
            data: bytes = self.files.cat_file(self.place, start=start, end=end)
        return data

    # Writing

    def put(self, source: Path) -> None:
        """Uploads a file, and asks for its size then; removes a part that the server kept.

        Raises:
            BundleWriteError: The server refused, or has another size.
        """
        with self.writing():
            self.files.put_file(str(source), self.place)
            self.files.invalidate_cache(self.place)
            size = self.files.info(self.place)["size"]
        if size != source.stat().st_size:
            with suppress(StructError):  # nobody can use a part of it
                self.remove()
            message = f"expected a file of {source.stat().st_size} bytes, got {size} on the server"
            raise BundleWriteError(message, file=self._url, hint="write it again")

    def pipe(self, data: bytes, *, new: bool) -> None:
        """Writes a small file in one request; a new one is refused if one is there, where the server can.

        Raises:
            BundleExistsError: It has to be new, and is not.
            BundleWriteError: The server refused.
        """
        from inspect import signature

        parameters = signature(self.files.pipe_file).parameters
        mode = {"mode": "create"} if new and "mode" in parameters else {}
        with self.writing():
            self.files.pipe_file(self.place, data, **mode)

    def copy(self, source: RemotePath) -> None:
        """Copies a file of the same server."""
        with self.writing():
            self.files.cp_file(source.place, self.place)

    def remove(self) -> None:
        """Removes a file."""
        with self.writing():
            self.files.rm_file(self.place)

    # Errors

    def reading(self) -> AbstractContextManager[None]:
        """Raises errors of file systems, which are of many classes, as errors about a read of the URL."""
        return self._naming(BundleReadError, "read", "check the URL and its credentials")

    def writing(self) -> AbstractContextManager[None]:
        """Raises errors of file systems as errors about a write to the URL."""
        hint = "check the URL and its credentials, then write the bundle again"
        return self._naming(BundleWriteError, "write", hint)

    @contextmanager
    def _naming(self, kind: type[SerializationError], verb: str, hint: str) -> Iterator[None]:
        """Raises errors of file systems as errors of one class, which have no chained text with keys."""
        try:
            with answers.one_call():
                yield
        except StructError:
            raise
        except FileExistsError:
            message = "expected a path where nothing is, got an existing one"
            advice = OVERWRITE
            raise BundleExistsError(message, file=self._url, hint=advice) from None
        except FileNotFoundError:
            message = "expected a file or folder, got none"
            raise BundleMissingError(message, file=self._url) from None
        except ImportError as error:
            raise self._without(error) from None
        except OptionsError as error:
            message = f"expected storage_options that another process can read, got others: {self._brief(error)}"
            raise kind(message, file=self._url, hint=_AS_TEXT) from None
        except Exception as error:  # noqa: BLE001 - of any package that fsspec calls
            message = f"expected to {verb} the URL, got {self._brief(error)}"
            raise kind(message, file=self._url, hint=hint) from None

    def _without(self, error: ImportError) -> SerializationError:
        message = f"expected the package that reaches this URL, got: {error}"
        return SerializationError(message, code="NQX615", file=self._url, hint="install it")

    def _brief(self, error: Exception) -> str:
        text = _SECRETS.sub("", str(error))
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return f"{type(error).__name__}: {text}".removesuffix(": ")


Place = Path | RemotePath
"""A file or folder on a disk or behind a URL."""


def place_of(path: str | os.PathLike[str] | RemotePath, options: Options | None = None) -> Place:
    """The file or folder of a path or a URL; one that is known already stays as it is.

    Args:
        path: The path or the URL.
        options: Options of fsspec for the file system of a URL, such as keys.

    Raises:
        SerializationError: fsspec, or a package that it needs for this URL, is not installed; or a URL became
            a path on the way; or a path begins with ``~``.
    """
    if isinstance(path, RemotePath):
        return path
    if isinstance(path, str) and is_url(path):
        if path.lower().startswith("file://"):
            from urllib.parse import urlsplit
            from urllib.request import url2pathname

            return Path(url2pathname(urlsplit(path).path))
        return located(path, options)
    made = path if isinstance(path, Path) else Path(path)
    if str(made).startswith("~"):
        message = f"expected a path, got {str(made)!r}"
        raise SerializationError(message, code="NQX401", hint=WHOLE_PATH)
    if _MANGLED.match(str(made)) is None:
        return made
    message = f"expected a path, got the URL {_SECRETS.sub('', str(made))} as one"
    hint = "pass the URL as text: a path keeps only one of its slashes"
    raise SerializationError(message, code="NQX401", hint=hint)


def located(url: str, options: Options | None = None) -> RemotePath:
    """The file or folder behind a URL; the arguments are those of :func:`place_of`."""
    core = imported("fsspec.core", "remote", "URLs")
    from neuralqx_struct.places import far

    named = RemotePath(None, "", url, tuple(_secrets(url, options or {})))
    with named.reading():
        if far.is_far(url):
            files, place = far.url_to_fs(url, options or {})
        else:
            files, place = core.url_to_fs(url, **answers.bounded(url, options or {}))
    return RemotePath(files, place, url, tuple(_secrets(url, options or {})))


def _secrets(url: str, options: Options) -> Iterator[str]:
    """Yields the texts of a URL and of options that no message has, the longest of overlapping ones first."""
    from urllib.parse import parse_qsl, unquote

    texts: list[str] = []
    for user in _USER.findall(url):
        texts += [user, *user.split(":")]
    for _, value in parse_qsl(url.partition("?")[2]):
        texts.append(value)
    texts += [unquote(text) for text in texts]
    level: list[tuple[str, Any]] = [*options.items()]
    while level:
        name, value = level.pop()
        if isinstance(value, Mapping):
            level += ((f"{name}.{inner}", held) for inner, held in value.items())
        elif isinstance(value, str) and _SECRET_OPTIONS.search(name):
            texts.append(value)
    yield from sorted({text for text in texts if len(text) >= _SHORTEST}, key=len, reverse=True)
