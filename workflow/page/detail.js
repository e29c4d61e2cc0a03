"use strict";
// The panel of one cell: every number that the tables have of it, its code, and the commands that repeat it.
// Needs data.js.

const GROUPS = [
  ["Speed", [
    ["speedup", "speed-up over the reference"], ["predicted_low", "another GPU would read from"], ["predicted_high", "another GPU would read to"],
    ["over_cublas", "over cuBLAS alone"], ["over_cublaslt", "over cuBLASLt alone"],
    ["median_us", "median, µs"],
    ["reference", "reference"], ["algorithm", "its algorithm"], ["baseline", "baseline"], ["reference_median_us", "its median, µs"],
    ["tflops", "TFLOP/s"], ["peak_fraction", "share of the peak"], ["gbytes_per_s", "GB/s"], ["memory_fraction", "share of the memory's peak"], ["copy_fraction", "share of a copy's rate"],
    ["samples", "samples"], ["cv", "coefficient of variation"], ["stopped_by", "stopped by"], ["fresh", "measured again after it was chosen"],
    ["sessions", "sessions"], ["gpus", "GPUs"],
  ]],
  ["Conditions", [
    ["sm_clock_mhz", "clock, MHz"], ["power_w", "power, W"], ["temperature_c", "temperature, °C"], ["throttled", "clock held down"], ["busy", "GPU in use by others"],
    ["energy_pj_per_flop", "energy, pJ per operation"], ["energy_pj_per_byte", "energy, pJ per byte"], ["clock", "timed by"], ["clock_floor_us", "an empty launch takes, µs"],
  ]],
  ["Correctness", [["max_error", "largest error"], ["error_bound", "its bound"]]],
];
const CODE = [
  ["registers", "registers per thread"], ["shared_bytes_static", "shared memory, static bytes"], ["shared_bytes_dynamic", "shared memory, dynamic bytes"],
  ["local_bytes", "local bytes per thread"], ["spill_store_bytes", "spilled, bytes stored"], ["spill_load_bytes", "spilled, bytes loaded"],
  ["threads_per_block", "threads per block"], ["blocks_per_sm", "blocks per multiprocessor"], ["occupancy", "occupancy"], ["occupancy_limit", "limited by"],
  ["arch", "architecture"], ["compile_s", "compiled in, s"], ["instructions", "instructions"],
];
const NOT_SASS = new Set([...CODE.map(([name]) => name), "sweep", "kernel", "variant", "dtype", "layout", "status", "reason"]);

/** A word as a shell takes it, whatever is in it. */
const shellWord = (text) => (/^[\w./=@:+-]+$/.test(text) ? String(text) : `'${String(text).replaceAll("'", "'\\''")}'`);
/** What stands for a value that needs words. */
const WORDS = {
  throttled: (value) => (value ? "by the power limit or heat, at least once; compare sustained cells" : "no"),
  busy: (value) => (value ? "yes: another program used the GPU" : "no"),
  peak_fraction: (value) => `${figure(100 * value, 3)} %`, copy_fraction: (value) => `${figure(100 * value, 3)} %`, memory_fraction: (value) => `${figure(100 * value, 3)} %`, occupancy: (value) => `${figure(100 * value, 3)} %`,
};
const flow = (values) => `{${Object.entries(values).map(([name, value]) => `${name}: ${value}`).join(", ")}}`;

const SETUP = ". .venv/bin/activate"; // in the checkout, after make

/** The line that judges a row's kernel at a size, against its reference or, with `quickest`, the fastest library; null where it has none. */
function judgeCommand(run, place, size, quickest = false) {
  const { rows } = run, about = run.sweeps[rows.sweep[place]], own = run.variants.get(rows.variant[place]);
  const file = PAGE.kernels[rows.kernel[place]]?.file.replace(/\.(cu|py)$/, ".yaml");
  const against = rows.reference[place], other = run.variants.get(against) ?? about?.references[against];
  const known = other ? flow({ kernel: other.kernel, params: flow(other.params) }) : about?.libraries.includes(against) ? against : null;
  if (!file || !known) return null;
  const words = ["python", "-m", "ladder", "judge", file, "--dtype", rows.dtype[place]];
  if (rows.layout[place]) words.push("--layout", rows.layout[place]);
  words.push("--size", "elements" in size ? String(size.elements) : flow(size), "--regime", rows.regime[place]);
  for (const [name, value] of Object.entries(own.params)) words.push("--param", `${name}=${value}`);
  if (other || !quickest) words.push("--reference", known);
  return words.map(shellWord).join(" ");
}

