"use strict";
// What to use: the recommended configuration for a dtype, layout, size and regime, its speed, and the next ones.
// Needs data.js and detail.js.

const REGIMES = { cold: "once, cold", sustained: "for seconds", warm: "warm L2" };
const USUAL = { kind: "bf16", m: 4096 };

/** How far two sizes are apart, in octaves of M, N and K together. */
const apart = (one, other) => ["m", "n", "k"].reduce((sum, name) => sum + Math.abs(Math.log2(one[name] / other[name])), 0);

/** The asked place of `kind/layout/MxNxK/regime`, each part as usual where it is left out or unknown. */
function askedUse(run, text) {
  const [kind, layout, size, regime] = text.split("/"), kinds = [...new Set(run.uses.map((one) => one.kind))];
  const asked = { kind: kinds.includes(kind) ? kind : kinds.includes(USUAL.kind) ? USUAL.kind : kinds[0] };
  const own = run.uses.filter((one) => one.kind === asked.kind);
  const sides = (size || "").split("x").map(Number);
  [asked.m, asked.n, asked.k] = sides.length === 3 && sides.every((side) => Number.isFinite(side) && side >= 1) ? sides : [USUAL.m, USUAL.m, USUAL.m];
  const layouts = [...new Set(own.map((one) => one.layout))];
  const speed = (one) => run.rows.speedup[one.places[0]];
  const fastest = own.filter((one) => apart(one, asked) === 0 && one.regime === "cold").sort((one, other) => speed(other) - speed(one))[0];
  asked.layout = layouts.includes(layout) ? layout : fastest?.layout ?? layouts[0];
  const regimes = [...new Set(own.filter((one) => one.layout === asked.layout).map((one) => one.regime))];
  asked.regime = regimes.includes(regime) ? regime : regimes.includes("cold") ? "cold" : regimes[0];
  return { asked, kinds, layouts, regimes };
}

const TILE = 64; // rows of the smallest tile of the GEMMs for tensor cores: thinner products have kernels of their own

/**
 * What was measured at the asked place, or at the nearest size of that dtype, layout and regime: of a cube at a cube, of a
 * product thinner than a tile at the nearest M.
 */
function nearestUse(run, asked) {
  const own = run.uses.filter((one) => ["kind", "layout", "regime"].every((name) => one[name] === asked[name]));
  const isCube = (one) => one.m === one.n && one.n === one.k, cubes = isCube(asked) ? own.filter(isCube) : [];
  const thin = (one) => (asked.m < TILE && !cubes.length ? Math.abs(Math.log2(one.m / asked.m)) : 0);
  const nearer = (best, one) => (best === null || (thin(one) - thin(best) || apart(one, asked) - apart(best, asked)) < 0 ? one : best);
  return (cubes.length ? cubes : own).reduce(nearer, null);
}

const NARROW = 0.035; // as in the report: a tie whose range reaches farther from 1 is undecided

/** 3 % faster than cuBLAS (another GPU: +1 % to +5 %). */
function overLibrary(run, place) {
  const { rows } = run, library = libraryName(run, place), value = rows.speedup[place];
  const range = elsewhere(rows.range[place] ?? []), how = verdictOf(run, place), [low, high] = deciding(run, place);
  const wide = Math.max(1 - low, high - 1) >= NARROW;
  const words = how === "tied" ? `${wide ? "undecided against" : "as fast as"} ${library}` : value >= 2 || value <= 0.5 ? `${times(value)} the speed of ${library}`
    : `${times(value).replace(/^[+−]/, "")} ${how} than ${library}`;
  return words + (range ? ` (another GPU: ${range})` : "");
}

/** +3 % over cuBLAS (another GPU: +1 % to +5 %): the number by which configurations rank. */
function overWords(run, place) {
  const { rows } = run, range = elsewhere(rows.range[place] ?? []);
  const value = rows.speedup[place], words = value >= 2 || value <= 0.5 ? `${times(value)} the speed of` : `${times(value)} over`;
  return `${words} ${libraryName(run, place)}${range ? ` (another GPU: ${range})` : ""}`;
}

/** "3 sessions on 2 GPUs"; empty where it is unknown. */
function sessionsOf({ rows }, place) {
  const count = (number, one) => `${number} ${one}${number === 1 ? "" : "s"}`;
  return rows.sessions?.[place] == null ? "" : `${count(rows.sessions[place], "session")} on ${rows.gpus?.[place] == null ? "an unknown number of GPUs" : count(rows.gpus[place], "GPU")}`;
}

const sizeWords = (size) => `${size.m} x ${size.n} x ${size.k}`;
const FAR = 2; // factor in M, N or K from which on what was measured says nothing
const isFar = (asked, size) => ["m", "n", "k"].some((name) => Math.max(asked[name] / size[name], size[name] / asked[name]) > FAR);
/** What of M, N and K a configuration does not take, in words; empty where it takes them. */
const refused = (size, multiples) => Object.entries(multiples).filter(([name, of]) => size[name] % of)
  .map(([name, of]) => `${name.toUpperCase()} in multiples of ${of}`).join(" and ");

function commandHtml([title, command]) {
  return `<p class="muted">${escaped(title)} <button type="button" class="copy">Copy</button></p><pre class="command">${escaped(command)}</pre>`;
}

