"use strict";
// The embedded document: `runs`, the first the page's own, with tables by column; `kernels` with their sources; the way to
// the `docs`; and `extents`, the columns that a size is made of, of which each problem has some.
const PAGE = JSON.parse(document.getElementById("data").textContent);

/** The code of each row: `lengths`, where there are any, say for how many rows a code stands. */
function codesOf(column) {
  const { codes, lengths } = column;
  return lengths ? codes.flatMap((code, run) => new Array(lengths[run]).fill(code)) : codes;
}

/** Table -> column -> values; text is stored as words and codes, -1 for none. */
function decode(table) {
  const found = {};
  for (const [name, column] of Object.entries(table)) {
    found[name] = Array.isArray(column) ? column : codesOf(column).map((code) => (code < 0 ? null : column.words[code]));
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

const EXTENTS = PAGE.extents;

/** The size of a row: each extent that it has. */
const sizeOf = (rows, place) => Object.fromEntries(EXTENTS.filter((name) => rows[name]?.[place] != null).map((name) => [name, rows[name][place]]));

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
  ["kind", "called", "regime", "baseline", "reference", "rung", "reason", "speedup", "speedup_low", "speedup_high", "predicted_low", "predicted_high", "median_us", "layout"].forEach(column);
  // Between single launches the GPU rests: the power of both together says nothing.
  if (rows.power_w) rows.power_w = rows.power_w.map((value, place) => (rows.regime[place] === "sustained" ? value : null));
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
  run.parameterCode = codesOf(parameters);
  // A variant's kernel and parameters, for the command that times something against it.
  run.variants = new Map();
  for (let place = 0; place < count; place += 1) {
    run.variants.set(rows.variant[place], { kernel: rows.kernel[place], params: run.parameterWords[run.parameterCode[place]] || {} });
  }

  // What the speed-up is over, so that no two are ranked that are over different things.
  rows.against = run.ids.map((_, place) => rows.baseline[place] !== null ? "previous rung"
    : rows.reference[place] === null ? null : given.sweeps[rows.sweep[place]]?.libraries.includes(rows.reference[place]) ? "library" : "baseline");
  rows.range = run.ids.map((_, place) => (rows.predicted_low[place] === null ? null : [rows.predicted_low[place], rows.predicted_high[place]]));

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
  if (Math.abs(value) >= 10 ** (digits - 1)) return String(Number(value.toPrecision(digits)));
  return Math.abs(value) < 1e-3 ? value.toExponential(digits - 2) : value.toPrecision(digits);
}

/** 37.75 M: four significant digits and a prefix where the number is large. */
function magnitude(value) {
  if (typeof value !== "number") return String(value ?? "");
  for (const [limit, prefix] of [[1e9, "G"], [1e6, "M"], [1e4, "k"]]) if (Math.abs(value) >= limit) return `${figure(value / limit * (prefix === "k" ? 10 : 1))} ${prefix}`;
  return figure(value);
}

/** +3 %, or from two times on 2.6 times. */
function times(value) {
  if (value >= 2 || value <= 0.5) return `${value >= 9.95 ? value.toFixed(0) : value.toPrecision(2)} times`;
  const percent = 100 * (value - 1), text = percent.toFixed(Math.abs(percent) >= 0.95 || percent === 0 ? 0 : 1);
  return Number(text) === 0 ? "0 %" : `${percent > 0 ? "+" : "−"}${text.replace("-", "")} %`;
}

/** A number of a row and the ends of its interval, null where they are unknown. */
const withEnds = (rows, name, place) => ["", "_low", "_high"].map((end) => rows[name + end]?.[place] ?? null);

/** What decides between faster and slower: what another GPU would read, where that is known, else the interval. */
function deciding({ rows }, place) {
  const [value, low, high] = withEnds(rows, "speedup", place);
  return rows.range[place] ?? [low ?? value, high ?? value];
}
function verdictOf(run, place) {
  const [from, to] = deciding(run, place);
  return from > 1 ? "faster" : to < 1 ? "slower" : "tied";
}

/** "+1 % to +5 %": what another GPU would read; empty where that is not known. */
const elsewhere = ([low, high]) => (low == null ? "" : [...new Set([times(low), times(high)])].join(" to "));

const PROPER = { cublas: "cuBLAS", cublaslt: "cuBLAS", cublaslt_fast: "cuBLASLt", copy: "a copy" };
/** What a row is timed against, as people call it; cuBLAS is the faster of cuBLAS and cuBLASLt, which alone has fp8. */
const libraryName = ({ rows }, place) => (rows.dtype[place] === "fp8" ? "cuBLASLt" : PROPER[rows.reference[place]] ?? rows.reference[place]);

const FAR_ABOVE = 4; // as in the report: a share of the memory's peak so much larger says that memory binds

/** ["782 TFLOP/s", "73 % of peak"], or GB/s where memory binds; "" where it is unknown. */
function rateOf({ rows }, place) {
  const [computes, moves, tflops, bytes] = ["peak_fraction", "memory_fraction", "tflops", "gbytes_per_s"].map((name) => rows[name]?.[place] ?? null);
  const byMemory = tflops === null || (computes !== null && moves > FAR_ABOVE * computes);
  const [rate, unit, share, whose] = byMemory ? [bytes, "GB/s", moves, "peak bandwidth"] : [tflops, "TFLOP/s", computes, "peak"];
  return [rate === null ? "" : `${figure(rate, 3)} ${unit}`, share === null ? "" : `${figure(100 * share, 2)} % of ${whose}`];
}

/** Labels such as "bk=8, stages=3" without the parts that all of them have. */
function differing(labels) {
  const parts = new Map(labels.map((label) => [label, label.split(", ")])), all = [...parts.values()];
  const common = new Set(all.length > 1 ? all[0].filter((part) => all.every((own) => own.includes(part))) : []);
  return new Map([...parts].map(([label, own]) => [label, own.filter((part) => !common.has(part)).join(", ") || label]));
}

/** Whether all rows were timed against libraries, or against one kernel, so that their speed-ups compare. */
const comparable = ({ rows }, places) => places.every((place) => rows.against[place] === "library") || new Set(places.map((place) => rows.reference[place])).size <= 1;

/** 1.234 [1.230, 1.238]; empty where it is unknown. */
function spread(rows, name, place, shown = figure) {
  const [value, low, high] = withEnds(rows, name, place);
  return value === null ? "" : shown(value) + (low === null ? "" : ` [${shown(low)}, ${shown(high)}]`);
}

/** A speed-up with its interval, all to a thousandth, so that a column of them is aligned. */
const ratioSpread = (rows, place) => spread(rows, "speedup", place, (one) => (one < 0.1 || one >= 10 ? figure(one, 3) : one.toFixed(3)));

/** Text that HTML shows as it is. */
function escaped(text) {
  const marks = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" };
  return String(text ?? "").replace(/[&<>"']/g, (mark) => marks[mark]);
}

/** own / other with the worst ends, so that the interval errs on the wide side; null where one is unknown. */
function ratio(own, place, other, elsewhere) {
  const [value, low, high] = withEnds(own.rows, "speedup", place), [its, itsLow, itsHigh] = withEnds(other.rows, "speedup", elsewhere);
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
  if (at("predicted_low") !== null) say("another GPU would read", `${figure(at("predicted_low"), 3)} to ${figure(at("predicted_high"), 3)}`);
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
