/* Tables: sorted as a whole, shown in part. */
const SHOWN_AT_FIRST = 50;
const SHOWN_AT_MOST = 2000;

function setUpTable(figure) {
  const table = figure.querySelector("table");
  const more = figure.querySelector("button.more");
  let order = null;
  let sortedBy = -1;
  let descending = false;
  let limit = SHOWN_AT_FIRST;

  async function render() {
    const part = await unpacked(figure.id);
    order ??= Array.from({ length: part.n }, (_, i) => i);
    const body = document.createElement("tbody");
    for (const i of order.slice(0, limit)) {
      const row = body.insertRow();
      part.columns.forEach((column, c) => {
        const cell = c === 0 ? document.createElement("th") : document.createElement("td");
        if (c === 0) cell.scope = "row";
        const isolated = document.createElement("bdi");
        isolated.textContent = visible(shown(column[i], part.decimal[c]));
        cell.append(isolated);
        if (typeof column[i] === "number") cell.className = "n";
        row.append(cell);
      });
    }
    table.tBodies[0].replaceWith(body);
    if (more) more.hidden = limit >= Math.min(part.n, SHOWN_AT_MOST);
  }

  async function sort(c) {
    const part = await unpacked(figure.id);
    descending = sortedBy === c ? !descending : false;
    sortedBy = c;
    const column = part.columns[c];
    order = Array.from({ length: part.n }, (_, i) => i).sort((a, b) => compared(column[a], column[b], descending) || a - b);
    table.querySelectorAll("thead th").forEach((th, i) => {
      if (i === c) th.setAttribute("aria-sort", descending ? "descending" : "ascending");
      else th.removeAttribute("aria-sort");
    });
    await render();
  }

  table.querySelectorAll("thead button").forEach((button, c) => button.addEventListener("click", () => sort(c)));
  more?.addEventListener("click", () => { limit = SHOWN_AT_MOST; render(); });
}

/* Undefined comes last, whichever way. */
function compared(a, b, descending) {
  const none = (v) => v === null || v === undefined || v === "";
  if (none(a) || none(b)) return none(a) - none(b);
  const order = typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true });
  return descending ? -order : order;
}

/* What prints nothing, or turns the order of letters, is shown by its code, as the page itself does. */
function visible(text) {
  return text.replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]/g,
    (c) => c.charCodeAt(0) < 256 ? `\\x${c.charCodeAt(0).toString(16).padStart(2, "0")}` : `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`);
}
