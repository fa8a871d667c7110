// A reader of bundles in JavaScript, written from docs/format.md: `readBundle(path)` returns the
// document and the arrays, or throws an Error with the code of the rule by which it is refused.
import { createHash } from "node:crypto";
import { lstatSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { crc32, inflateRawSync } from "node:zlib";

function check(condition, code, message) {
  if (!condition) throw Object.assign(new Error(message), { code });
}
function uint(file, at, size) {
  check(at >= 0 && at + size <= file.length, "NQX408", `expected ${size} bytes at byte ${at}`);
  return file.readUIntLE(at, size);
}

// JSON. Integers become BigInts, and tokens such as NaN nodes of kind float.
const STRING = String.raw`"[^"\\]*(?:\\[^][^"\\]*)*"`;
const FLOAT_NODES = { NaN: "nan", Infinity: "inf", "-Infinity": "-inf" };
export const isObject = (value) => !Array.isArray(value) && typeof (value ?? 0) === "object";

function parseJson(bytes) {
  const tokens = [];
  let document, text, members = 0;
  const asNode = (token, string) =>
    string ?? (tokens.push(token), `{"__kind__": "float", "value": "${FLOAT_NODES[token]}"}`);
  const revive = (_, value, { source }) => {
    const words = isObject(value) ? Object.keys(value) : [value];
    check(words.every((word) => word?.isWellFormed?.() ?? true), "NQX001", "expected Unicode");
    members += isObject(value) ? words.length : 0;
    if (isObject(value)) return Object.assign(Object.create(null), value);
    const isInteger = typeof value === "number" && /^-?[0-9]+$/.test(source);
    check(typeof value !== "number" || isInteger || Number.isFinite(value), "NQX013", source);
    check(!isInteger || source.length <= 4300, "NQX612", "expected fewer digits");
    return isInteger ? BigInt(source) : value;
  };
  try {
    text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
    text = text.replace(RegExp(`(${STRING})|-?Infinity|NaN`, "g"), asNode);
    document = JSON.parse(text, revive);
  } catch (error) {
    const code = error instanceof RangeError ? "NQX005" : "NQX001"; // too deep for the parser
    check(false, error.code?.startsWith("NQX") ? error.code : code, error.message);
  }
  const colons = text.replace(RegExp(STRING, "g"), "").split(":").length - 1;
  check(colons === members, "NQX014", "expected each member once");
  check(isObject(document), "NQX612", "expected an object");
  return { document, tokens };
}

// Types of members: functions that check a value.
const MARKS =
  String.raw`\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff`;
const LABEL = RegExp(`^[^${MARKS}]*$`);
const CLASS = RegExp(`^([^@${MARKS}]*|[^@:${MARKS}]+@[1-9][0-9]{0,17}:[^@:${MARKS}]+)$`);
const FACTORIES =
  "none|list|dict|set|frozenset|tuple|int|float|complex|bool|str|bytes|OrderedDict|Counter|deque";
const text = (value) => check(typeof value === "string", "NQX612", "expected a string");
const matching = (pattern, code = "NQX614") => (value) => {
  text(value);
  check(pattern.test(value), code, `expected other text, got ${value.slice(0, 80)}`);
};
const oneOf = (words) => matching(RegExp(`^(${words})$`));
const integer = (least, most = Infinity) => (value) => {
  check(typeof value === "bigint", "NQX612", "expected an integer");
  check(value >= least && value <= most, "NQX614", `expected one in range, got ${value}`);
};
const listOf = (type) => (value) => {
  check(Array.isArray(value), "NQX612", "expected a list");
  value.forEach((item) => type(item));
};
const objectOf = (type) => (value) => {
  check(isObject(value), "NQX612", "expected an object");
  Object.values(value).forEach((member) => type(member));
};
const members = (types) => (value) => {
  check(isObject(value), "NQX612", "expected an object");
  for (const [name, type] of Object.entries(types)) {
    const plain = name.replace("?", "");
    check(name !== plain || plain in value, "NQX610", `expected a member ${plain}`);
    if (plain in value) type(value[plain]);
  }
  for (const [name, member] of Object.entries(value)) {
    if (Object.hasOwn(types, name) || Object.hasOwn(types, `${name}?`)) continue;
    const mark = isObject(member) ? member.must_understand : undefined;
    check(mark === false, mark === true ? "NQX403" : "NQX611", `expected no member ${name}`);
  }
};
const label = matching(LABEL), reference = matching(LABEL, "NQX501");
const isTrue = (value) => check(value === true, "NQX612", "expected true");
const crc = integer(0n, 2n ** 32n - 1n), count = integer(0n);
const sizes = listOf(integer(0n, 2n ** 63n - 1n));
const shape = (value) => (sizes(value), check(value.length <= 64, "NQX614", "got many axes"));

// Nodes and the document.
const met = { depth: 0, nodes: [], count: 0 };
const nodeOf = (...kinds) => (value) => {
  const kind = value?.__kind__ ?? (value === null ? "null" : typeof value);
  check(kinds.includes(kind), "NQX612", `expected ${kinds}, got ${kind}`);
  node(value);
};
const nodes = listOf(node), fields = objectOf(node), number = nodeOf("bigint", "number", "float");
const SCALARS = "null boolean bigint number string float complex bytes".split(" ");
const BASE64 = /^[A-Za-z0-9+/]*={0,2}$/;
const base64 = matching({ test: (value) => value.length % 4 === 0 && BASE64.test(value) });
const isPair = (pair) => check(pair?.length === 2, "NQX612", "expected a pair of nodes");
const pairs = listOf((pair) => (isPair(pair), nodes(pair)));
const sized = { dtype: label, shape, "leaf?": oneOf("jax|numpy"), "weak_type?": isTrue };
const instance = { type: reference, fields };
const slots = (type) => ({ start: type, stop: type, step: type });
const KINDS = {
  struct: { type: matching(CLASS, "NQX501"), fields },
  namedtuple: instance, "pytree-dataclass": instance,
  dict: { items: pairs }, "ordered-dict": { items: pairs },
  counter: { items: pairs }, "mapping-proxy": { items: pairs },
  defaultdict: { items: pairs, factory: oneOf(FACTORIES) },
  list: { items: nodes }, tuple: { items: nodes }, set: { items: nodes },
  frozenset: { items: nodes }, deque: { items: nodes, maxlen: nodeOf("null", "bigint") },
  "registered-pytree": { type: reference, mode: oneOf("flatten|serializer") },
  array: { name: text, ...sized }, full: { ...sized, value: nodeOf(...SCALARS) },
  "numpy-scalar": { dtype: label, value: nodeOf(...SCALARS) },
  "prng-key": { impl: label, data: nodeOf("array") },
  complex: { real: number, imag: number }, float: { value: oneOf("nan|inf|-inf") },
  bigint: { value: matching(/^-?[0-9]{1,100000}$/) }, bytes: { base64 }, bytearray: { base64 },
  path: { value: text, "pure?": oneOf("posix|windows") }, external: { name: label },
  datetime: { type: oneOf("datetime|date|time|timedelta"), value: label },
  dtype: { value: label }, reference: { name: label }, enum: { type: reference, name: label },
  range: slots(nodeOf("bigint")), slice: slots(node),
};
const MODES = { flatten: { children: nodes, aux: node }, serializer: { payload: node } };
export const typesOf = (value) => ({ ...KINDS[value.__kind__], ...MODES[value.mode] });

function node(value) {
  check(++met.depth <= 200 && ++met.count <= 1e6, "NQX005", "expected fewer nodes");
  check(!Array.isArray(value), "NQX612", "expected a node, got a list");
  if (isObject(value)) {
    check("__kind__" in value, "NQX610", "expected a member __kind__");
    text(value.__kind__);
    check(Object.hasOwn(KINDS, value.__kind__), "NQX613", `got the kind ${value.__kind__}`);
    members({ __kind__: text, ...typesOf(value) })(value);
    met.nodes.push(value);
  }
  met.depth -= 1;
}

function free(value) {
  check(++met.depth < 600 && ++met.count <= 1e6, "NQX005", "expected fewer values");
  if (value !== null && typeof value === "object") Object.values(value).forEach(free);
  met.depth -= 1;
}
const isVersion = (value) =>
  check(value === 1n, typeof value === "bigint" ? "NQX402" : "NQX612", "expected version 1");
const records = objectOf(members({
  dtype: label, shape, "crc32?": crc, "nbytes?": count, "offset?": count, "unused?": isTrue,
  "file?": matching(/^[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}$/, "NQX503"),
  "chunk?": shape, "chunk_crc32?": listOf(crc),
}));
const checkDocument = members({
  "$schema?": text, version: isVersion, manifest: node, arrays: records,
  "schema?": members({ id: label, version: integer(1n), fingerprint: label }),
  "schemas?": listOf(objectOf(free)), "metadata?": objectOf(free),
  "writer?": members({ name: label, version: label }), "digest?": matching(/^sha256:[0-9a-f]{64}$/),
});
const LAST = /\n([ \t]*"digest": "sha256:([0-9a-f]{64})"\s*\}\s*)$/;
function readManifest(bytes) {
  check(bytes.length <= 2 ** 28, "NQX005", "expected a smaller manifest");
  const { document, tokens } = parseJson(bytes);
  check(tokens.length === 0 || !("writer" in document), "NQX013", `got the token ${tokens[0]}`);
  if ("version" in document) isVersion(document.version);
  const isForeign = Object.keys(document).sort().join() === "arrays,manifest,version";
  if (!isForeign) {
    const [, line, digest] = LAST.exec(bytes.subarray(-4096).toString("latin1")) ?? [];
    check(line, "NQX407", "expected the digest on the last line");
    const covered = bytes.subarray(0, bytes.length - line.length);
    const own = createHash("sha256").update(covered).digest("hex");
    check(own === digest, "NQX407", `expected the digest ${own}`);
  }
  Object.assign(met, { depth: 0, nodes: [], count: 0 });
  checkDocument(document);
  const isComplete = (record) => isForeign || ("crc32" in record && "nbytes" in record);
  check(Object.values(document.arrays).every(isComplete), "NQX407", "got no crc32 or nbytes");
  return document;
}

