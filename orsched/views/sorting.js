"use strict";
// Tables that are sorted by a click on a column's head, or by the keyboard: the head is a button.
(() => {
  const keyOf = (row, column) => {
    const cell = row.cells[column];
    const exact = cell.dataset.ns ?? cell.dataset.value;
    if (exact !== undefined && exact !== "") return Number(exact);
    const shown = cell.textContent.trim();
    if (cell.tagName === "TH" || cell.classList.contains("word")) return shown;
    const number = Number.parseFloat(shown.replaceAll(",", ""));
    return shown === "–" ? null : Number.isNaN(number) ? shown : number;
  };

  function compare(a, b) {
    if (typeof a === "number" && typeof b === "number") return a - b;
    return String(a).localeCompare(String(b), "en", { numeric: true });
  }

  function sort(table, column, head) {
    const order = head.getAttribute("aria-sort") === "ascending" ? "descending" : "ascending";
    table.tHead.querySelectorAll("th").forEach((other) => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", order);
    const body = table.tBodies[0], sign = order === "ascending" ? 1 : -1;
    const keyed = [...body.rows].map((row) => [keyOf(row, column), row]);
    // What has no value stands at the end in both orders.
    keyed.sort(([a], [b]) => (a === null || b === null ? (a === null) - (b === null) : sign * compare(a, b)));
    body.append(...keyed.map(([, row]) => row));
  }

  document.querySelectorAll("main table").forEach((table) => {
    if (table.tBodies[0].rows.length < 2) return;
    [...table.tHead.rows[0].cells].forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.title = "Sort by this column";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => sort(table, column, head));
    });
  });
})();
