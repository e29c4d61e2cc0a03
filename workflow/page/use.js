"use strict";
// What to use: the recommended configuration for a dtype, layout, size and regime, its speed, and the next ones.
// Needs data.js and detail.js.

const REGIMES = { cold: "once, cold", sustained: "for seconds", dirty: "once, dirty L2", warm: "warm L2" };
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

/** What was measured at the asked place, or at the nearest size of that dtype, layout and regime, of a cube at a cube. */
function nearestUse(run, asked) {
  const own = run.uses.filter((one) => ["kind", "layout", "regime"].every((name) => one[name] === asked[name]));
  const isCube = (one) => one.m === one.n && one.n === one.k, cubes = isCube(asked) ? own.filter(isCube) : [];
  const nearer = (best, one) => (best === null || apart(one, asked) < apart(best, asked) ? one : best);
  return (cubes.length ? cubes : own).reduce(nearer, null);
}

/** 3 % faster than cuBLAS (another GPU: +1 % to +5 %). */
function overLibrary(run, place) {
  const { rows } = run, library = libraryName(run, place), value = rows.speedup[place];
  const range = elsewhere([rows.predicted_low[place], rows.predicted_high[place]]), how = verdictOf(run, place);
  const words = how === "tied" ? `as fast as ${library}` : value >= 2 || value <= 0.5 ? `${times(value)} the speed of ${library}`
    : `${times(value).replace(/^[+−]/, "")} ${how} than ${library}`;
  return words + (range ? ` (another GPU: ${range})` : "");
}

function useHtml(run, asked) {
  const found = nearestUse(run, asked), { rows } = run;
  if (!found) return "<p>No GEMM was timed against a library here. See <a href=\"#charts\">Charts</a>.</p>";
  const [place, ...next] = found.places, id = (one) => escaped(run.ids[one]);
  const name = (index) => `<b>${escaped(rows.kernel[found.places[index]])}</b> ${escaped(found.names[index])}`;
  const parts = [];
  if (apart(found, asked) > 0) {
    parts.push(`<p class="notice">${escaped(`${asked.m} x ${asked.n} x ${asked.k}`)} was not measured. The nearest that was: ${escaped(`${found.m} x ${found.n} x ${found.k}`)}.</p>`);
  }
  const sessions = rows.sessions?.[place] != null ? `, ${rows.sessions[place]} session${rows.sessions[place] === 1 ? "" : "s"} on ${rows.gpus?.[place] ?? "?"} GPU${rows.gpus?.[place] === 1 ? "" : "s"}` : "";
  parts.push(`<div class="answer"><p class="what">${name(0)}</p><p><span class="rate">${figure(rows.tflops?.[place], 3)} TFLOP/s</span> <span class="${verdictOf(run, place)}-text">${escaped(overLibrary(run, place))}</span></p>`);
  const other = run.uses.find((one) => one.kind === found.kind && one.layout === found.layout && one.size === found.size && one.regime === (found.regime === "sustained" ? "cold" : "sustained"));
  const same = other?.places.find((one) => rows.variant[one] === rows.variant[place]);
  if (same !== undefined) parts.push(`<p>${other.regime === "sustained" ? "Running for seconds" : "Launched once"}: ${figure(rows.tflops?.[same], 3)} TFLOP/s, ${escaped(overLibrary(run, same))}</p>`);
  else if (other && other.regime === "sustained") parts.push(`<p>Running for seconds <b>${escaped(rows.kernel[other.places[0]])}</b> ${escaped(other.names[0])} leads: ${figure(rows.tflops?.[other.places[0]], 3)} TFLOP/s, ${escaped(overLibrary(run, other.places[0]))}</p>`);
  const file = PAGE.kernels[rows.kernel[place]]?.file;
  parts.push(`<p><button type="button" data-open="${id(place)}">All its numbers</button> <button type="button" data-open="${id(place)}" data-part="source">Source</button> <code>${escaped(file ?? "")}</code> <span class="muted">${escaped(REGIMES[found.regime] ?? found.regime)}${escaped(sessions)}</span></p>`);
  const [title, command] = commands(run, place).find(([what]) => what.startsWith("Against")) ?? commands(run, place)[0];
  parts.push(`<p class="muted">${escaped(title)} <button type="button" class="copy">Copy</button></p><pre class="command">${escaped(command)}</pre></div>`);
  if (next.length) {
    parts.push(`<p class="muted">Next:</p><ol class="next" start="2">${next.map((one, index) =>
      `<li><button type="button" class="link" data-open="${id(one)}">${name(index + 1)}</button> ${figure(rows.tflops?.[one], 3)} TFLOP/s, ${times(rows.speedup[one] / rows.speedup[place])}</li>`).join("")}</ol>`);
  }
  return parts.join("");
}