// Dtypes: the size of an element, and a function that reads one from its bytes, the least first.
// Size; bits of sign, exponent and mantissa; bias; patterns that are NaN.
const FLOATS = {
  float16: [2, 1, 5, 10, 15, "IEEE"], float32: [4, 1, 8, 23, 127, "IEEE"],
  float64: [8, 1, 11, 52, 1023, "IEEE"], bfloat16: [2, 1, 8, 7, 127, "IEEE"],
  float8_e3m4: [1, 1, 3, 4, 3, "IEEE"], float8_e4m3: [1, 1, 4, 3, 7, "IEEE"],
  float8_e4m3b11fnuz: [1, 1, 4, 3, 11, [0x80]], float8_e4m3fn: [1, 1, 4, 3, 7, [0x7f, 0xff]],
  float8_e4m3fnuz: [1, 1, 4, 3, 8, [0x80]], float8_e5m2: [1, 1, 5, 2, 15, "IEEE"],
  float8_e5m2fnuz: [1, 1, 5, 2, 16, [0x80]], float8_e8m0fnu: [1, 0, 8, 0, 127, [0xff]],
  float6_e2m3fn: [1, 1, 2, 3, 1, []], float6_e3m2fn: [1, 1, 3, 2, 3, []],
  float4_e2m1fn: [1, 1, 2, 1, 1, []],
};
function decodeFloat(bits, [, sign, e, m, bias, special]) {
  const all = bits % 2 ** (sign + e + m), minus = sign && all >> (e + m) ? -1 : 1;
  const exponent = (all >> m) % 2 ** e, mantissa = all % 2 ** m;
  if (special === "IEEE" && exponent === 2 ** e - 1) return mantissa ? NaN : minus * Infinity;
  if (special.includes(all)) return NaN;
  if (exponent === 0 && m) return minus * mantissa * 2 ** (1 - bias - m);
  return minus * (1 + mantissa / 2 ** m) * 2 ** (exponent - bias);
}
const dtype = (family, size, unit, read, more) => ({ family, size, unit, read, ...more });
const floatOf = (facts) => dtype("float", facts[0], facts[0], (bytes) => {
  if (facts[0] > 2) return facts[0] === 8 ? bytes.readDoubleLE() : bytes.readFloatLE();
  return decodeFloat(bytes.readUIntLE(0, facts[0]), facts);
}, { facts });
const complexOf = (half) => dtype("complex", 2 * half.size, half.size, (bytes) =>
  [half.read(bytes), half.read(bytes.subarray(half.size))], { half });
