"use strict";
// The page's state, which the address holds after #, and what follows from it: filters, table, charts, panel.

const $ = (id) => document.getElementById(id);
const FACETS = [["problem", "Problem"], ["sweep", "Sweep"], ["dtype", "Dtype"], ["size", "Size"], ["regime", "Regime"], ["kernel", "Kernel"], ["status", "Status"]];
const EMPTY = { words: "", param: "", sort: "", cell: "", run: "0", beside: "", chart: "", at: "", by: "", lit: "",
  ...Object.fromEntries(FACETS.map(([name]) => [name, ""])) };
const byNature = new Intl.Collator("en", { numeric: true });
let state = { ...EMPTY };
let run = RUNS[0], beside = null, opened = null;

// The address. Anchors of parts of the page (#charts) have no "=" and are left alone.
function readAddress() {
  const text = location.hash.slice(1);
  if (text && !text.includes("=")) return false;
  const given = Object.fromEntries(new URLSearchParams(text));
  state = { ...EMPTY, ...Object.fromEntries(Object.entries(given).filter(([name]) => name in EMPTY)) };
  return true;
}
function writeAddress() {
  const said = Object.entries(state).filter(([name, value]) => value !== EMPTY[name]);
  history.replaceState(null, "", said.length ? `#${new URLSearchParams(said)}` : location.href.split("#")[0]);
}
function change(over) {
  state = { ...state, ...over };
  writeAddress();
  show();
}

// Filters. A row passes if every facet, the parameter and all words agree with it.
const haystacks = new WeakMap();
function haystackOf(own) {
  if (!haystacks.has(own)) {
    const { rows } = own, known = ["label", "variant", "kernel", "sweep", "dtype", "size", "regime", "status", "reason", "rung", "reference"];
    const columns = known.map((name) => rows[name]);
    haystacks.set(own, own.ids.map((_, place) => columns.map((column) => column[place] ?? "").join(" ").toLowerCase()));
  }
  return haystacks.get(own);
}

/** Places of the rows that pass, and for each facet how many rows each value would leave. */
function filtered(own) {
  const { rows } = own, facets = FACETS.map(([name]) => [rows[name], state[name]]);
  const words = state.words.toLowerCase().split(/\s+/).filter(Boolean);
  const assigned = words.filter((word) => /^\w+=./.test(word)), plain = words.filter((word) => !/^\w+=./.test(word));
  const haystack = plain.length ? haystackOf(own) : null;
  const pairs = own.parameterPairs.map((found) => found.map((pair) => pair.toLowerCase()));
  const fits = pairs.map((found) => assigned.every((word) => found.includes(word)));
  const wanted = own.parameterPairs.map((found) => !state.param || found.includes(state.param));
  const places = [], counts = facets.map(() => new Map()), byCode = new Map();
  for (let place = 0; place < own.count; place += 1) {
    const code = own.parameterCode[place] ?? -1;
    if (assigned.length && !fits[code]) continue;
    if (haystack && !plain.every((word) => haystack[place].includes(word))) continue;
    // With one objection a row still counts for the facet that has it, so that one can change one's mind.
    let failing = state.param && !wanted[code] ? FACETS.length : -1, failures = failing < 0 ? 0 : 1;
    for (let index = 0; index < facets.length && failures < 2; index += 1) {
      const [column, value] = facets[index];
      if (value && column[place] !== value) {
        failing = index;
        failures += 1;
      }
    }
    if (failures === 0) places.push(place);
    if (failures > 1) continue;
    facets.forEach(([column], index) => {
      if (failures === 0 || failing === index) counts[index].set(column[place], (counts[index].get(column[place]) || 0) + 1);
    });
    if (failures === 0 || failing === FACETS.length) byCode.set(code, (byCode.get(code) || 0) + 1);
  }
  const parameters = new Map();
  for (const [code, number] of byCode) {
    for (const pair of own.parameterPairs[code] || []) parameters.set(pair, (parameters.get(pair) || 0) + number);
  }
  return { places, counts, parameters };
}

