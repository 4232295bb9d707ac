/** Lets a table be sorted by a press on the head of a column. */

/** @param {HTMLElement} place  What holds one table or several. */
export function makeSortable(place) {
  for (const table of place.querySelectorAll("table")) {
    const heads = table.querySelectorAll("thead tr:first-child th");
    heads.forEach((head, column) => {
      if (!head.textContent?.trim()) return;
      const press = document.createElement("button");
      press.type = "button";
      press.className = "sort";
      press.append(...head.childNodes);
      press.addEventListener("click", () => sort(table, /** @type {HTMLElement} */ (head), column));
      head.replaceChildren(press);
    });
  }
}

/**
 * @param {HTMLTableElement} table
 * @param {HTMLElement} head
 * @param {number} column
 */
function sort(table, head, column) {
  const isDescending = head.getAttribute("aria-sort") === "ascending";
  for (const other of table.querySelectorAll("th[aria-sort]")) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", isDescending ? "descending" : "ascending");
  const body = table.tBodies[0];
  const rows = [...body.rows].map((row) => ({ row, text: row.cells[column]?.textContent?.trim() ?? "" }));
  const order = isDescending ? -1 : 1;
  rows.sort((one, other) => order * compare(one.text, other.text));
  body.append(...rows.map(({ row }) => row));
}

/**
 * Numbers by their value, before everything else; texts as people sort them.
 * @param {string} one
 * @param {string} other
 */
function compare(one, other) {
  const [first, second] = [one, other].map((text) => Number(text.replaceAll(",", "") || "x"));
  if (!Number.isNaN(first) && !Number.isNaN(second)) return first - second;
  if (!Number.isNaN(first)) return -1;
  if (!Number.isNaN(second)) return 1;
  return one.localeCompare(other, undefined, { numeric: true });
}