const integerOf = (bits, as, family = "integer", size = Math.max(1, bits / 8)) => dtype(
  family, size, size, (bytes) => as(bits, BigInt(`0x${bytes.reverse().toString("hex")}`)),
  { fits: (value) => as(bits, value) === value });
const textOf = (length) => dtype("text", 4 * length, 4, (bytes) => {
  const points = Array.from({ length }, (_, i) => bytes.readUInt32LE(4 * i));
  return String.fromCodePoint(...points).replace(/\0+$/, "");
});
const bytesOf = (size) => dtype("bytes", size, 1, (bytes) =>
  Buffer.from(bytes.toString("latin1").replace(/\0+$/, ""), "latin1").toString("hex"));
const NAMES = { __proto__: null, bool: dtype("bool", 1, 1, (bytes) => bytes[0] !== 0) };
for (const name of Object.keys(FLOATS)) NAMES[name] = floatOf(FLOATS[name]);
for (const bits of [1, 2, 4, 8, 16, 32, 64]) {
  NAMES[`int${bits}`] = integerOf(bits, BigInt.asIntN);
  NAMES[`uint${bits}`] = integerOf(bits, BigInt.asUintN);
}
for (const n of [32, 64, 128]) NAMES[`complex${n}`] = complexOf(NAMES[`float${n / 2}`]);
NAMES.bcomplex32 = complexOf(NAMES.bfloat16);
const CODE = /^[<>=](?:([iuf][248]|c8|c16)|U([0-9]{1,8}))$|^[|<>=]?(?:([biu]1)|S([0-9]{1,8}))$/;
const DATE = /^(datetime64|timedelta64|[<>=]?[mM]8)(\[[0-9]{0,9}([YMWDhms]|[munpfa]s)\])?$/;
const LETTERS = { b: "bool", i: "int", u: "uint", f: "float", c: "complex" };
function dtypeOf(name) {
  const [, many, length, one, bytes] = CODE.exec(name) ?? [], code = many ?? one;
  let same = name.replace(/^[<>=|]/, "").replace(/^M8/, "datetime64").replace(/^m8/, "timedelta64");
  if (code) same = LETTERS[code[0]] + (code === "b1" ? "" : 8 * code.slice(1));
  let found = NAMES[code ? same : name];
  if (length !== undefined) found = textOf(Number(length));
  if (bytes !== undefined) found = bytesOf(Number(bytes));
  if (DATE.test(name)) found = integerOf(64, BigInt.asIntN, "date");
  check(found, "NQX411", `expected a dtype, got ${name}`);
  const isBig = name[0] === ">" && found.unit > 1;
  return { ...found, name, isBig, same: (isBig ? ">" : "") + same };
}