/** Commands that repeat a cell, the first as published where it is: alone, and its sweep. */
function commands(run, place) {
  const { rows } = run, found = [];
  const set = (...words) => `${SETUP}\n${words.map(shellWord).join(" ")}`;
  if (run.name.startsWith("published/")) found.push(["Repeat this number on your GPU (after make)", set("ladder", "reproduce", run.ids[place], "--device", run.device)]);
  const alone = judgeCommand(run, place, sizeOf(rows, place));
  if (alone) found.push(["This cell alone, on a GPU", `${SETUP}\n${alone}`]);
  found.push(["Its sweep", set("snakemake", "--cores", "all", `sweep_${rows.sweep[place]}`)]);
  return found;
}

function valueRows(names, columns) {
  const shown = names.filter(([name]) => columns.some((value) => value(name) !== null));
  const said = (name, value) => (value === null ? "" : name in WORDS ? WORDS[name](value) : value);
  return shown.map(([name, title]) => `<tr data-name="${escaped(name)}"><th scope="row">${escaped(title)}</th>${columns.map((value) => `<td>${escaped(said(name, value(name)))}</td>`).join("")}</tr>`).join("");
}

function valueTable(title, names, columns, heads) {
  const body = valueRows(names, columns);
  if (!body) return "";
  const head = heads.length > 1 ? `<thead><tr><th></th>${heads.map((name) => `<th scope="col">${escaped(name)}</th>`).join("")}</tr></thead>` : "";
  return `<h3>${escaped(title)}</h3><table>${head}<tbody>${body}</tbody></table>`;
}

/** Lines that a text has and another has not: [["-", line], ["+", line]], by the longest common subsequence. */
function changedLines(before, after) {
  const [from, to] = [before.split("\n"), after.split("\n")];
  const length = Array.from({ length: from.length + 1 }, () => new Uint16Array(to.length + 1));
  for (let own = from.length - 1; own >= 0; own -= 1) {
    for (let its = to.length - 1; its >= 0; its -= 1) {
      length[own][its] = from[own] === to[its] ? length[own + 1][its + 1] + 1 : Math.max(length[own + 1][its], length[own][its + 1]);
    }
  }
  const found = [];
  let own = 0, its = 0;
  while (own < from.length || its < to.length) {
    if (own < from.length && its < to.length && from[own] === to[its]) { own += 1; its += 1; }
    else if (its < to.length && (own === from.length || length[own][its + 1] > length[own + 1][its])) { found.push(["+", to[its]]); its += 1; }
    else { found.push(["-", from[own]]); own += 1; }
  }
  return found.filter(([, line]) => line.trim());
}

/** Of a rung what it changes on the rung below: its gain, why, its parameters and the lines of its source. */
function stepHtml(run, place) {
  const { rows } = run, steps = run.sweeps[rows.sweep[place]]?.steps || [];
  const step = steps.find((one) => one.variant === rows.variant[place] && one.gain[0] !== null);
  if (!step) return "";
  const label = rows.label[run.ids.findIndex((_, other) => rows.sweep[other] === rows.sweep[place] && rows.variant[other] === step.below)];
  const [own, other] = [run.variants.get(step.variant), run.variants.get(step.below)];
  const parts = [`<h3>What it changes on “${escaped(label)}”</h3><p><b>${escaped(stepWords(step))}</b> at ${escaped(run.sweeps[rows.sweep[place]].size)}. ${escaped(step.why.slice(0, 1).toUpperCase() + step.why.slice(1))}</p>`];
  const names = [...new Set([...Object.keys(other.params), ...Object.keys(own.params)])].filter((name) => own.params[name] !== other.params[name]);
  if (own.kernel === other.kernel) parts.push(`<p>Parameters: ${names.map((name) => `<code>${escaped(name)}: ${escaped(other.params[name])} → ${escaped(own.params[name])}</code>`).join(", ")}</p>`);
  const [text, was] = [PAGE.kernels[own.kernel], PAGE.kernels[other.kernel]];
  if (own.kernel !== other.kernel && text && was) {
    const lines = changedLines(was.text, text.text);
    parts.push(`<details class="changes"><summary>${lines.length} lines differ between <code>${escaped(was.file)}</code> and <code>${escaped(text.file)}</code></summary>`
      + `<pre class="source">${lines.map(([sign, line]) => `<span class="${sign === "+" ? "more" : "less"}">${sign} ${escaped(line)}</span>`).join("\n")}</pre></details>`);
  }
  return parts.join("");
}

