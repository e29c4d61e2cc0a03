"use strict";
// The embedded document: `runs`, the first the page's own, with tables by column; and `kernels` with their sources.
const PAGE = JSON.parse(document.getElementById("data").textContent);

/** Table -> column -> values; text is stored as words and codes, -1 for none. */
function decode(table) {
  const found = {};
  for (const [name, column] of Object.entries(table)) {
    found[name] = Array.isArray(column) ? column : column.codes.map((code) => (code < 0 ? null : column.words[code]));
  }
  return found;
}

/** Key -> places of the rows with it. */
function grouped(length, key) {
  const found = new Map();
  for (let place = 0; place < length; place += 1) {
    const own = key(place);
    if (found.has(own)) found.get(own).push(place);
    else found.set(own, [place]);
  }
  return found;
}

const EXTENTS = ["m", "n", "k", "elements"];

/** Something in which rows of the same sweep, variant and size agree, whatever their regime. */
function sizedKey(table) {
  const extents = EXTENTS.map((name) => table[name] || []);
  return (place) => [table.sweep[place], table.variant[place], ...extents.map((column) => column[place] ?? "")].join("|");
}

/** A run as the page uses it: `rows` by column, and what belongs to a row. A row is known by its place. */
function readRun(given) {
  const rows = decode(given.timings);
  const count = (rows.sweep || []).length;
  const column = (name) => rows[name] || (rows[name] = new Array(count).fill(null));
  ["regime", "baseline", "reference", "rung", "reason", "speedup", "speedup_low", "speedup_high", "median_us", "layout"].forEach(column);
  const run = { ...given, rows, count, has: (name) => rows[name].some((value) => value !== null) };

  run.ids = Array.from({ length: count }, (_, place) =>
    `${rows.sweep[place]}/${rows.variant[place]}@${rows.size[place]}:${rows.regime[place] ?? ""}`
      + (rows.baseline[place] ? `~${rows.baseline[place]}` : ""));
  run.places = new Map(run.ids.map((id, place) => [id, place]));

  // What the compiler said of each variant stands beside its rows, so that it sorts like a number of theirs.
  const resources = decode(given.resources);
  const made = new Map((resources.variant || []).map((variant, place) => [`${resources.sweep[place]}|${variant}`, place]));
  run.resource = (place, name) => resources[name]?.[made.get(`${rows.sweep[place]}|${rows.variant[place]}`)] ?? null;
  run.resourceNames = Object.keys(resources);
  for (const name of ["registers", "occupancy", "local_bytes"]) rows[name] = run.ids.map((_, place) => run.resource(place, name));

  const parameters = given.timings.params || { words: [], codes: [] };
  run.parameterWords = parameters.words.map((text) => JSON.parse(text));
  run.parameterPairs = run.parameterWords.map((known) => Object.entries(known).map(([name, value]) => `${name}=${value}`));
  run.parameterCode = parameters.codes;
  // A variant's kernel and parameters, for the command that times something against it.
  run.variants = new Map();
  for (let place = 0; place < count; place += 1) {
    run.variants.set(rows.variant[place], { kernel: rows.kernel[place], params: run.parameterWords[parameters.codes[place]] || {} });
  }

  const own = sizedKey(rows), sessionsAt = sizedRows(given.sessions), metricsAt = sizedRows(given.metrics);
  run.sessionsOf = (place) => sessionsAt(own(place)).filter((one) => one.regime === rows.regime[place] && (one.baseline ?? null) === rows.baseline[place]);
  run.metricsOf = (place) => metricsAt(own(place));
  return run;
}

/** Rows of a table by what `sizedKey` says of them; it is read when it is first asked for. */
function sizedRows(given) {
  let table = null, places = null;
  return (key) => {
    if (table === null) {
      table = decode(given);
      places = grouped((table.sweep || []).length, sizedKey(table));
    }
    return (places.get(key) || []).map((at) => Object.fromEntries(Object.keys(table).map((name) => [name, table[name][at]])));
  };
}

const RUNS = PAGE.runs.map(readRun);
/** How a run is called where several are on the page: by its GPU, if that tells them apart. */
const runName = (run) => (RUNS.filter((one) => one.gpu === run.gpu).length > 1 ? run.name : run.gpu) + (run.measured ? "" : ": nothing is measured");

/** A number with some significant digits, or with 0 all there are; empty where it is unknown. */
function figure(value, digits = 4) {
  if (value === null || value === undefined) return "";
  if (typeof value !== "number") return String(value);
  if (value === 0 || digits === 0) return String(value);
  if (Math.abs(value) >= 10 ** (digits - 1)) return value.toFixed(0);
  return Math.abs(value) < 1e-3 ? value.toExponential(digits - 2) : value.toPrecision(digits);
}

/** 1.234 [1.230, 1.238], with as many `digits` or all there are; empty where it is unknown. */
function spread(rows, name, place, digits = 4) {
  const [value, low, high] = ["", "_low", "_high"].map((end) => rows[name + end]?.[place] ?? null);
  const shown = (one) => figure(one, digits);
  return value === null ? "" : shown(value) + (low === null ? "" : ` [${shown(low)}, ${shown(high)}]`);
}

/** Text that HTML shows as it is. */
function escaped(text) {
  const marks = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" };
  return String(text).replace(/[&<>"]/g, (mark) => marks[mark]);
}

/** own / other with the worst ends, so that the interval errs on the wide side; null where one is unknown. */
function ratio(own, place, other, elsewhere) {
  const [value, low, high] = ["", "_low", "_high"].map((end) => own.rows[`speedup${end}`][place]);
  const [its, itsLow, itsHigh] = ["", "_low", "_high"].map((end) => other.rows[`speedup${end}`][elsewhere]);
  if (value === null || !its) return null;
  return { value: its / value, low: (itsLow ?? its) / (high ?? value), high: (itsHigh ?? its) / (low ?? value) };
}

/** What hovering over a cell says. */
function summary(run, place) {
  const { rows } = run;
  const lines = [`${rows.label[place]}, ${rows.size[place]}, ${rows.dtype[place]}${rows.regime[place] ? `, ${rows.regime[place]}` : ""}`];
  const say = (title, text, unit = "") => text !== "" && text !== null && lines.push(`${title}: ${text}${unit}`);
  const at = (name) => rows[name]?.[place] ?? null;
  if (at("status") !== "ok") say("no result", at("status") + (at("reason") ? `: ${at("reason")}` : ""));
  say("speed-up", spread(rows, "speedup", place) && `${spread(rows, "speedup", place)} x ${at("reference") === at("variant") ? "itself" : at("reference")}`);
  if (at("predicted_low") !== null) say("another GPU would read", `${figure(at("predicted_low"))} to ${figure(at("predicted_high"))}`);
  say("median", spread(rows, "median_us", place), " µs");
  say("rate", figure(at("tflops")), " TFLOP/s");
  say("bandwidth", at("tflops") === null ? figure(at("gbytes_per_s")) : "", " GB/s");
  say("clock", figure(at("sm_clock_mhz")), " MHz");
  say("power", figure(at("power_w")), " W");
  say("registers", figure(at("registers"), 0));
  say("occupancy", at("occupancy") === null ? "" : figure(100 * at("occupancy"), 3), " %");
  if (at("status") === "ok") say("status", "ok");
  return lines.join("\n");
}