// The elements of an array in C order.
function elements({ dtype, data, shape, isFortran }) {
  const axes = shape.map(Number), size = dtype.size;
  const strides = axes.map((_, axis) => axes.slice(0, axis).reduce((a, b) => a * b, 1));
  const step = ([place, rest], length, axis) =>
    [place + (rest % length) * strides[axis], Math.floor(rest / length)];
  return Array.from({ length: axes.reduce((a, b) => a * b, 1) }, (_, index) => {
    const place = isFortran ? axes.reduceRight(step, [0, index])[0] : index;
    const own = Buffer.from(data.subarray(place * size, (place + 1) * size));
    return dtype.read(dtype.isBig ? own[`swap${8 * dtype.unit}`]() : own);
  });
}

// Zip archives, npz and safetensors.
const SPECIAL = /[\\:\u0000-\u001f\u007f]/g;
const isUnsafe = (name) => /(^|\/)\.{0,2}(\/|$)/.test(name) || name.search(SPECIAL) >= 0;
function readZip(file) {
  const sound = (fits, code = "NQX408") => check(fits, code, "expected a sound zip archive");
  const marks = (at, mark) => file.toString("latin1", at, at + 4) === `PK${mark}`;
  const numbers = (at, ...sizes) => sizes.map((size) => uint(file, (at += size) - size, size));
  const end = file.length - 22, found = new Map();
  sound(end >= 0 && marks(end, "\x05\x06"));
  const [disk, here, count, length, begin, comment] = numbers(end + 4, 4, 2, 2, 4, 4, 2);
  sound(disk === 0 && here === count && comment === 0 && begin + length === end);
  let at = begin;
  for (let left = count; left > 0; left -= 1) {
    const [flags, method] = numbers(at + 8, 2, 2), [crc, stored, size] = numbers(at + 16, 4, 4, 4);
    const [long, extra, notes, part, , mode, head] = numbers(at + 28, 2, 2, 2, 2, 2, 4, 4);
    const raw = file.subarray(at + 46, at + 46 + long), name = raw.toString();
    const place = head + 30 + long, wide = (n) => uint(file, place + n, 6);
    sound(marks(at, "\x01\x02") && part === 0 && Math.max(stored, size, head) < 2 ** 32 - 1);
    sound([0, 8].includes(mode >>> 28), "NQX504");
    sound(!(flags & 1) && (method === 8 || (method === 0 && stored === size)), "NQX508");
    sound(!found.has(name), "NQX509");
    sound(Buffer.from(name).equals(raw) && !isUnsafe(name), "NQX503");
    const own = numbers(head + 14, 4, 4, 4);
    if (own.includes(2 ** 32 - 1)) own.splice(1, 2, wide(12), wide(4));
    sound(marks(head, "\x03\x04") && numbers(head + 6, 2, 2).join() === [flags, method].join());
    sound(flags & 8 || own.join() === [crc, stored, size].join());
    const start = place + numbers(head + 28, 2)[0], stop = start + stored;
    sound(raw.equals(file.subarray(head + 30, place)) && stop <= begin);
    found.set(name, { head, start, stop, size, isDeflated: method === 8, crc });
    at += 46 + long + extra + notes;
  }
  sound(at === end);
  const sorted = [...found.values()].sort((a, b) => a.head - b.head);
  sorted.forEach((each, i) => sound(i === 0 || each.head >= sorted[i - 1].stop, "NQX509"));
  return found;
}
function content(file, { start, stop, size, isDeflated }, most) {
  const data = file.subarray(start, stop);
  if (!isDeflated) return data;
  check(size <= most, "NQX505", `expected at most ${most} bytes, got ${size}`);
  try {
    const { buffer, engine } = inflateRawSync(data, { info: true, maxOutputLength: size || 1 });
    if (buffer.length === size && engine.bytesWritten === data.length) return buffer;
  } catch (error) {
    check(error.code !== "ERR_BUFFER_TOO_LARGE", "NQX505", `expected ${size} bytes, got more`);
  }
  return check(false, "NQX408", `expected data that expand to ${size} bytes`);
}