/** HTML of the panel; with `beside` the same cell of that run in a second column. */
function detailHtml(run, place, beside) {
  const { rows } = run, at = (name) => rows[name]?.[place] ?? null;
  const sides = [[run, place]], counterpart = beside?.places.get(run.ids[place]);
  if (counterpart !== undefined) sides.push([beside, counterpart]);
  const heads = sides.map(([own]) => (sides.length > 1 ? runName(own) : ""));
  const measured = sides.map(([own, there]) => (name) => { // with its interval, if it has one
    const value = own.rows[name]?.[there] ?? null;
    return name in WORDS || (Number.isInteger(value) && own.rows[`${name}_low`] === undefined) ? value : spread(own.rows, name, there) || null;
  });
  const compiled = sides.map(([own, there]) => (name) => own.resource(there, name));
  const about = run.sweeps[at("sweep")], technique = about?.rungs?.[at("variant")];
  const kernel = PAGE.kernels[at("kernel")];
  const parts = [`<div class="head"><h2 id="detail-title">${escaped(at("called"))} <span class="muted">at ${escaped(at("size"))}, ${escaped(at("dtype"))}${at("layout") ? `, ${escaped(at("layout"))}` : ""}${at("regime") ? `, ${escaped(at("regime"))}` : ""}</span></h2>`
    + '<button type="button" id="close">Close</button></div>'];
  parts.push(`<p><b>${escaped(about?.title ?? at("sweep"))}</b><br>${escaped(about?.question ?? "")}</p>`);
  if (at("rung")) parts.push(`<p>Rung “${escaped(at("rung"))}” of this sweep.</p>`);
  if (technique) parts.push(`<p>${escaped(technique)}</p>`);
  parts.push(stepHtml(run, place));
  const failed = at("status") !== "ok";
  parts.push(`<p>Status: <b class="${failed ? "failed" : ""}">${escaped(at("status"))}</b>${at("reason") ? `: ${escaped(at("reason"))}` : ""}</p>`);
  const moved = sides.length > 1 ? ratio(run, place, beside, counterpart) : null;
  if (moved) parts.push(`<p>Speed-up of ${escaped(heads[1])} over that of ${escaped(heads[0])}: <b>${figure(moved.value)} [${figure(moved.low)}, ${figure(moved.high)}]</b></p>`);
  for (const [title, names] of GROUPS) parts.push(valueTable(title, names, measured, heads));

  parts.push("<h3>Repeat it</h3>", ...commands(run, place).map(commandHtml));
  parts.push('<p class="muted">A link to this cell <button type="button" class="copy" data-copy="address">Copy</button></p>');

  const params = Object.entries(run.variants.get(at("variant"))?.params || {});
  const list = (pairs) => `<ul class="pairs">${pairs.map(([name, value]) => `<li>${escaped(name)} = <b>${escaped(value)}</b></li>`).join("")}</ul>`;
  if (params.length) parts.push("<h3>Parameters</h3>", list(params));
  parts.push(valueTable("Code", CODE, compiled, heads));
  const sass = run.resourceNames.filter((name) => !NOT_SASS.has(name) && sides.some(([own, there]) => own.resource(there, name)));
  parts.push(valueTable("SASS instructions in the kernel", sass.map((name) => [name, name.toUpperCase().replace("_", ".")]), compiled, heads));
  const metrics = run.metricsOf(place);
  if (metrics.length) parts.push(`<details><summary>Counters and what the kernel reports (${metrics.length})</summary><table><tbody>${metrics.map((one) =>
    `<tr><th scope="row">${escaped(one.metric)}</th><td>${escaped(magnitude(one.value))} ${escaped(one.unit ?? "")}</td></tr>`).join("")}</tbody></table></details>`);
  const sessions = run.sessionsOf(place);
  if (sessions.length) {
    const columns = ["started", "gpu_uuid", "commit", "reference", "speedup", "speedup_low", "speedup_high", "median_us", "sm_clock_mhz", "power_w", "samples"]
      .filter((name) => sessions.some((one) => one[name] != null));
    parts.push(`<details><summary>Sessions (${sessions.length})</summary>${sessions.map((one) => `<table><tbody>${columns.map((name) =>
      `<tr><th scope="row">${escaped(name)}</th><td>${escaped(name === "started" || typeof one[name] !== "number" ? one[name] ?? "" : figure(one[name]))}</td></tr>`).join("")}</tbody></table>`).join("")}</details>`);
  }
  parts.push(`<h3 id="source">Source</h3><p><code>${escaped(kernel ? kernel.file : at("kernel"))}</code>, variant <code>${escaped(at("variant"))}</code>
    <button type="button" class="all" data-variant="${escaped(at("variant"))}">All its cells</button></p>`);
  if (kernel) parts.push(`<details><summary>The file, as it was when this page was made</summary><pre class="source">${escaped(kernel.text)}</pre></details>`);
  return parts.join("\n");
}
