"use strict";
// The page's state, which the address holds after #, and what follows from it: filters, table, charts, panel.

const $ = (id) => document.getElementById(id);
const FACETS = [["problem", "Problem"], ["dtype", "Dtype"], ["layout", "Layout"], ["size", "Size"], ["regime", "Regime"], ["against", "Against"],
  ["sweep", "Sweep"], ["kernel", "Kernel"], ["status", "Status"]];
/** The column that a facet is about: FP32 by three TF32 products is a dtype of its own. */
const facetColumn = (own, name) => own.rows[name === "dtype" ? "kind" : name];
const EVERY = "all"; // the value of `against` that lets every row pass
const EMPTY = { words: "", param: "", sort: "-speedup", cell: "", run: "0", beside: "", chart: "", at: "", by: "", lit: "", use: "", ladder: "", verdict: "",
  ...Object.fromEntries(FACETS.map(([name]) => [name, ""])), against: "library" };
const FILTERS = [...FACETS.map(([name]) => name), "words", "param"];
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
const NO_FILTER = Object.fromEntries(FILTERS.map((name) => [name, EMPTY[name]]));
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
    const about = (place) => { const sweep = own.sweeps[rows.sweep[place]]; return sweep ? `${sweep.title} ${sweep.question} ${sweep.rungs?.[rows.variant[place]] ?? ""}` : ""; };
    haystacks.set(own, own.ids.map((_, place) => `${columns.map((column) => column[place] ?? "").join(" ")} ${about(place)} ${own.gpu}`.toLowerCase()));
  }
  return haystacks.get(own);
}

/**
 * A test of rows for one word: a dtype, layout or regime is that column's value, a number is a size
 * of equal extents, or where there is none any extent, name=value a parameter, "words" in quotes a variant; anything else stands somewhere in what is known of the row.
 */
function wordTest(own, word) {
  const { rows } = own, lower = word.toLowerCase();
  if (/^".*"$/.test(word)) return (place) => rows.variant[place] === word.slice(1, -1);
  if (/^\w+=./.test(word)) {
    const fits = own.parameterPairs.map((found) => found.some((pair) => pair.toLowerCase() === lower));
    return (place) => fits[own.parameterCode[place]];
  }
  for (const name of ["dtype", "layout", "regime", "size"]) {
    const column = facetColumn(own, name), values = new Set(column.filter((value) => value !== null && value.toLowerCase() === lower));
    if (values.size) return (place) => values.has(column[place]);
  }
  if (/^\d+$/.test(word)) return (place) => EXTENTS.some((name) => String(rows[name]?.[place]) === word);
  const haystack = haystackOf(own);
  return (place) => haystack[place].includes(lower);
}

/** Sizes as they are typed: "4096, 8192" is two, "64 x 4096 x 4096" one. */
const typedSizes = (text) => text.toLowerCase().replace(/\s*[x×*]\s*/g, "x").split(/[\s,;]+/).filter(Boolean);

