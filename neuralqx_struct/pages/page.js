// Opens and closes the nodes of a tree, and hides the rows of a table whose path lacks the words of its search field.
const FEW = 300; // rows that are open at first, where a depth allows it
for (const field of document.querySelectorAll("input[type=search]")) {
  const rows = [...field.parentElement.querySelectorAll("tbody tr")];
  const names = rows.map((row) => row.cells[0].firstElementChild ?? row.cells[0]);
  const paths = names.map((name) => (name.title || name.textContent).toLowerCase());
  const depths = names.map((name) => Number(name.style.getPropertyValue("--depth")));
  const holds = depths.map((depth, at) => depths[at + 1] > depth);
  const counts = [];
  for (const depth of depths) counts[depth] = (counts[depth] ?? 0) + 1;
  let first = 0; // the depth of the nodes that are closed at first
  for (let sum = counts[0]; first < counts.length && (sum += counts[first + 1]) <= FEW; first += 1);
  const open = depths.map((depth) => depth < Math.max(first, 1));

  const show = () => {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    let depth = words.length ? 0 : Infinity;
    if (words.length) {
      // From the last to the first: the rows around one that is found are shown, too.
      for (let at = rows.length - 1; at >= 0; at -= 1) {
        const found = words.every((word) => paths[at].includes(word));
        rows[at].hidden = !found && depths[at] >= depth;
        if (!rows[at].hidden) depth = depths[at];
      }
      return;
    }
    rows.forEach((row, at) => {
      if (depths[at] <= depth) depth = Infinity;
      row.hidden = depths[at] > depth;
      if (!row.hidden && !open[at]) depth = depths[at];
    });
  };
  const turn = (event) => {
    const at = names.indexOf(event.target);
    if (!holds[at] || field.value || (event.key && event.key !== "Enter" && event.key !== " ")) return;
    event.preventDefault();
    open[at] = !open[at];
    names[at].ariaExpanded = String(open[at]);
    show();
  };
  names.forEach((name, at) => {
    if (!holds[at]) return;
    Object.assign(name, { role: "button", tabIndex: 0, ariaExpanded: String(open[at]) });
  });
  field.addEventListener("input", show);
  field.parentElement.addEventListener("click", turn);
  field.parentElement.addEventListener("keydown", turn);
  show();
}