/** What times the best three of a place that take the asked size; folded where that size was measured. */
function timeHtml(run, found, asked, exact) {
  const taking = found.places.filter((_, index) => !refused(asked, found.multiples[index]));
  const lines = taking.map((place) => judgeCommand(run, place, { m: asked.m, n: asked.n, k: asked.k }, true)).filter(Boolean).slice(0, 3);
  if (!lines.length) return "<p>None of the fastest takes this size. Pad it, or time a kernel of your own by <code>ladder judge</code>.</p>";
  const what = lines.length > 1 ? `the ${lines.length} best` : "the best one";
  return `<details${exact ? "" : " open"}><summary>Time ${what}${exact ? "" : ` of ${sizeWords(found)}`} at ${sizeWords(asked)} on your GPU</summary>${commandHtml(["After make", [SETUP, ...lines].join("\n")])}
    <p class="muted">What it says: <a href="${PAGE.docs}/judge.md">judge</a>.</p></details>`;
}

function useHtml(run, asked) {
  const found = nearestUse(run, asked), { rows } = run;
  if (!found) return "<p>No GEMM was timed against a library here. See <a href=\"#charts\">Charts</a>.</p>";
  const [place, ...next] = found.places, id = (one) => escaped(run.ids[one]), library = libraryName(run, place);
  const file = PAGE.kernels[rows.kernel[place]]?.file, exact = apart(found, asked) === 0;
  const far = isFar(asked, found);
  const parts = [], needs = refused(asked, found.multiples[0]);
  const layouts = [...new Set(run.uses.filter((one) => one.kind === found.kind && !isFar(asked, one)).map((one) => one.layout))];
  if (layouts.length === 1) parts.push(`<p class="muted">${escaped(found.kind)} near this size: measured in ${escaped(layouts[0])} only.</p>`);
  if (!exact) {
    const nearest = `nearest measured: ${sizeWords(found)}`;
    parts.push(`<p class="notice">${escaped(sizeWords(asked))} was not measured; ${far ? `it is too far from anything measured (${escaped(nearest)}). Time it.` : `${escaped(nearest)}. The numbers below are of that size, and no forecast.`}</p>`);
    if (needs) {
      const other = found.places.find((_, index) => !refused(asked, found.multiples[index]));
      parts.push(`<p class="notice">${escaped(rows.called[place])} takes ${needs} only: not this size.${other === undefined ? "" : ` ${escaped(rows.called[other])} takes it.`}</p>`);
    }
  }
  const source = `<button type="button" data-open="${id(place)}">All its numbers</button> <button type="button" data-open="${id(place)}" data-part="source">Source</button> <code>${escaped(file ?? "")}</code> ${rows.kernel[place] === "hopper_gemm" ? `<a href="${PAGE.docs}/use-a-kernel.md">Call it from a program</a>` : ""}`;
  const timing = far && asked.m < TILE && found.m >= TILE ? "<p>Nothing was measured with so few rows in this layout.</p>" : timeHtml(run, found, asked, exact);
  if (far) return [...parts, timing].join("");
  const [rate, share] = rateOf(run, place);
  // A line a regime, each with the sessions that it is of.
  const line = (one, regime, leads) => {
    const held = [figure(rows.reference_median_us?.[one]) && `${library} beside it: ${figure(rows.reference_median_us[one])} µs`, REGIMES[regime] ?? regime, sessionsOf(run, one)];
    return `<p>${leads}${escaped(overLibrary(run, one))}</span> <span class="muted">${figure(rows.median_us[one])} µs, ${escaped(held.filter(Boolean).join("; "))}</span></p>`;
  };
  parts.push(`<div class="answer${exact ? "" : " inexact"}"><p class="what"><b>${escaped(rows.called[place])}</b>${exact ? "" : ` <span class="muted">at ${escaped(sizeWords(found))}</span>`}</p>`
    + line(place, found.regime, `<span class="rate">${rate}</span> ${share}${share && ", "}<span class="${verdictOf(run, place)}-text">`));
  const other = run.uses.find((one) => one.kind === found.kind && one.layout === found.layout && one.size === found.size && one.regime === (found.regime === "sustained" ? "cold" : "sustained"));
  const same = other?.places.find((one) => rows.variant[one] === rows.variant[place]);
  const leading = (one) => `${rateOf(run, one)[0]}, <span>`;
  if (same !== undefined) parts.push(line(same, other.regime, `${other.regime === "sustained" ? "Running for seconds" : "Launched once"}: ${leading(same)}`));
  else if (other && other.regime === "sustained") parts.push(line(other.places[0], other.regime, `Running for seconds <b>${escaped(rows.called[other.places[0]])}</b> leads: ${leading(other.places[0])}`));
  parts.push(`<p>${source}</p>`, exact ? commandHtml(commands(run, place)[0]) : "", "</div>", exact ? "" : timing);
  if (next.length) {
    const rates = found.places.map((one) => rows.tflops?.[one] / rows.speedup[one]).filter(Number.isFinite);
    const moved = rates.length > 1 ? 100 * (Math.max(...rates) / Math.min(...rates) - 1) : 0;
    const surest = next.some((one) => rows.speedup[one] >= rows.speedup[place]) ? " Of those as fast within half a percent the one with the most sessions stands first." : "";
    parts.push(`<div class="${exact ? "" : "inexact"}"><p class="muted">Next, by speed-up over ${escaped(library)} beside it.${moved >= 0.5 ? ` TFLOP/s differ between sessions (${escaped(library)}’s own by ${figure(moved, 1)} % here): only ratios rank.` : ""}${surest}</p><ol class="next" start="2">${next.map((one) =>
      `<li><button type="button" class="link" data-open="${id(one)}"><b>${escaped(rows.called[one])}</b></button> ${escaped(overWords(run, one))} <span class="muted">${escaped(sessionsOf(run, one))}</span></li>`).join("")}</ol></div>`);
  }
  if (exact) parts.push(timing);
  return parts.join("");
}
