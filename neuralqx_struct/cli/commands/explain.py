"""The command ``explain``: the page about a diagnostic code, or a list of all codes."""

from __future__ import annotations

import re
import textwrap

from neuralqx_struct.cli.arguments import Argument
from neuralqx_struct.cli.command import Command
from neuralqx_struct.cli.report import Report, failure
from neuralqx_struct.cli.terminal import columns
from neuralqx_struct.errors import did_you_mean
from neuralqx_struct.references import shipped


def run(code: str) -> Report:
    """Shows the page about a code, or lists all codes."""
    pages = {page.stem: page for page in sorted(shipped("docs/diagnostics").glob("NQX*.md"))}
    wanted = f"NQX{code}" if code.isdecimal() else code.upper()
    if not code:
        texts = [page.read_text(encoding="utf-8") for page in pages.values()]
        titles = [text.partition("\n")[0].removeprefix("# ") for text in texts]
        return Report("\n".join(titles), members={"codes": [*pages]}, layout="document")
    if wanted in pages:
        text = pages[wanted].read_text(encoding="utf-8").strip()
        members = {"code": wanted, "text": text}
        return Report(_wrapped(text), members=members, layout="document")
    # A code differs from its neighbours in one digit: only those of the same hundred are likely corrections.
    near = [known for known in pages if known[:4] == wanted[:4]]
    hint = did_you_mean(wanted, near) or "`neuralqx-struct explain` lists all codes"
    return failure("NQX400", f"expected a documented code, got {code!r}", hint)


def _wrapped(text: str) -> str:
    """A page whose paragraphs are as wide as the terminal; code, headings, lists and tables stay."""
    blocks = re.split(r"(^```.*?^```$|\n\n)", text, flags=re.MULTILINE | re.DOTALL)
    return "".join(
        textwrap.fill(block, columns(), break_long_words=False, break_on_hyphens=False)
        if re.match(r"\w|`(?!``)|\*\*", block)
        else block
        for block in blocks
    )


COMMAND = Command(
    name="explain",
    function="neuralqx_struct.cli.commands.explain.run",
    run=run,
    help="Explain a diagnostic code and its fix, or list all codes.",
    arguments=(Argument("code", "Such as NQX411.", "CODE", default=""),),
    examples=("explain NQX411", "explain"),
    members=("code", "codes", "text"),
)
