"use strict";
// A real table that holds only the rows in view, with the height of all: 20,000 rows scroll like 20.
// Needs data.js.

/**
 * columns: [{name, title, width, number, cell(place)}]; on.open(place) is called by Enter or a click, on.sort(name) by a heading.
 * show(places, columns, sort) fills it; select(place) marks the open row; focus(place) moves the keyboard to it.
 */
function makeTable(scroller, on) {
  const table = scroller.querySelector("table");
  const [group, head, body] = ["colgroup", "thead", "tbody"].map((name) => table.querySelector(name));
  const height = parseInt(getComputedStyle(document.documentElement).getPropertyValue("--row"), 10);
  const spare = 8; // rows kept ready above and below
  let places = [], columns = [], current = 0, chosen = null, drawn = "";

  function rowHtml(index) {
    const place = places[index];
    const cells = columns.map((column, at) => {
      const text = escaped(column.cell(place));
      const kind = [column.number ? "number" : "", column.mark?.(place) ?? ""].join(" ").trim();
      return at ? `<td class="${kind}">${text}</td>` : `<th scope="row">${text}</th>`;
    });
    const marks = place === chosen ? ' aria-current="true"' : "";
    return `<tr tabindex="${index === current ? 0 : -1}" data-index="${index}" aria-rowindex="${index + 2}"${marks}>${cells.join("")}</tr>`;
  }

  function draw(force) {
    const first = Math.max(0, Math.floor(scroller.scrollTop / height) - spare);
    const last = Math.min(places.length, Math.ceil((scroller.scrollTop + scroller.clientHeight) / height) + spare);
    if (!force && drawn === `${first}-${last}`) return;
    drawn = `${first}-${last}`;
    const focused = body.contains(document.activeElement);
    const space = (rows) => `<tr class="space" aria-hidden="true"><td colspan="${columns.length}" style="height:${rows * height}px"></td></tr>`;
    const shown = [];
    for (let index = first; index < last; index += 1) shown.push(rowHtml(index));
    body.innerHTML = space(first) + shown.join("") + space(places.length - last);
    // The row that had the keyboard was drawn anew, or is out of view: then the scroller keeps it.
    if (focused) (rowAt(current) || scroller).focus({ preventScroll: true });
  }

  const rowAt = (index) => body.querySelector(`[data-index="${index}"]`);

  function reveal(index) {
    const top = index * height, room = scroller.clientHeight - head.offsetHeight - height;
    if (top < scroller.scrollTop) scroller.scrollTop = top;
    else if (top > scroller.scrollTop + room) scroller.scrollTop = top - room;
  }

  function moveTo(index) {
    if (!places.length) return;
    current = Math.max(0, Math.min(places.length - 1, index));
    reveal(current);
    draw(true);
    rowAt(current)?.focus({ preventScroll: true });
  }

  scroller.addEventListener("scroll", () => requestAnimationFrame(() => draw(false)), { passive: true });
  new ResizeObserver(() => draw(false)).observe(scroller);
  scroller.addEventListener("keydown", (event) => {
    if (event.target.closest("thead") || event.ctrlKey || event.altKey || event.metaKey) return;
    const page = Math.max(1, Math.floor(scroller.clientHeight / height) - 2);
    const to = { ArrowDown: current + 1, ArrowUp: current - 1, PageDown: current + page, PageUp: current - page, Home: 0, End: places.length - 1 };
    if (event.key in to) moveTo(to[event.key]);
    else if (event.key === "Enter" && places.length) on.open(places[current]);
    else return;
    event.preventDefault();
  });
  body.addEventListener("click", (event) => {
    const row = event.target.closest("[data-index]");
    if (!row) return;
    current = Number(row.dataset.index);
    on.open(places[current]);
  });
  head.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (button) on.sort(button.dataset.column);
  });

  return {
    show(newPlaces, newColumns, sort) {
      const before = places[current];
      places = newPlaces;
      columns = newColumns;
      current = Math.max(0, places.indexOf(before));
      const back = head.contains(document.activeElement) && document.activeElement.dataset.column;
      table.setAttribute("aria-rowcount", places.length + 1);
      table.style.width = `${columns.reduce((sum, column) => sum + column.width, 0)}px`;
      group.innerHTML = columns.map((column) => `<col style="width:${column.width}px">`).join("");
      head.innerHTML = `<tr>${columns.map((column) => {
        const [way, arrow] = sort.name !== column.name ? ["none", ""] : sort.down ? ["descending", " ▼"] : ["ascending", " ▲"];
        return `<th scope="col" aria-sort="${way}" class="${column.number ? "number" : ""}">`
          + `<button type="button" data-column="${column.name}">${escaped(column.title)}${arrow}</button></th>`;
      }).join("")}</tr>`;
      if (back) head.querySelector(`[data-column="${back}"]`)?.focus();
      if (before === undefined || places[current] !== before) scroller.scrollTop = 0;
      else scroller.scrollTop = Math.min(scroller.scrollTop, Math.max(0, places.length * height - scroller.clientHeight + head.offsetHeight)); // there may be fewer rows now
      draw(true);
    },
    select(place) {
      chosen = place;
      const index = place === null ? -1 : places.indexOf(place);
      if (index >= 0) {
        current = index;
        reveal(index);
      }
      draw(true);
    },
    /** The keyboard goes to a row, or to the current one. */
    focus() {
      moveTo(current);
    },
    placeOf: (row) => places[Number(row.dataset.index)],
  };
}
