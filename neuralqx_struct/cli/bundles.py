"""What the commands about bundles do, as reports; no option parser is needed for it.

``commands.py`` gives them a command line, and ``__init__.py`` a short way past it for plain calls.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from neuralqx_struct.cli.reporters import Report, each
from neuralqx_struct.errors import Diagnostic, has_errors

__all__ = ["convert", "inspect", "present", "validate", "verify"]


def present(path: Path) -> Path:
    """The path of a schema, which must exist.

    Raises:
        SchemaMissingError: There is nothing.
    """
    if not path.exists():
        from neuralqx_struct.schema.series import SchemaMissingError

        raise SchemaMissingError.at(path)
    return path


def validate(paths: Sequence[Path], schema: Path | None = None) -> Report:
    """Check manifests against the published format and their schemas."""
    from neuralqx_struct import inspection

    wanted: Any = None
    if schema is not None:
        from neuralqx_struct.schema.series import load_series

        wanted = load_series(present(schema))
    return each(
        "validate", paths, lambda path: inspection.validate(path, wanted), "valid (arrays not read: verify reads them)"
    )


def verify(paths: Sequence[Path]) -> Report:
    """Read every byte and compare it with its checksum."""
    from neuralqx_struct import bundle
    from neuralqx_struct.cli.progress import progress_bar

    def check(path: Path) -> list[Diagnostic]:
        with progress_bar(f"verifying {path.name}") as advance:
            found = bundle.verify(path, progress=advance)
        if has_errors(found) and not os.path.lexists(path):
            raise bundle.BundleMissingError(found)
        return found

    return each("verify", paths, check, "intact")


def convert(source: Path, out: Path, **how: Any) -> Report:
    """Write a bundle in another form or store."""
    from neuralqx_struct import conversion
    from neuralqx_struct.bundle import BundleExistsError
    from neuralqx_struct.cli.progress import progress_bar

    if os.path.lexists(out) and not how.get("overwrite"):
        message = "expected a new path, got one that exists"
        raise BundleExistsError(message, file=str(out), hint="pass --overwrite, or choose another DST")
    with progress_bar("converting") as advance:
        done = conversion.convert(source, out, **how, progress=advance)
    members = {
        "out": str(done.out),
        "store": done.store,
        "arrays": done.arrays,
        "nbytes": done.nbytes,
        "dropped": list(done.dropped),
        "linked": done.linked,
    }
    return Report("convert", text=str(done), members=members)


def inspect(path: Path, chosen: str | None = None) -> Report:
    """Show what is in a bundle."""
    from neuralqx_struct import inspection

    if chosen is not None:
        from neuralqx_struct import filters

        try:
            filters.parse(chosen)
        except filters.FilterError as error:
            return Report("inspect", failures=error.diagnostics)
    seen = inspection.inspect(path, chosen)
    return Report("inspect", text=str(seen), members={"bundle": seen.to_json()})