// A store gives the arrays of a file by key, as functions that find the data of a record.
const HEADER =
  /^\{'descr': '([^']{1,40})', 'fortran_order': (True|False), 'shape': \(([0-9, ]*)\), \} *\n$/;
const ADDED = /^(bfloat16|float[468]_.*|u?int[124]|b?complex32)$/;
function readNpz(file) {
  const find = (member) => ({ record, dtype, nbytes }) => {
    const all = content(file, member, nbytes + 65548), begin = all[6] === 1 ? 10 : 12;
    check(/^\x93NUMPY[\x01-\x03]/.test(all.toString("latin1", 0, 7)), "NQX408", "got no .npy");
    const lead = begin + uint(all, 8, begin - 8), header = all.toString("latin1", begin, lead);
    const [, descr, order, sizes] = HEADER.exec(header) ?? [];
    check(!/'descr': (\[|'[^']*O)/.test(header), "NQX502", "got objects or records of Python");
    check(descr, "NQX408", "expected a header as numpy writes it");
    const isRaw = RegExp(`^[<|][Vfiuc]${dtype.size}$`).test(descr);
    const fits = ADDED.test(dtype.name) ? isRaw : dtypeOf(descr).same === dtype.same;
    check(fits, "NQX411", `expected ${dtype.name}, got ${descr}`);
    const isSame = (sizes.match(/[0-9]+/g) ?? []).join() === record.shape.join();
    check(isSame, "NQX412", `expected the shape ${record.shape}, got ${sizes}`);
    check("crc32" in record || crc32(all) === member.crc, "NQX407", "got another checksum");
    const { start, isDeflated } = member, offset = isDeflated ? -1 : start + lead;
    return { data: all.subarray(lead), offset, isDeflated, isFortran: order === "True" };
  };
  return new Map([...readZip(file)].map(([key, member]) => [key, find(member)]));
}
const CODES = { bool: "BOOL", bfloat16: "BF16", float8_e4m3fn: "F8_E4M3", float8_e5m2: "F8_E5M2" };
const PAIRS = { complex64: "F32", complex128: "F64" };
for (const n of [8, 16, 32, 64])
  Object.assign(CODES, { [`int${n}`]: `I${n}`, [`uint${n}`]: `U${n}`, [`float${n}`]: `F${n}` });

