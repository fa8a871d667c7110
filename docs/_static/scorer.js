// The order of results of the search: guides, then reference, then names of the API, then codes of diagnostics.
var Scorer = {
  score: ([docname, title, anchor, descr, score, filename, kind]) => {
    if (docname.startsWith("codes/") || docname === "diagnostics") return score - 1000;
    if (kind === "object" || kind === "index") return score - 200;
    if (/^(format|performance|scaling|contributing|releasing|versioning|genindex)$/.test(docname)) return score - 100;
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
