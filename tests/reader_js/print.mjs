// Prints the contents of bundles as docs/format.md writes those of the test vectors.
//
//     echo '["path/of/a/bundle"]' | node print.mjs
//
// A line of JSON for each path: its contents, or the code of the rule by which it is refused.

import { readFileSync } from "node:fs";
import { FROM, elementOf, isObject, product, readBundle, typesOf } from "./reader.mjs";

const outNumber = (value) => {
  if (typeof value !== "number" || (Number.isFinite(value) && !Object.is(value, -0))) return value;
  return value === 0 ? "-0" : String(value).toLowerCase().replace("infinity", "inf");
};
const out = (element) => (Array.isArray(element) ? element.map(outNumber) : outNumber(element));

function describe(value, arrays) {
  const below = (each) => describe(each, arrays);
  if (Array.isArray(value)) return value.map(below);
  if (typeof value === "number") return { float: outNumber(value) };
  if (!isObject(value)) return value;
  const { __kind__: kind, dtype, shape, leaf, weak_type } = value, plain = FROM[kind]?.(value);
  if (kind === "bigint") return plain;
  if (FROM[kind]) return { [kind]: plain instanceof Buffer ? plain.toString("hex") : out(plain) };
  if (kind === "numpy-scalar") return { [kind]: dtype, value: out(elementOf(value)) };
  if (shape) {
    const length = Number(product(shape));
    const all = arrays.get(value.name) ?? Array.from({ length }, () => elementOf(value));
    return { array: dtype, shape, values: all.map(out), leaf, weak_type };
  }
  const names = Object.keys(typesOf(value)).map((name) => name.replace("?", ""));
  const member = (name) => name !== "fields" ? below(value[name])
    : Object.fromEntries(Object.entries(value.fields).map(([key, each]) => [key, below(each)]));
  const held = names.filter((name) => name in value);
  return Object.fromEntries(held.map((name, index) => [index ? name : kind, member(name)]));
}

const toText = (value) =>
  JSON.stringify(value, (_, each) => typeof each === "bigint" ? JSON.rawJSON(String(each)) : each);
for (const path of JSON.parse(readFileSync(0))) {
  try {
    const { document, arrays } = readBundle(path);
    console.log(toText({ path, contents: describe(document.manifest, arrays) }));
  } catch (error) {
    if (!error.code?.startsWith("NQX")) throw error;
    console.log(toText({ path, refused: error.code, message: error.message }));
  }
}