function readSafetensors(file) {
  const sound = (fits, code = "NQX408") => check(fits, code, "expected a sound safetensors file");
  const size = uint(file, 0, 6), begin = 8 + size, places = [];
  sound(size <= 1e8 && uint(file, 6, 2) === 0, "NQX506");
  sound(begin <= file.length);
  let header;
  try {
    header = parseJson(file.subarray(8, begin)).document;
    delete header.__metadata__;
    Object.values(header).forEach(members({ dtype: text, shape: sizes, data_offsets: sizes }));
  } catch {
    sound(false);
  }
  const find = (tensor) => {
    const [start, stop] = tensor.data_offsets.map((offset) => begin + Number(offset));
    sound(Object.keys(tensor).length === 3 && tensor.data_offsets.length === 2);
    places.push([start, stop]);
    return ({ record, dtype: { name, family, size, isBig } }) => {
      const own = CODES[name] ?? (family === "date" && !isBig ? "I64" : undefined);
      sound(tensor.dtype === (own ?? PAIRS[name] ?? "U8"), "NQX411");
      const parts = own || size === 1 ? [] : [PAIRS[name] ? 2 : size];
      sound(tensor.shape.join() === [...record.shape, ...parts].join(), "NQX412");
      return { data: file.subarray(start, stop), offset: start };
    };
  };
  const nameOf = (key) => (key === "%5F_metadata__" ? "__metadata__" : key), found = new Map();
  for (const [key, tensor] of Object.entries(header)) found.set(nameOf(key), find(tensor));
  places.sort(([a, b], [c, d]) => a - c || b - d);
  sound(places.reduce((free, [a, b]) => (a === free ? b : NaN), begin) === file.length);
  return found;
}

// The bundle.
const STORES = { npz: readNpz, safetensors: readSafetensors };
export const product = (lengths) => lengths.reduce((a, b) => a * b, 1n);
const asHex = (mark) => `%${Buffer.from(mark).toString("hex").toUpperCase()}`;
const safePart = (part) =>
  /^\.{0,2}$/.test(part) ? part.replaceAll(".", asHex) || "%00" : part.replace(SPECIAL, asHex);
const npzKey = (name) => `${name.split("/").map(safePart).join("/")}.npy`;
const nbytesOf = ({ dtype, shape }) => Number(product(shape)) * dtypeOf(dtype).size;

