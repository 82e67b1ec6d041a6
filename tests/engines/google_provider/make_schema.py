"""Writes schema.json anew: arguments and blocks of the resources of our Terraform, as hashicorp/google has them.

    npm pack @cdktf/provider-google@16.12.1
    python tests/engines/google_provider/make_schema.py cdktf-provider-google-16.12.1.tgz

The provider's own registry is not within reach of every machine; this package is code that was generated of the
provider's schema, so it names every argument with its type. It does not say which optional arguments are computed, too,
and what values an argument may have.
"""

import json
import re
import sys
import tarfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
SCALARS = {"string": "string", "boolean": "bool", "number": "number", "any": "string"}


def used() -> tuple[set[str], set[str]]:
    """Types of resources and of data sources in our module, as `google_storage_bucket`."""
    text = "".join(path.read_text() for path in (ROOT / "launch/dataflow/terraform").glob("*.tf"))
    resources, sources = (set(re.findall(rf'^{kind} "(google_\w+)"', text, re.M)) for kind in ("resource", "data"))
    return resources, sources


def attribute_type(storage: str) -> Any:
    """A type as Terraform's JSON has it, of a name like `stringList`."""
    if kind := re.fullmatch("(string|number|boolean|any)(List|Set|Map)", storage):
        return [kind[2].lower(), SCALARS[kind[1]]]
    return SCALARS[storage]


class Package:
    """One resource's generated code."""

    def __init__(self, code: str, types: str):
        self._code = code
        self._types = types

    def schema(self, class_: str) -> dict[str, Any]:
        body = self._body(rf"class {class_} extends cdktf\.Terraform\w+ ")
        return self._block(self._entries(self._body("synthesizeHclAttributes", body)), f"{class_}Config", body)

    def _block(self, entries: list[tuple[str, str]], interface: str, getters: str) -> dict[str, Any]:
        required = set(re.findall(r"readonly (\w+):", self._body(f"export interface {interface} ", self._types)))
        attributes: dict[str, Any] = {}
        blocks: dict[str, Any] = {}
        for name, text in entries:
            camel = re.sub("_(.)", lambda letter: letter[1].upper(), name)
            (storage,) = re.findall(r'storageClassType: "(\w+)"', text)
            if "isBlock: true" in text and not re.fullmatch(r"\w+Map", storage):
                blocks[name] = self._nested(storage.removesuffix("List"), text, camel in required)
            else:
                kind = attribute_type(storage)
                if isinstance(kind, list) and 'type: "set"' in text:
                    kind[0] = "set"
                attributes[name] = {"type": kind, ("required" if camel in required else "optional"): True}
        if interface.endswith("Config") and "id" in attributes:
            attributes["id"]["computed"] = True  # of every resource
        for kind, name in re.findall(r"get(String|Number|Boolean)Attribute\('(\w+)'\)", getters):
            attributes.setdefault(name, {"type": SCALARS[kind.lower()], "computed": True})
        for name in re.findall(r'new cdktf\.StringMap\(this, "(\w+)"\)', getters):
            attributes.setdefault(name, {"type": ["map", "string"], "computed": True})
        return {"attributes": attributes, **({"block_types": blocks} if blocks else {})}

    def _nested(self, class_: str, text: str, is_required: bool) -> dict[str, Any]:
        function = f"{class_[0].lower()}{class_[1:]}ToHclTerraform"
        entries = self._entries(self._body(rf"function {function}\("))
        # What nobody can refer to has none, as the blocks of the provider itself.
        referred = f"class {class_}OutputReference "
        getters = self._body(referred) if referred in self._code else ""
        nested = {"block": self._block(entries, class_, getters)}
        if class_.endswith("Timeouts"):
            return {"nesting_mode": "single", **nested}
        many = f"class {class_}List " in self._code
        (mode,) = set(re.findall(r'type: "(list|set)"', text)) or {"list"}
        return {
            "nesting_mode": mode,
            **nested,
            **({"min_items": 1} if is_required else {}),
            **({} if many else {"max_items": 1}),
        }

    def _body(self, beginning: str, code: str | None = None) -> str:
        """From a line on, to the brace that stands where that line begins."""
        code = self._code if code is None else code
        found = re.search(rf"^( *)(?:export )?(?:declare )?{beginning}.*?^\1}}", code, re.M | re.S)
        if not found:
            raise SystemExit(f"no {beginning}")
        return found[0]

    @staticmethod
    def _entries(body: str) -> list[tuple[str, str]]:
        attributes = body.partition("const attrs = {")[2]
        return re.findall(r"^ +(\w+): \{\n(.*?storageClassType: .*?)\},$", attributes, re.M | re.S)


def main(path: Path) -> None:
    with tarfile.open(path) as archive:

        def read(name: str) -> str:
            file = archive.extractfile(f"package/{name}")
            assert file
            return file.read().decode()

        def schema(name: str, prefix: str) -> dict[str, Any]:
            words = [*prefix.split(), *name.removeprefix("google_").split("_")]
            folder = f"lib/{'-'.join(words)}"
            package = Package(read(f"{folder}/index.js"), read(f"{folder}/index.d.ts"))
            return package.schema("".join(map(str.capitalize, words)))

        described = json.loads(read("package.json"))
        resources, sources = used()
        schemas = {
            "resource_schemas": {name: schema(name, "") for name in sorted(resources)},
            "data_source_schemas": {name: schema(name, "data google") for name in sorted(sources)},
        }
    made_of = f"{described['name']} {described['version']}"
    provider = f"hashicorp/google {described['cdktf']['provider']['version']}"
    lines = [f'"made_of": {json.dumps(f"{made_of}, of {provider}")}']
    for kind, blocks in schemas.items():
        # A line for each, so that it can be seen what has changed.
        lines.append(
            f'"{kind}": {{\n' + ",\n".join(f'"{name}": {json.dumps(block)}' for name, block in blocks.items()) + "}"
        )
    Path(__file__).with_name("schema.json").write_text("{" + ",\n".join(lines) + "}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
