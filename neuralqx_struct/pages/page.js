// Hides the rows of the table behind a search field whose first cell lacks the words.
for (const field of document.querySelectorAll("input[type=search]")) {
  const rows = [...field.parentElement.querySelectorAll("tbody tr")];
  const names = rows.map((row) => (row.querySelector("[title]")?.title ?? row.cells[0].textContent).toLowerCase());
  field.addEventListener("input", () => {
    const words = field.value.toLowerCase().split(/\s+/);
    rows.forEach((row, at) => { row.hidden = !words.every((word) => names[at].includes(word)); });
  });
}