function options(select, values, chosen, all, title = (value) => value) {
  const entries = [...values];
  if (chosen && !entries.some(([value]) => value === chosen)) entries.push([chosen, 0]);
  select.innerHTML = (all === null ? "" : `<option value="">${all}</option>`) + entries.map(([value, number]) =>
    `<option value="${escaped(value)}"${value === chosen ? " selected" : ""}>${escaped(title(value))}${number === null ? "" : ` (${number})`}</option>`).join("");
}

function showFacets({ counts, parameters }) {
  FACETS.forEach(([name], index) => {
    const values = [...counts[index]].filter(([value]) => value !== null).sort(([one], [other]) => byNature.compare(one, other));
    options($(`by-${name}`), values, state[name], "all");
  });
  const byName = new Map();
  for (const [pair, number] of [...parameters].sort(([one], [other]) => byNature.compare(one, other))) {
    const name = pair.split("=")[0];
    byName.set(name, [...(byName.get(name) || []), [pair, number]]);
  }
  const several = [...byName].filter(([, pairs]) => pairs.length > 1 || pairs[0][0] === state.param).flatMap(([, pairs]) => pairs);
  options($("by-param"), several, state.param, "all");
}

// The table.
const WORK = (rows, place) => (rows.m?.[place] != null ? rows.m[place] * rows.n[place] * rows.k[place] : rows.elements?.[place] ?? null);
function tableColumns() {
  const { rows } = run, narrow = scroller.clientWidth < 560;
  const number = (name, title, width, digits = 4) => ({ name, title, width, number: true, value: (place) => rows[name]?.[place] ?? null, cell: (place) => figure(rows[name]?.[place], digits) });
  const text = (name, title, width) => ({ name, title, width, value: (place) => rows[name][place], cell: (place) => rows[name][place] ?? "" });
  const found = [
    text("label", "variant", narrow ? 122 : 290),
    { ...text("size", "size", narrow ? 72 : 128), value: (place) => WORK(rows, place) },
    { ...number("speedup", "speed-up [95 %]", narrow ? 166 : 212), cell: (place) => spread(rows, "speedup", place, narrow ? 3 : 4) },
  ];
  if (beside) {
    const counterpart = (place) => beside.places.get(run.ids[place]);
    const moved = (place) => (counterpart(place) === undefined ? null : ratio(run, place, beside, counterpart(place)));
    found.push({ name: "their_speedup", title: `beside it: ${runName(beside)}`, width: 212, number: true,
      value: (place) => beside.rows.speedup[counterpart(place)] ?? null, cell: (place) => (counterpart(place) === undefined ? "" : spread(beside.rows, "speedup", counterpart(place))) });
    found.push({ name: "moved", title: "beside it / this", width: 212, number: true, value: (place) => moved(place)?.value ?? null,
      cell: (place) => { const own = moved(place); return own ? `${figure(own.value)} [${figure(own.low)}, ${figure(own.high)}]` : ""; } });
  }
  const more = [
    text("reference", "reference", 110), text("dtype", "dtype", 64), text("regime", "regime", 76),
    number("median_us", "median, µs", 100), number("tflops", "TFLOP/s", 84, 3), number("gbytes_per_s", "GB/s", 76, 4),
    number("sm_clock_mhz", "clock, MHz", 70), number("power_w", "power, W", 70, 3), number("registers", "registers", 84, 0),
    { ...number("occupancy", "occupancy, %", 98), cell: (place) => (rows.occupancy[place] === null ? "" : figure(100 * rows.occupancy[place], 3)) },
    number("local_bytes", "spilled bytes", 80, 0),
    { ...text("status", "status, reason", 230), mark: (place) => (rows.status[place] === "ok" ? "" : "failed"),
      cell: (place) => rows.status[place] + (rows.reason[place] ? `: ${rows.reason[place]}` : "") },
    text("sweep", "sweep", 150), text("kernel", "kernel", 150),
  ];
  return [...found, ...more.filter((column) => rows[column.name] && run.has(column.name))];
}

