"""The directory of a zip archive: members lie apart from each other."""

import io
import struct
import zipfile

from neuralqx_struct.errors import UntrustedError
from neuralqx_struct.formats.archive import read_directory
from tests.builders import refused

PLACE = 42  # of the local header, in an entry of the directory


def stored(**members):
    """A zip of members that are stored."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return file.getvalue()


def nested(apart):
    """A zip of `a` and `b`, whose headers all agree; `b` lies behind `a`, or is a part of its data."""
    inner = stored(b="data of b")
    local = inner[: inner.index(b"PK\1\2")]
    whole = bytearray(stored(a=local, b="data of b"))
    second = whole.rindex(b"PK\1\2")
    [place] = struct.unpack_from("<I", whole, second + PLACE)
    inside = whole.index(local)
    assert inside < place
    if not apart:
        struct.pack_into("<I", whole, second + PLACE, inside)
    return memoryview(bytes(whole))


def test_members_inside_of_others_are_refused():
    assert [member.name for member in read_directory(nested(apart=True))] == ["a", "b"]
    with refused(UntrustedError, "NQX509", "b"):
        read_directory(nested(apart=False))
    with zipfile.ZipFile(io.BytesIO(nested(apart=False))) as archive:  # its directory is sound
        assert archive.namelist() == ["a", "b"]
