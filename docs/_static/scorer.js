// The order of results of the search: for frequent questions the page that answers them, then guides and explanations, then
// lists of names, then codes of diagnostics.
const answers = {
  rename: "evolution",
  resume: "series",
  latest: "series",
  best: "series",
  ema: "optax",
  optax: "optax",
  "new head": "warm-starts",
  msgpack: "foreign-files",
  orbax: "orbax",
  nqxpack: "netket",
  netket: "netket",
  float16: "bundles",
  bfloat16: "bundles",
  ci: "ci",
  safetensors: "foreign-files",
  pickle: "index",
};
const asked = (new URLSearchParams(window.location.search).get("q") || "").trim().toLowerCase();

var Scorer = {
  score: ([docname, title, anchor, descr, score, filename, kind]) => {
    if (docname.startsWith("codes/") || docname === "diagnostics") return score - 1000;
    if (kind === "object" || kind === "index") return score - 200;
    if (docname === answers[asked]) return score + 100;
    if (/^(format|performance|scaling|contributing|releasing|versioning|genindex)$/.test(docname)) return score - 100;
    if (/^(api|cli|from_\w+)$/.test(docname)) return score - 50;
    return score;
  },
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