/** Places in the order of a column, those without a value last. */
function sorted(places, column, down) {
  if (!column) return places;
  const values = new Map(places.map((place) => [place, column.value(place)]));
  const compare = column.number || column.name === "size" ? (one, other) => one - other : byNature.compare;
  const known = places.filter((place) => values.get(place) !== null), unknown = places.filter((place) => values.get(place) === null);
  if (compare === byNature.compare) {
    const order = new Map([...new Set(known.map((place) => values.get(place)))].sort(compare).map((value, index) => [value, index]));
    for (const place of known) values.set(place, order.get(values.get(place)));
  }
  known.sort((one, other) => (values.get(one) - values.get(other)) * (down ? -1 : 1));
  return [...known, ...unknown];
}
function sortBy(name) {
  const [was, down] = [state.sort.replace(/^-/, ""), state.sort.startsWith("-")];
  const number = tableColumns().find((column) => column.name === name)?.number;
  // Numbers begin with the largest; the third click takes the tables' own order again.
  const ways = number ? [`-${name}`, name, ""] : [name, `-${name}`, ""];
  change({ sort: was === name ? ways[ways.indexOf(down ? `-${name}` : name) + 1] : ways[0] });
}

const scroller = $("scroller");
const table = makeTable(scroller, { open: (place) => change({ cell: run.ids[place] }), sort: sortBy });
let lastTable = "";
function showTable() {
  // Opening a cell or changing a chart leaves the table as it is.
  const key = JSON.stringify([...FACETS.map(([name]) => state[name]), state.words, state.param, state.sort, state.run, state.beside, scroller.clientWidth < 560]);
  if (key === lastTable) return;
  lastTable = key;
  const found = filtered(run), columns = tableColumns(), down = state.sort.startsWith("-"), name = state.sort.replace(/^-/, "");
  showFacets(found);
  table.show(sorted(found.places, columns.find((column) => column.name === name), down), columns, { name, down });
  $("count").textContent = `${found.places.length} of ${run.count} cells`;
}

// The panel.
function showDetail() {
  const place = run.places.get(state.cell) ?? null, panel = $("detail"), was = opened;
  const key = place === null ? null : `${state.run}|${state.beside}|${state.cell}`;
  if (key === was) return;
  opened = key;
  table.select(place);
  panel.hidden = place === null;
  if (place !== null) {
    panel.innerHTML = detailHtml(run, place, beside);
    panel.scrollTop = 0;
    $("close").focus();
  } else if (was !== null) table.focus();
}
function copyText(text, button) {
  const done = () => { button.textContent = "Copied"; };
  navigator.clipboard?.writeText(text).then(done, () => { button.textContent = "Select it and copy"; });
}
$("detail").addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (button?.id === "close") change({ cell: "" });
  if (button?.matches(".copy")) copyText(button.dataset.copy ? location.href : button.parentElement.nextElementSibling.textContent, button);
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && state.cell) change({ cell: "" });
});