function readArray(record, find) {
  const { shape } = record, dtype = dtypeOf(record.dtype), nbytes = nbytesOf(record);
  const possible = product(shape.map((n) => n || 1n)) * BigInt(dtype.size || 1);
  check(possible < 2n ** 63n, "NQX412", "expected a smaller shape");
  const found = find({ record, dtype, nbytes });
  const isWhole = found.data.length === nbytes && Number(record.nbytes ?? nbytes) === nbytes;
  const code = found.isDeflated && found.data.length > nbytes ? "NQX505" : "NQX408";
  check(isWhole, code, `expected ${nbytes} bytes`);
  check(Number(record.offset ?? found.offset) === found.offset, "NQX408", "got another place");
  const own = crc32(found.data);
  check(Number(record.crc32 ?? own) === own, "NQX407", `expected another crc32, got ${own}`);
  return elements({ ...found, dtype, shape });
}

export function readBundle(path) {
  const file = statSync(path).isDirectory() ? null : readFileSync(path);
  const zip = file && readZip(file);
  const read = (name, most) => {
    if (zip) return zip.has(name) ? content(file, zip.get(name), most) : undefined;
    const found = lstatSync(join(path, name), { throwIfNoEntry: false });
    check(!found || found.isFile(), "NQX504", `expected a plain file, got ${name}`);
    return found && readFileSync(join(path, name));
  };
  const manifest = read("manifest.json", 2 ** 28);
  check(manifest, "NQX401", "expected manifest.json");
  const document = readManifest(manifest), records = document.arrays;
  const files = { "arrays.npz": [] }, arrays = new Map(), names = Object.keys(records);
  if (names.length === 0) files["arrays.safetensors"] = [];
  for (const name of names) (files[records[name].file ?? "arrays.npz"] ??= []).push(name);
  for (const [name, own] of Object.entries(files)) {
    const suffix = name.split(".").at(-1), key = suffix === "npz" ? npzKey : (each) => each;
    check(suffix in STORES, suffix === "orbax" ? "NQX615" : "NQX614", `got a file ${name}`);
    const most = own.map((each) => nbytesOf(records[each]) + 8 * each.length + 1024);
    const data = read(name, 2 * most.reduce((a, b) => a + b, 2 ** 15));
    check(data || own.length === 0, "NQX409", `expected the file ${name}`);
    const held = data ? STORES[suffix](data) : new Map();
    for (const each of own) {
      check(held.has(key(each)), "NQX409", `expected the array ${each}`);
      arrays.set(each, readArray(records[each], held.get(key(each))));
    }
    names.forEach((each) => held.delete(key(each)));
    check(held.size === 0, "NQX410", `expected records of ${[...held.keys()]}`);
  }
  checkAgreement(met.nodes, records);
  return { document, arrays };
}

function checkAgreement(nodes, records) {
  const named = new Set();
  for (const each of nodes.filter(({ __kind__: kind }) => kind === "array")) {
    const record = records[each.name];
    check(record, "NQX409", `expected a record of ${each.name}`);
    const isSame = dtypeOf(each.dtype).same === dtypeOf(record.dtype).same;
    check(isSame, "NQX411", `expected ${record.dtype}, got ${each.dtype}`);
    check(each.shape.join() === record.shape.join(), "NQX412", `got the shape ${each.shape}`);
    named.add(each.name);
  }
  const isUsed = ([name, record]) => named.has(name) !== "unused" in record;
  check(Object.entries(records).every(isUsed), "NQX410", "expected a node for each array");
  const described = nodes.filter(({ __kind__: kind }) => /^(full|numpy-scalar)$/.test(kind));
  const total = described.reduce((sum, each) => sum + nbytesOf({ shape: [], ...each }), 0);
  check(total <= 2 ** 30, "NQX505", "expected smaller nodes of kind full");
  described.forEach(elementOf);
  nodes.forEach(checkValue);
}

// Values.
const numberOf = (value) => Number(value.__kind__ ? value.value.replace("inf", "Infinity") : value);
export const FROM = {
  float: numberOf,
  bigint: ({ value }) => BigInt(value.replace("-", "")) * (value[0] === "-" ? -1n : 1n),
  complex: ({ real, imag }) => [numberOf(real), numberOf(imag)],
  bytes: ({ base64 }) => Buffer.from(base64, "base64"),
  bytearray: ({ base64 }) => Buffer.from(base64, "base64"),
};