/** Places of the rows that pass, and for each facet how many rows each value would leave. */
function filtered(own, against) {
  const { rows } = own, facets = FACETS.map(([name]) => {
    const value = name === "against" ? (against === EVERY ? "" : against) : state[name];
    return [facetColumn(own, name), value && new Set(name === "size" ? typedSizes(value) : [value])];
  });
  const tests = (state.words.match(/"[^"]*"|\S+/g) || []).map((word) => wordTest(own, word));
  const wanted = own.parameterPairs.map((found) => !state.param || found.includes(state.param));
  const places = [], counts = facets.map(() => new Map()), byCode = new Map();
  for (let place = 0; place < own.count; place += 1) {
    const code = own.parameterCode[place] ?? -1;
    if (!tests.every((test) => test(place))) continue;
    // With one objection a row still counts for the facet that has it, so that one can change one's mind.
    let failing = state.param && !wanted[code] ? FACETS.length : -1, failures = failing < 0 ? 0 : 1;
    for (let index = 0; index < facets.length && failures < 2; index += 1) {
      const [column, value] = facets[index];
      // A row without a result is against nothing: it passes.
      if (value && !value.has(column[place]) && !(column === rows.against && column[place] === null)) {
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

/** Sizes with the cubes first, by their work; a number alone is M = N = K. */
const bySize = ([one], [other]) => one.includes("x") - other.includes("x") || byNature.compare(one, other);
const AGAINST = { library: "a library", baseline: "a baseline kernel", "previous rung": "previous rung" };

function showFacets({ counts, parameters }, against) {
  FACETS.forEach(([name], index) => {
    const values = [...counts[index]].filter(([value]) => value !== null).sort(name === "size" ? bySize : ([one], [other]) => byNature.compare(one, other));
    if (name === "size") {
      $("sizes").innerHTML = values.map(([value, number]) => `<option value="${escaped(value)}">${number} cells</option>`).join("");
      if ($("by-size").value !== state.size) $("by-size").value = state.size;
    } else if (name === "against") {
      const known = Object.keys(AGAINST).map((value) => [value, counts[index].get(value) || 0]);
      options($("by-against"), [...known, [EVERY, null]], against, null, (value) => AGAINST[value] ?? "all, each apart");
    } else options($(`by-${name}`), values, state[name], "all");
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
const WORK = (rows, place) => Object.values(sizeOf(rows, place)).reduce((product, extent) => product * extent, 1);
function tableColumns() {
  const { rows } = run, narrow = scroller.clientWidth < 560;
  const number = (name, title, width, digits = 4) => ({ name, title, width, number: true, value: (place) => rows[name]?.[place] ?? null, cell: (place) => figure(rows[name]?.[place], digits) });
  const percent = (name, title, width) => ({ ...number(name, title, width), cell: (place) => (rows[name][place] === null ? "" : figure(100 * rows[name][place], 3)) });
  const text = (name, title, width) => ({ name, title, width, value: (place) => rows[name][place], cell: (place) => rows[name][place] ?? "" });
  const range = (place) => (rows.range[place] === null ? "" : `${figure(rows.range[place][0], 3)} to ${figure(rows.range[place][1], 3)}`);
  const kind = { ...text("dtype", "dtype", run.has("kind") && rows.kind.some((one, place) => one !== rows.dtype[place]) ? 104 : 56), value: (place) => rows.kind[place], cell: (place) => rows.kind[place] ?? "" };
  const kinds = [kind, text("layout", "layout", 54)];
  const found = [
    text("label", "variant", narrow ? 118 : 226),
    { ...text("size", "size", narrow ? 60 : 128), value: (place) => WORK(rows, place) },
    ...(narrow ? [] : kinds),
    { ...number("speedup", "speed-up [95 %]", 170), cell: (place) => ratioSpread(rows, place) },
    { ...number("range", "another GPU", 122), value: (place) => rows.range[place]?.[0] ?? null, cell: range },
    { ...text("reference", "over", 84), cell: (place) => (rows.against[place] === "library" ? libraryName(run, place) : rows.reference[place] ?? "") },
    ...(narrow ? kinds : []),
  ];
  if (beside) {
    const counterpart = (place) => beside.places.get(run.ids[place]);
    const moved = (place) => (counterpart(place) === undefined ? null : ratio(run, place, beside, counterpart(place)));
    found.push({ name: "their_speedup", title: `beside it: ${runName(beside)}`, width: 212, number: true,
      value: (place) => beside.rows.speedup[counterpart(place)] ?? null, cell: (place) => (counterpart(place) === undefined ? "" : ratioSpread(beside.rows, counterpart(place))) });
    found.push({ name: "moved", title: "beside it / this", width: 212, number: true, value: (place) => moved(place)?.value ?? null,
      cell: (place) => { const own = moved(place); return own ? `${figure(own.value)} [${figure(own.low)}, ${figure(own.high)}]` : ""; } });
  }
  const more = [
    text("regime", "regime", 92), number("tflops", "TFLOP/s", 72, 3), percent("peak_fraction", "of peak, %", 88),
    number("gbytes_per_s", "GB/s", 66, 4), percent("memory_fraction", "of peak bandwidth, %", 96), number("median_us", "median, µs", 82),
    { ...text("status", "status, reason", 84), mark: (place) => (rows.status[place] === "ok" ? "" : "failed"),
      cell: (place) => rows.status[place] + (rows.reason[place] ? `: ${rows.reason[place]}` : "") },
    text("sweep", "sweep", 124), text("kernel", "kernel", 104),
    number("sm_clock_mhz", "clock, MHz", 66), number("power_w", "power, W", 66, 3), number("registers", "registers", 76, 0),
    percent("occupancy", "occupancy, %", 92),
    number("local_bytes", "spilled bytes", 76, 0),
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
  // Speed-ups over different things are not ranked together: those over libraries first, then by what they are over.
  const kind = column.name === "speedup" || column.name === "range" ? (place) => (run.rows.against[place] === "library" ? "" : `${run.rows.against[place]} ${run.rows.reference[place]}`) : () => "";
  known.sort((one, other) => byNature.compare(kind(one), kind(other)) || (values.get(one) - values.get(other)) * (down ? -1 : 1));
  return [...known, ...unknown];
}
function sortBy(name) {
  const [was, down] = [state.sort.replace(/^-/, ""), state.sort.startsWith("-")];
  const number = tableColumns().find((column) => column.name === name)?.number;
  // Numbers begin with the largest; the third click takes the usual order again.
  const ways = number ? [`-${name}`, name, EMPTY.sort] : [name, `-${name}`, EMPTY.sort];
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
  let against = state.against, found = filtered(run, against);
  // What is asked for may be timed against no library at all.
  if (!found.places.length && against === EMPTY.against && filtered(run, EVERY).places.length) {
    against = EVERY;
    found = filtered(run, against);
  }
  const columns = tableColumns(), down = state.sort.startsWith("-"), name = state.sort.replace(/^-/, "");
  showFacets(found, against);
  showChips(against);
  table.show(sorted(found.places, columns.find((column) => column.name === name), down), columns, { name, down });
  $("count").textContent = `${found.places.length} of ${run.count} cells` + (against === EVERY && against !== state.against ? ", none of them against a library" : "");
  showHints(found.places.length);
}

/** What the table is filtered by, each with a button that takes it away. */
function showChips(against) {
  const titles = { ...Object.fromEntries(FACETS), words: "Words", param: "Parameter" };
  const set = FILTERS.filter((name) => name !== "against" && state[name]);
  $("chips").innerHTML = `<span class="muted">${set.length ? "Filtered by" : ""}</span>` + set.map((name) =>
    `<button type="button" data-filter="${name}" aria-label="Take away ${titles[name]}">${titles[name]}: ${escaped(state[name])} ✕</button>`).join("")
    + `<span class="muted">${against === EVERY ? "speed-ups over different things stand apart" : `speed-ups over ${against === "previous rung" ? "the previous rung" : AGAINST[against] ?? against}`}</span>`;
}

/** Findings that have all the words that were looked for. */
function showHints(count) {
  const words = state.words.toLowerCase().split(/\s+/).filter((word) => word.length > 2);
  const cards = words.length ? [...document.querySelectorAll(".card")].filter((card) => words.every((word) => card.textContent.toLowerCase().includes(word))) : [];
  const known = new Set(run.rows.size), unknown = typedSizes(state.size).filter((one) => !known.has(one));
  $("hints").innerHTML = (count || !state.words ? "" : "No cell has these words. ")
    + (unknown.length ? `No cell has the size ${escaped(unknown.join(" or "))}. Sizes are M = N = K (4096), M x N x K (64x4096x4096) or a length; several stand with commas between. ` : "")
    + (cards.length ? `In the findings: ${cards.slice(0, 4).map((card) => `<a href="#findings" data-card="${escaped(card.dataset.name)}">${escaped(card.querySelector("h3").textContent)}</a>`).join(" ")}` : "");
}
$("hints").addEventListener("click", (event) => {
  const name = event.target.dataset.card, card = [...document.querySelectorAll(".card")].find((one) => one.dataset.name === name);
  if (!card) return;
  event.preventDefault();
  card.querySelector("details")?.setAttribute("open", "");
  card.scrollIntoView();
});
$("chips").addEventListener("click", (event) => {
  const name = event.target.closest("button")?.dataset.filter;
  if (name) change({ [name]: EMPTY[name] });
});

// The panel.
let opensAt = "", openedFrom = null; // the part of the panel that is wanted, and what had the keyboard
function showDetail() {
  const place = run.places.get(state.cell) ?? null, panel = $("detail"), was = opened;
  const key = place === null ? null : `${state.run}|${state.beside}|${state.cell}`;
  if (key === was) return;
  opened = key;
  table.select(place);
  panel.hidden = place === null;
  if (place !== null) {
    if (was === null) openedFrom = document.activeElement;
    panel.innerHTML = detailHtml(run, place, beside);
    panel.scrollTop = 0;
    $("close").focus({ preventScroll: true });
    if (opensAt === "source") {
      panel.querySelector("details:has(> pre.source):not(.changes)")?.setAttribute("open", "");
      $("source").scrollIntoView();
    }
    opensAt = "";
  } else if (was !== null) {
    if (openedFrom?.isConnected && openedFrom !== document.body) openedFrom.focus({ preventScroll: true });
    else table.focus();
    openedFrom = null;
  }
}
function copyText(text, button) {
  const done = () => { button.textContent = "Copied"; };
  navigator.clipboard?.writeText(text).then(done, () => { button.textContent = "Select it and copy"; });
}
$("detail").addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (button?.id === "close") change({ cell: "" });
  if (button?.matches(".all")) {
    change({ ...NO_FILTER, cell: "", against: EVERY, words: `"${button.dataset.variant}"` });
    $("cells").scrollIntoView();
  }
  if (button?.matches(".copy")) copyText(button.dataset.copy ? location.href : button.parentElement.nextElementSibling.textContent, button);
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && state.cell) change({ cell: "" });
});

// The charts.
let lastChart = "", shownLines = [];
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
  // The words are about one size and regime.
  const same = regime === about.regime && (about.shapes || size === about.size);
  $("chart-findings").innerHTML = same ? about.findings : `<p class="muted">The findings are about ${escaped(about.size)}, ${escaped(about.regime)}.</p>`;
  const fastest = fastestAt(run, sweep);
  let here = sized.filter((place) => (about.shapes ? fastest.has(sizedId(run, place)) : rows.size[place] === size));
  const several = here.length, column = speedColumn(run, here.filter((place) => rows.speedup[place] !== null));
  $("chart-size").disabled = about.shapes;
  if (about.steps.length) {
    const order = Object.keys(about.rungs);
    here.sort((one, other) => order.indexOf(rows.variant[one]) - order.indexOf(rows.variant[other]));
  } else if (!about.shapes) {
    here = sorted(here, { number: true, value: (place) => measure(run, place, column)[0] }, true);
    // The fastest of a tuning sweep are those that were measured again: the others' luck was not tried.
    here.sort((one, other) => Boolean(rows.fresh?.[other]) - Boolean(rows.fresh?.[one]));
  }
  here = here.slice(0, MOST_BARS);
  const short = differing(here.map((place) => rows.label[place]));
  const cut = several > here.length ? `, the ${here.length} fastest of ${several}` : "";
  const over = here.some((place) => rows.against[place] === "library") ? libraryName(run, here.find((place) => rows.against[place] === "library")) : baselineName(run, sweep);
  const relative = column === "speedup" ? `relative to ${over}` : "by rate, for their baselines differ";
  const what = about.steps.length ? `Speed of each rung at ${size}` : about.shapes ? "Speed of the fastest at each shape, M x N x K" : `Speed of each variant at ${size}`;
  $("bars-title").textContent = `${what}${cut}, ${relative}`;
  drawSpeeds($("bars"), run, here, beside, about.shapes ? (place) => `${rows.size[place]} (${rows.dtype[place]})` : (place) => short.get(rows.label[place]), column);
  $("chart-legend").innerHTML = beside ? `<span><span class="swatch" style="background:var(--bar)"></span> ${escaped(runName(run))}</span>`
    + ` <span><span class="swatch" style="background:var(--other)"></span> beside it: ${escaped(runName(beside))}</span>` : "";
  const all_ = curveSeries(run, sweep, regime, beside), usual = all_.series.length ? chosenLines(all_.series, run) : [];
  shownLines = state.lit ? litNames().filter((name) => all_.names.includes(name)) : usual;
  const shown = shownLines.length ? shownLines : usual, brief = new Map([...differing(all_.names), ...differing(shown)]);
  const lines = all_.series.filter((one) => shown.includes(one.name)).map((one) => ({ ...one, at: shown.indexOf(one.name), name: brief.get(one.name) }));
  const drawn = lines.length > 0 && drawCurves($("curves"), lines, all_.title, all_.column, beside);
  if (!lines.length) $("curves").innerHTML = "";
  const isOf = all_.column === "speedup" ? `relative to ${over}` : "as a share of the fastest at each size";
  $("curves-title").textContent = drawn ? `${about.shapes ? "Shapes: the fastest" : "The same"} over ${all_.title}, ${isOf}${all_.without.length ? `; without “${all_.without.join("”, “")}”, whose baseline is slower` : ""}` : "";
  const order = [...shown, ...all_.names.filter((name) => !shown.includes(name)).sort(byNature.compare)];
  $("curves-legend").innerHTML = drawn ? order.map((name) => {
    const at = shown.indexOf(name), [colour, shape] = at < 0 ? ["var(--line)", "circle"] : look(at);
    return `<button type="button" aria-pressed="${at >= 0}" data-name="${escaped(name)}">`
      + `<svg class="swatch" viewBox="0 0 12 12" style="fill:${colour};stroke:${colour}" aria-hidden="true">${mark(shape, 6, 6, 4)}</svg>${escaped(brief.get(name))}</button>`;
  }).join("") + (all_.names.length > 2 ? `<button type="button" data-only="first">Only the first two</button>` : "") + (state.lit ? `<button type="button" data-only="usual">As at first</button>` : "") : "";
  $("chart-rows").onclick = () => {
    change({ ...NO_FILTER, sweep, against: EVERY, size: about.shapes ? "" : size, regime: regime ?? "" });
    $("cells").scrollIntoView();
    table.focus();
  };
}
/** Names of lines that were chosen, as the address has them. */
function litNames() {
  try {
    const found = JSON.parse(state.lit);
    return Array.isArray(found) ? found.map(String).slice(-MOST_LINES) : [];
  } catch {
    return [];
  }
}
$("curves-legend").addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (!button) return;
  if (button.dataset.only) {
    change({ lit: button.dataset.only === "usual" ? "" : JSON.stringify(shownLines.slice(0, 2)) });
    return;
  }
  const { name } = button.dataset, known = shownLines.includes(name);
  // Of more than six the one that was chosen first goes.
  const next = known ? shownLines.filter((one) => one !== name) : [...shownLines, name].slice(-MOST_LINES);
  change({ lit: next.length ? JSON.stringify(next) : "" });
  $("curves-legend").querySelector(`[data-name="${CSS.escape(name)}"]`)?.focus();
});
for (const [id, name] of [["chart-sweep", "chart"], ["chart-size", "at"], ["chart-regime", "by"]]) {
  $(id).addEventListener("change", (event) => change({ ...(name === "chart" ? { at: "", by: "", lit: "" } : {}), [name]: event.target.value }));
}
for (const id of ["bars", "curves", "rungs"]) {
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
  if (found?.dataset.tip) return found.dataset.tip;
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

// What to use, and the ladder.
let lastUse = "", lastLadder = "";
function showUse() {
  const key = `${state.run}|${state.use}`;
  if (key === lastUse) return;
  lastUse = key;
  const { asked, kinds, layouts, regimes } = askedUse(run, state.use);
  $("use-form").hidden = !run.uses.length;
  options($("use-kind"), kinds.map((one) => [one, null]), asked.kind, null);
  options($("use-layout"), layouts.map((one) => [one, null]), asked.layout, null, (one) => ({ NN: "NN (B is K x N)", TN: "TN (B is N x K)" })[one] ?? one);
  options($("use-regime"), regimes.map((one) => [one, null]), asked.regime, null, (one) => REGIMES[one] ?? one);
  for (const name of ["m", "n", "k"]) if (document.activeElement !== $(`use-${name}`)) $(`use-${name}`).value = asked[name];
  $("use-error").hidden = true;
  for (const name of ["m", "n", "k"]) $(`use-${name}`).removeAttribute("aria-invalid");
  $("use-answer").innerHTML = useHtml(run, asked);
}
/** What was chosen: with another dtype the layout is chosen anew. No answer stands beside sizes that are none. */
function changeUse(event) {
  const sides = ["m", "n", "k"].map((name) => Number($(`use-${name}`).value));
  const wrong = ["m", "n", "k"].filter((_, index) => !(Number.isInteger(sides[index]) && sides[index] >= 1));
  if (wrong.length) {
    for (const name of ["m", "n", "k"]) $(`use-${name}`).setAttribute("aria-invalid", String(wrong.includes(name)));
    $("use-error").hidden = false;
    $("use-error").textContent = `${wrong.map((name) => `${name.toUpperCase()} is ${$(`use-${name}`).value || "empty"}`).join(", ")}: type whole numbers from 1 on, such as 4096.`;
    $("use-answer").innerHTML = "";
    lastUse = "";
    return;
  }
  const layout = event.target.id === "use-kind" ? "" : $("use-layout").value;
  change({ use: [$("use-kind").value, layout, sides.join("x"), $("use-regime").value].join("/") });
}
$("use-form").addEventListener("input", changeUse);
$("use-form").addEventListener("submit", (event) => event.preventDefault());
$("use-answer").addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (button?.dataset.open) {
    opensAt = button.dataset.part ?? "";
    change({ cell: button.dataset.open });
  }
  if (button?.matches(".copy")) copyText(button.parentElement.nextElementSibling.textContent, button);
});
function showLadder() {
  const names = Object.keys(run.sweeps).filter((name) => run.sweeps[name].steps.length);
  $("ladder").hidden = !names.length;
  if (!names.length) return;
  const longest = names.reduce((one, other) => (run.sweeps[other].steps.filter((step) => step.main).length > run.sweeps[one].steps.filter((step) => step.main).length ? other : one));
  const sweep = names.includes(state.ladder) ? state.ladder : longest, about = run.sweeps[sweep];
  const key = JSON.stringify([state.run, sweep, $("rungs").clientWidth]);
  if (key === lastLadder) return;
  lastLadder = key;
  options($("ladder-sweep"), names.map((name) => [name, null]), sweep, null, (name) => run.sweeps[name].title);
  const what = about.one ? `Speed with each change, over that of “${about.one}”, at ${about.size}, ${about.regime}.`
    : `Gain of each rung at ${about.size}, ${about.regime}; the path in bold, what was tried beside it pale. A bar is over the bold rung above it, or over the one that is named: (on 12).`;
  $("ladder-about").textContent = `${what} Choose a rung for its source, its changes, its counters and its cells.`;
  drawLadder($("rungs"), run, sweep);
}
$("ladder-sweep").addEventListener("change", (event) => change({ ladder: event.target.value }));
function showClaims() {
  const rows = [...document.querySelectorAll("tr.claim")], counts = new Map();
  for (const row of rows) counts.set(row.dataset.verdict, (counts.get(row.dataset.verdict) || 0) + 1);
  options($("claims-verdict"), counts, state.verdict, `all (${rows.length})`);
  for (const row of rows) row.hidden = state.verdict !== "" && row.dataset.verdict !== state.verdict;
}
$("claims-verdict").addEventListener("change", (event) => change({ verdict: event.target.value }));

// Everything, from the state.
function show() {
  run = RUNS[state.run] || RUNS[0];
  beside = RUNS[state.beside] && RUNS[state.beside] !== run && state.beside !== "" ? RUNS[state.beside] : null;
  $("run").value = String(RUNS.indexOf(run));
  const others = RUNS.flatMap((own, index) => (own === run ? [] : [[String(index), null]]));
  options($("beside"), others, beside ? state.beside : "", "nothing", (index) => runName(RUNS[index]));
  for (const id of ["words", "find"]) if ($(id).value !== state.words) $(id).value = state.words;
  showUse();
  showLadder();
  showClaims();
  showTable();
  showCharts();
  showDetail();
}
$("facets").innerHTML = [...FACETS, ["param", "Parameter"]].map(([name, title]) => `<label>${title} ${name === "size"
  ? '<input id="by-size" data-name="size" list="sizes" placeholder="all" autocomplete="off"><datalist id="sizes"></datalist>' : `<select id="by-${name}" data-name="${name}"></select>`}</label>`).join("");
$("facets").addEventListener("change", (event) => change({ [event.target.dataset.name]: event.target.value.trim() }));
for (const id of ["words", "find"]) $(id).addEventListener("input", (event) => change({ words: event.target.value }));
$("jump").addEventListener("submit", (event) => {
  event.preventDefault();
  $("cells").scrollIntoView();
  table.focus();
});
$("filters").addEventListener("submit", (event) => event.preventDefault());
$("reset").addEventListener("click", () => change({ ...NO_FILTER, sort: EMPTY.sort }));
options($("run"), RUNS.map((own, index) => [String(index), null]), "0", null, (index) => runName(RUNS[index]));
for (const name of ["run", "beside"]) $(name).addEventListener("change", (event) => change({ [name]: event.target.value }));
for (const label of document.querySelectorAll("label.runs")) label.hidden = RUNS.length < 2;
/** The part of the page that the address is about. */
function goThere() {
  const part = state.use ? "use" : FILTERS.some((name) => state[name] !== EMPTY[name]) || state.sort !== EMPTY.sort ? "cells" : state.chart || state.lit ? "charts" : state.ladder ? "ladder" : state.verdict ? "claims" : "";
  if (part) $(part).scrollIntoView();
}
addEventListener("hashchange", () => {
  if (!readAddress()) return;
  show();
  goThere();
});
let resized = 0;
addEventListener("resize", () => {
  cancelAnimationFrame(resized);
  resized = requestAnimationFrame(show);
});
readAddress();
show();
goThere();
document.documentElement.dataset.ready = "yes";
