"""The records of the zip format, which the reader and the writer of archives share.

Owns layouts and numbers of the format alone: ``archive.py`` reads by them, ``archive_writer.py`` writes by them.
"""

from __future__ import annotations

import struct
from typing import Final

__all__ = [
    "ALIGNMENT",
    "CENTRAL",
    "DEFLATED",
    "DESCRIPTOR",
    "ENCRYPTED",
    "END",
    "END64",
    "LOCAL",
    "LOCATOR",
    "MAX16",
    "MAX32",
    "STORED",
    "UTF8",
]

ALIGNMENT: Final = 64
STORED: Final = 0
DEFLATED: Final = 8
LOCAL: Final = struct.Struct("<4s5H3I2H")
CENTRAL: Final = struct.Struct("<4s6H3I5H2I")
END: Final = struct.Struct("<4s4H2IH")
END64: Final = struct.Struct("<4sQ2H2I4Q")
LOCATOR: Final = struct.Struct("<4sIQI")
MAX16, MAX32 = 0xFFFF, 0xFFFFFFFF
ENCRYPTED, DESCRIPTOR, UTF8 = 0x1, 0x8, 0x800
