"""What the YAML language server of VS Code and other editors says of schema files; run by hand where there are node and npm.

    python tests/programs/yaml_server.py

fetches the server with npm into a temporary folder (or takes ``--server PATH``), talks to it over standard input and
output as an editor does, and compares for both published JSON Schemas: the valid files of the suite and the schemas
that ship get no finding, the malformed ones get some, and completion offers the members that belong at a place.
Exit code 1 if anything differs. It is no test of the suite: not every machine has node.
"""

import argparse
import json
import subprocess
import sys
import tempfile

from tests.builders import ROOT

SUITE = ROOT / "tests" / "suite" / "schema"
SHIPPED = sorted(file for file in (ROOT / "schemas").glob("*/v*.yaml"))
PUBLISHED = [ROOT / "schemas" / "struct-schema" / name for name in ("1.json", "1.draft-07.json")]
PACKAGE = "yaml-language-server@2.0.0"

#: What an editor can see of the suite: broken YAML, duplicate keys, keys that are no text, members that do not belong.
MALFORMED = {
    "NQX001",
    "NQX002",
    "NQX006",
    "NQX008",
    "NQX009",
    "NQX010",
    "NQX012",
    "NQX014",
    "NQX017",
}

FIELD = "structs:\n  Net:\n    fields:\n      w: "
#: What must be offered where the bar stands.
COMPLETIONS = {
    "|": {
        "language",
        "schema",
        "version",
        "root",
        "dims",
        "enums",
        "structs",
        "migrations",
        "uses",
    },
    'language: "1"\n|': {"schema", "version", "root", "structs"},
    "compatibility: |": {"none", "backward", "full-transitive"},
    "dims:\n  n:\n    |": {"min", "max", "equals", "doc"},
    "enums:\n  Mode:\n    |": {"members", "default", "doc"},
    "structs:\n  Net:\n    |": {"doc", "params", "fields", "constraints", "reserved", "aliases"},
    FIELD + "|": {"float32[n]", "int", "prng_key[threefry2x32]", "pytree"},
    FIELD + "\n        |": {
        "type",
        "dtype",
        "shape",
        "kind",
        "default",
        "tags",
        "unit",
        "ge",
        "choices",
    },
    FIELD + "{type: int, ki|}": {"kind", "default"},
    FIELD + "{type: |}": {"array", "float | null", "dict[str, float]"},
    FIELD + "{kind: |}": {"node", "static", "opaque"},
    FIELD + "\n        type: array\n        dtype: |": {"float32", "bfloat16", "complex128"},
    FIELD + "\n        type: prng_key\n        impl: |": {"threefry2x32", "rbg"},
    "structs:\n  Net:\n    constraints:\n      - |": {"expr", "message"},
    "migrations:\n  - from: 1\n    steps:\n      - |": {
        "rename",
        "add",
        "split",
        "merge",
        "wrap_key",
        "python",
    },
    "migrations:\n  - from: 1\n    steps:\n      - rename:\n          |": {"in", "field", "to"},
}


class Server:
    """The language server as an editor sees it: messages of JSON-RPC with a header that says their length."""

    def __init__(self, command):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.settings = {"validate": True, "completion": True, "schemaStore": {"enable": False}}
        self.sent, self.findings = 0, {}
        client = {
            "workspace": {"configuration": True},
            "textDocument": {"publishDiagnostics": {}, "completion": {}},
        }
        self.ask("initialize", processId=None, rootUri=None, capabilities=client)
        self.tell("initialized")
        self.tell("workspace/didChangeConfiguration", settings={"yaml": self.settings})

    def send(self, **message):
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        self.process.stdin.flush()

    def receive(self):
        """The next message; what the server itself asks for is answered on the way."""
        length = 0
        while header := self.process.stdout.readline().strip():
            name, _, value = header.partition(b":")
            length = int(value) if name.lower() == b"content-length" else length
        if not length:
            raise SystemExit("the server ended")
        message = json.loads(self.process.stdout.read(length))
        if message.get("method") == "textDocument/publishDiagnostics":
            self.findings[message["params"]["uri"]] = [
                found["message"] for found in message["params"]["diagnostics"]
            ]
        elif "method" in message and "id" in message:
            items = message.get("params", {}).get("items", [])
            self.send(
                id=message["id"],
                result=[self.settings if i.get("section") == "yaml" else {} for i in items],
            )
        return message

    def tell(self, method, **params):
        self.send(method=method, params=params)

    def ask(self, method, **params):
        self.sent += 1
        self.send(id=self.sent, method=method, params=params)
        while (message := self.receive()).get("id") != self.sent or "method" in message:
            pass
        return message["result"]

    def check(self, uri, text):
        """The messages about a file that the editor has opened."""
        self.findings.pop(uri, None)
        self.tell(
            "textDocument/didOpen",
            textDocument={"uri": uri, "languageId": "yaml", "version": 1, "text": text},
        )
        while uri not in self.findings:
            self.receive()
        return self.findings[uri]

    def complete(self, uri, text):
        """What is offered where the bar stands in a text."""
        before, _, after = text.partition("|")
        self.check(uri, before + after)
        position = {"line": before.count("\n"), "character": len(before.rpartition("\n")[2])}
        return {
            item["label"]
            for item in self.ask(
                "textDocument/completion", textDocument={"uri": uri}, position=position
            )["items"]
        }


def differences(server):
    """What an editor shows that it should not, and what it should and does not."""
    for file in SHIPPED:
        found = server.check(file.as_uri(), file.read_text(encoding="utf-8"))
        if found:
            yield f"{file}: expected no finding, got {found}"
    for published in PUBLISHED:
        modeline = f"# yaml-language-server: $schema={published.as_uri()}\n"
        folder = f"file:///suite/{published.stem}"
        for file in sorted(SUITE.glob("*/*")):
            found = server.check(
                f"{folder}/{file.parent.name}/{file.name}",
                modeline + file.read_text(encoding="utf-8"),
            )
            if file.parent.name == "valid" and found:
                yield f"{published.name}: {file}: expected no finding, got {found}"
            if file.parent.name == "invalid" and bool(found) != (file.stem in MALFORMED):
                yield f"{published.name}: {file}: expected {'a' if file.stem in MALFORMED else 'no'} finding, got {found}"
        for number, (text, expected) in enumerate(COMPLETIONS.items()):
            missing = expected - server.complete(
                f"{folder}/completion{number}.yaml", modeline + text
            )
            if missing:
                yield f"{published.name}: {text!r}: expected {sorted(missing)} to be offered, got others"


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--server", help="an installed yaml-language-server; otherwise npm fetches one"
    )
    given = parser.parse_args().server
    with tempfile.TemporaryDirectory() as folder:
        if given is None:
            subprocess.run(["npm", "install", "--silent", "--prefix", folder, PACKAGE], check=True)
        server = Server([given or f"{folder}/node_modules/.bin/yaml-language-server", "--stdio"])
        try:
            found = list(differences(server))
        finally:
            server.process.kill()
    print("\n".join(found) or f"{PACKAGE} agrees with the suite")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