// A number rounded to a float of these facts.
function toFloat(value, facts) {
  const [bytes, sign, e, m, bias, special] = facts, x = Number(value), size = Math.abs(x);
  const isIeee = special === "IEEE", all = 2 ** (e + m) - 1;
  const [least, most] = [m ? 1 : 0, isIeee ? all - 2 ** m : all - special.includes(all)];
  const [low, high] = bytes === 8 ? [0, Infinity] : [least, most].map((n) => decodeFloat(n, facts));
  let fits = size >= low && size <= high && (sign || x > 0);
  if (x === 0) fits = m > 0;
  if (!Number.isFinite(x)) fits = isIeee || (Number.isNaN(x) && special.length > 0);
  fits &&= ["bigint", "number"].includes(typeof value);
  check(fits, "NQX612", `expected a value of the dtype, got ${value}`);
  if (!Number.isFinite(x) || x === 0) return x;
  const unit = 2 ** (Math.max(Math.floor(Math.log2(size)), 1 - bias) - m);
  const near = Math.round(x / unit);
  return (Math.abs((x / unit) % 1) === 0.5 && near % 2 ? near - 1 : near) * unit;
}

export function elementOf({ dtype, value }) {
  const { family, fits, facts, half } = dtypeOf(dtype);
  const plain = FROM[value?.__kind__]?.(value) ?? value;
  if (facts) return toFloat(plain, facts);
  if (half) return [plain, 0].flat().slice(0, 2).map((part) => toFloat(part, half.facts));
  const held = plain instanceof Buffer ? "bytes" : typeof plain;
  const isOwn = held === ({ bool: "boolean", text: "string", bytes: "bytes" }[family] ?? "bigint");
  check(isOwn && (!fits || fits(plain)), "NQX612", `expected a value of ${dtype}, got ${plain}`);
  return family === "bytes" ? plain.toString("hex") : plain;
}
const DAY = "([0-9]{4}-[0-9]{2}-[0-9]{2})", CLOCK = "(?:[01][0-9]|2[0-3])(?::[0-5][0-9]){1,2}";
const TIME = String.raw`${CLOCK}(?:\.[0-9]{6})?(?:[+-]${CLOCK}(?:\.[0-9]{6})?)?`;
const MOMENTS = { date: DAY, time: TIME, datetime: `${DAY}T${TIME}` };
MOMENTS.timedelta = "-?[0-9]+ [0-9]+ [0-9]+";
const UNHASHABLE = /^(list|set|.*dict|counter|deque|bytearray|array|full)$/;
function keyOf(value) {
  check(!UNHASHABLE.test(value?.__kind__), "NQX612", `got a key ${value?.__kind__}`);
  if (typeof value === "boolean" || Number.isInteger(value)) return BigInt(value);
  if (typeof value === "bigint" || typeof value === "number") return value;
  return JSON.stringify(value, (_, each) => (typeof each === "bigint" ? `${each}n` : each));
}

function checkValue(value) {
  const { __kind__: kind, items, maxlen, step } = value;
  const isPairs = KINDS[kind].items === pairs, isSet = kind.endsWith("set");
  const keys = isPairs ? items.map(([key]) => keyOf(key)) : isSet ? items.map(keyOf) : [];
  check(new Set(keys).size === keys.length, "NQX612", "expected each key once");
  check(kind !== "deque" || (maxlen ?? Infinity) >= items.length, "NQX612", "got too many items");
  check(kind !== "range" || step !== 0n, "NQX612", "expected another step than 0");
  const found = kind === "datetime" && RegExp(`^${MOMENTS[value.type]}$`).exec(value.value);
  const isDay = !found?.[1] || new Date(found[1]).toJSON()?.startsWith(found[1]);
  check(kind !== "datetime" || (found && isDay), "NQX612", `expected a ${value.type}`);
}