// The charts.
let lastChart = "";
function showCharts() {
  const names = Object.keys(run.sweeps);
  // Of a tuning sweep rungs are variants side by side, and no ladder.
  const rungs = (name) => (run.sweeps[name].tuning ? 0 : Object.keys(run.sweeps[name].rungs || {}).length);
  const longest = names.reduce((one, other) => (rungs(other) > rungs(one) ? other : one), names[0]);
  const sweep = names.includes(state.chart) ? state.chart : longest;
  if (!sweep) {
    $("charts").hidden = true;
    return;
  }
  const about = run.sweeps[sweep], { rows } = run;
  const all = run.ids.flatMap((_, place) => (rows.sweep[place] === sweep ? [place] : []));
  const regimes = [...new Set(all.map((place) => rows.regime[place]).filter(Boolean))];
  const regime = regimes.includes(state.by) ? state.by : regimes.includes(about.regime) ? about.regime : regimes[0] ?? null;
  const sized = chartRows(run, sweep, regime);
  const sizes = [...new Map(sized.map((place) => [rows.size[place], WORK(rows, place)]))].sort(([, one], [, other]) => one - other).map(([size]) => size);
  const size = sizes.includes(state.at) ? state.at : sizes.includes(about.size) ? about.size : sizes[sizes.length - 1];
  const key = JSON.stringify([state.run, state.beside, sweep, regime, size, state.lit, $("bars").clientWidth]);
  if (key === lastChart) return;
  lastChart = key;
  options($("chart-sweep"), names.map((name) => [name, null]), sweep, null, (name) => run.sweeps[name].title);
  options($("chart-size"), sizes.map((one) => [one, null]), size, null);
  options($("chart-regime"), regimes.map((one) => [one, null]), regime, null);
  $("chart-question").textContent = about.question;
  $("chart-findings").innerHTML = about.findings;
  const fastest = fastestAt(run, sweep);
  let here = sized.filter((place) => (about.shapes ? fastest.has(sizedId(run, place)) : rows.size[place] === size));
  const several = here.length;
  $("chart-size").disabled = about.shapes;
  if (about.rungs) {
    const order = Object.keys(about.rungs);
    here.sort((one, other) => order.indexOf(rows.variant[one]) - order.indexOf(rows.variant[other]));
  } else if (!about.shapes) {
    here = sorted(here, { number: true, value: (place) => rows.speedup[place] }, true);
    // The fastest of a tuning sweep are those that were measured again: the others' luck was not tried.
    here.sort((one, other) => Boolean(rows.fresh?.[other]) - Boolean(rows.fresh?.[one]));
  }
  here = here.slice(0, MOST_BARS);
  const cut = several > here.length ? `, the ${here.length} fastest of ${several}` : "";
  const what = about.rungs ? `Ladder: speed of each rung at ${size}` : about.shapes ? "Speed of the fastest at each shape, M x N x K" : `Speed of each variant at ${size}`;
  $("bars-title").textContent = `${what}${cut}, relative to ${about.reference}`;
  drawBars($("bars"), run, here, beside, about.shapes ? (place) => `${rows.size[place]} (${rows.dtype[place]})` : (place) => rows.label[place]);
  $("chart-legend").innerHTML = beside ? `<span><span class="swatch" style="background:var(--bar)"></span> ${escaped(runName(run))}</span>`
    + ` <span><span class="swatch" style="background:var(--other)"></span> beside it: ${escaped(runName(beside))}</span>` : "";
  const { series, names: curves, title } = curveSeries(run, sweep, regime, here, beside);
  const drawn = drawCurves($("curves"), series, title, curves.includes(state.lit) ? state.lit : "", beside);
  $("curves-title").textContent = drawn ? `${about.shapes ? "Shapes: the fastest" : "The same"} over ${title}, relative to ${about.reference}` : "";
  $("curves-legend").innerHTML = drawn ? curves.map((name, at) => {
    const [colour, shape] = look(at);
    return `<button type="button" aria-pressed="${name === state.lit}" data-name="${escaped(name)}">`
      + `<svg class="swatch" viewBox="0 0 12 12" style="fill:${colour}" aria-hidden="true">${mark(shape, 6, 6, 4)}</svg>${escaped(name)}</button>`;
  }).join("") : "";
  $("chart-rows").onclick = () => {
    change({ ...Object.fromEntries(FACETS.map(([name]) => [name, ""])), words: "", param: "", sweep, size: about.shapes ? "" : size, regime: regime ?? "" });
    $("cells").scrollIntoView();
    table.focus();
  };
}
$("curves-legend").addEventListener("click", (event) => {
  const name = event.target.closest("button")?.dataset.name;
  if (name === undefined) return;
  change({ lit: state.lit === name ? "" : name });
  $("curves-legend").querySelector(`[data-name="${CSS.escape(name)}"]`)?.focus();
});
for (const [id, name] of [["chart-sweep", "chart"], ["chart-size", "at"], ["chart-regime", "by"]]) {
  $(id).addEventListener("change", (event) => change({ ...(name === "chart" ? { at: "", by: "", lit: "" } : {}), [name]: event.target.value }));
}
for (const id of ["bars", "curves"]) {
  const openMark = (event) => {
    const found = event.target.closest("[data-cell]");
    if (!found) return;
    const own = RUNS[found.dataset.run];
    change({ cell: own.ids[found.dataset.cell], ...(own !== run && !run.places.has(own.ids[found.dataset.cell]) ? { run: found.dataset.run, beside: "" } : {}) });
  };
  $(id).addEventListener("click", openMark);
  $(id).addEventListener("keydown", (event) => (event.key === "Enter" || event.key === " ") && (event.preventDefault(), openMark(event)));
}

// Hovering, and the keyboard on a row or mark.
function tipFor(target) {
  const row = target.closest?.("tr[data-index]"), found = target.closest?.("[data-cell]");
  if (row) return summary(run, table.placeOf(row));
  return found ? `${RUNS.length > 1 ? `${runName(RUNS[found.dataset.run])}\n` : ""}${summary(RUNS[found.dataset.run], Number(found.dataset.cell))}` : "";
}
function placeTip(x, y) {
  const tip = $("tip"), box = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(4, Math.min(x + 14, innerWidth - box.width - 6))}px`;
  tip.style.top = `${y + 18 + box.height > innerHeight ? Math.max(4, y - box.height - 10) : y + 18}px`;
}
document.addEventListener("pointermove", (event) => {
  const text = event.pointerType === "touch" ? "" : tipFor(event.target);
  $("tip").hidden = !text;
  if (text) {
    $("tip").textContent = text;
    placeTip(event.clientX, event.clientY);
  }
});
document.addEventListener("focusin", (event) => {
  const text = event.target.matches?.(":focus-visible") ? tipFor(event.target) : "";
  $("tip").hidden = !text;
  if (!text) return;
  $("tip").textContent = text;
  const box = event.target.getBoundingClientRect();
  placeTip(Math.max(box.left, 0) + 40, Math.min(box.bottom, innerHeight) - 14);
});
for (const event of ["scroll", "pointerleave"]) document.addEventListener(event, () => { $("tip").hidden = true; }, true);

// Everything, from the state.
function show() {
  run = RUNS[state.run] || RUNS[0];
  beside = RUNS[state.beside] && RUNS[state.beside] !== run && state.beside !== "" ? RUNS[state.beside] : null;
  $("run").value = String(RUNS.indexOf(run));
  const others = RUNS.flatMap((own, index) => (own === run ? [] : [[String(index), null]]));
  options($("beside"), others, beside ? state.beside : "", "nothing", (index) => runName(RUNS[index]));
  if ($("words").value !== state.words) $("words").value = state.words;
  showTable();
  showCharts();
  showDetail();
}
$("facets").innerHTML = [...FACETS, ["param", "Parameter"]].map(([name, title]) => `<label>${title} <select id="by-${name}" data-name="${name}"></select></label>`).join("");
$("facets").addEventListener("change", (event) => change({ [event.target.dataset.name]: event.target.value }));
$("words").addEventListener("input", (event) => change({ words: event.target.value }));
$("filters").addEventListener("submit", (event) => event.preventDefault());
$("reset").addEventListener("click", () => change({ ...EMPTY, run: state.run, beside: state.beside, chart: state.chart, at: state.at, by: state.by }));
options($("run"), RUNS.map((own, index) => [String(index), null]), "0", null, (index) => runName(RUNS[index]));
for (const name of ["run", "beside"]) $(name).addEventListener("change", (event) => change({ [name]: event.target.value }));
for (const label of document.querySelectorAll("label.runs")) label.hidden = RUNS.length < 2;
addEventListener("hashchange", () => readAddress() && show());
let resized = 0;
addEventListener("resize", () => {
  cancelAnimationFrame(resized);
  resized = requestAnimationFrame(show);
});
readAddress();
show();
document.documentElement.dataset.ready = "yes";
