"use strict";
// Charts as SVG text, drawn at the width that there is. A mark carries its run and cell: data-run, data-cell.
// Needs data.js.

const COLOURS = 8; // --s0 to --s7
const MOST_BARS = 40;
const SHAPES = ["circle", "square", "diamond", "triangle"];

/** A scale from values to pixels. */
function linear(low, high, from, to) {
  return (value) => from + ((value - low) / (high - low || 1)) * (to - from);
}
function logarithmic(low, high, from, to) {
  const scale = linear(Math.log(low), Math.log(high), from, to);
  return (value) => scale(Math.log(value));
}

/** Round numbers that cut a range into about `count` parts. */
function ticks(low, high, count) {
  const rough = (high - low) / count || 1, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((one) => one * power).find((one) => one >= rough);
  const found = [];
  for (let value = Math.ceil(low / step) * step; value <= high + step / 1e6; value += step) found.push(Number(value.toPrecision(12)));
  return found;
}
const LOG_TICKS = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100];

const powerLabel = (value) => (value >= 65536 && Number.isInteger(Math.log2(value)) ? `2^${Math.log2(value)}` : String(value));

/** The rows of a sweep that charts may show: with a result, against the sweep's own reference. */
function chartRows(run, sweep, regime) {
  const { rows } = run;
  return run.ids.flatMap((_, place) =>
    rows.sweep[place] === sweep && rows.regime[place] === regime && rows.baseline[place] === null ? [place] : []);
}

function attributes(run, place, label) {
  return `data-run="${RUNS.indexOf(run)}" data-cell="${place}" role="button" aria-label="${escaped(label)}"`;
}

/** Text cut to fit some pixels. */
function fitted(text, pixels) {
  const most = Math.max(6, Math.floor(pixels / 6.6));
  return escaped(text.length > most ? `${text.slice(0, most - 1)}…` : text);
}

/** Horizontal bars of speed-ups with their intervals and names, the reference at 1; those of `beside` as diamonds. */
function drawBars(element, run, places, beside, named) {
  const width = element.clientWidth || 600, narrow = width < 560, { rows } = run;
  if (!places.length) {
    element.innerHTML = "<p>No cell of this size and regime.</p>";
    return;
  }
  const left = narrow ? 4 : Math.min(360, Math.max(140, ...places.map((place) => 6.9 * named(place).length + 12)));
  const high = narrow ? 36 : 24, top = 22, right = narrow ? 62 : 150, bottom = top + places.length * high;
  const counterparts = places.map((place) => beside?.places.get(run.ids[place]) ?? null);
  const reach = Math.max(1, ...places.map((place) => rows.speedup_high[place] ?? rows.speedup[place] ?? 0),
    ...counterparts.map((place) => (place === null ? 0 : beside.rows.speedup_high[place] ?? 0)));
  const x = linear(0, reach, left, width - right);
  const parts = ticks(0, reach, narrow ? 4 : 8).map((value) =>
    `<line class="grid" x1="${x(value)}" x2="${x(value)}" y1="${top}" y2="${bottom}"/><text class="muted" text-anchor="middle" x="${x(value)}" y="${bottom + 15}">${value}</text>`);
  places.forEach((place, index) => {
    const y = top + index * high, middle = narrow ? y + 25 : y + high / 2, size = narrow ? 12 : 14;
    const value = rows.speedup[place], [low, up] = [rows.speedup_low[place] ?? value, rows.speedup_high[place] ?? value];
    const label = narrow ? `<text x="${left}" y="${y + 14}">${fitted(named(place), width)}</text>`
      : `<text text-anchor="end" x="${left - 8}" y="${middle + 4}">${fitted(named(place), left - 12)}</text>`;
    const rate = rows.tflops?.[place] != null ? `${figure(rows.tflops[place], 3)} TFLOP/s` : rows.gbytes_per_s?.[place] != null ? `${figure(rows.gbytes_per_s[place])} GB/s` : "";
    const said = summary(run, place).replaceAll("\n", ", ");
    if (value === null) {
      parts.push(`<g tabindex="0" ${attributes(run, place, said)}>${label}<rect class="hit" x="0" y="${y}" width="${width}" height="${high}"/>`
        + `<text class="muted" font-style="italic" x="${left + 4}" y="${middle + 4}">no result: ${escaped(rows.status[place])}</text></g>`);
      return;
    }
    parts.push(`<g tabindex="0" ${attributes(run, place, said)}>${label}`
      + `<rect class="bar" x="${left}" y="${middle - size / 2}" width="${Math.max(1, x(value) - left)}" height="${size}"/>`
      + `<path class="whisker" d="M${x(low)} ${middle - 4}v8m0-4H${x(up)}m0-4v8"/>`
      + `<text x="${x(up) + 8}" y="${middle + 4}">${figure(value, 3)}${narrow || !rate ? "" : ` x, ${rate}`}</text>`
      + `<rect class="hit" x="0" y="${y}" width="${width}" height="${high}"/></g>`);
    const counterpart = counterparts[index];
    if (counterpart !== null && beside.rows.speedup[counterpart] !== null) {
      const its = beside.rows, at = x(its.speedup[counterpart]);
      parts.push(`<g tabindex="0" ${attributes(beside, counterpart, `${runName(beside)}: ${summary(beside, counterpart).replaceAll("\n", ", ")}`)}>`
        + `<path class="whisker other" d="M${x(its.speedup_low[counterpart] ?? its.speedup[counterpart])} ${middle}H${x(its.speedup_high[counterpart] ?? its.speedup[counterpart])}"/>`
        + `<path class="beside" d="M${at} ${middle - 6}l6 6-6 6-6-6z"/></g>`);
    }
  });
  parts.push(`<line class="unit" x1="${x(1)}" x2="${x(1)}" y1="${top - 4}" y2="${bottom}"/><text text-anchor="middle" x="${x(1)}" y="${top - 8}">reference</text>`);
  element.innerHTML = `<svg height="${bottom + 22}" viewBox="0 0 ${width} ${bottom + 22}" role="group" aria-label="Speed-up of each row">${parts.join("")}</svg>`;
}

/** Colour and mark of the series at a place: the marks change when the colours are used up. */
const look = (at) => [`var(--s${at % COLOURS})`, SHAPES[Math.floor(at / COLOURS) % SHAPES.length]];

function mark(shape, x, y, size) {
  if (shape === "circle") return `<circle cx="${x}" cy="${y}" r="${size}"/>`;
  if (shape === "square") return `<rect x="${x - size}" y="${y - size}" width="${2 * size}" height="${2 * size}"/>`;
  if (shape === "diamond") return `<path d="M${x} ${y - 1.3 * size}l${1.3 * size} ${1.3 * size}-${1.3 * size} ${1.3 * size}-${1.3 * size}-${1.3 * size}z"/>`;
  return `<path d="M${x} ${y - 1.2 * size}l${1.2 * size} ${2.2 * size}h-${2.4 * size}z"/>`;
}

/**
 * Lines of speed-ups over a logarithmic axis, with intervals. series: [{name, run, points: [{x, place}]}]; those of the
 * run beside have the names of their own and are dashed. `lit` is the name that stands out, or "".
 */
function drawCurves(element, series, title, lit, beside) {
  const width = element.clientWidth || 600, height = Math.min(440, Math.max(280, 0.5 * width));
  const points = series.flatMap((one) => one.points.map((point) => ({ ...point, rows: one.run.rows })));
  const values = points.map(({ rows, place }) => rows.speedup[place]);
  if (new Set(points.map((point) => point.x)).size < 2) {
    element.innerHTML = "";
    return false;
  }
  const [low, high] = [Math.min(1, ...points.map(({ rows, place }) => rows.speedup_low[place] ?? rows.speedup[place])),
    Math.max(1, ...points.map(({ rows, place }) => rows.speedup_high[place] ?? rows.speedup[place]))];
  const wide = Math.max(...values) > 4 * Math.min(...values);
  const [left, right, top, bottom] = [46, 12, 10, height - 40];
  const xs = [...new Set(points.map((point) => point.x))].sort((one, other) => one - other);
  const x = logarithmic(xs[0], xs[xs.length - 1], left + 12, width - right - 12);
  const room = 0.04 * (high - low);
  const y = wide ? logarithmic(low / 1.1, high * 1.1, bottom, top) : linear(low - room, high + room, bottom, top);
  const levels = wide ? LOG_TICKS.filter((value) => value >= low / 1.1 && value <= high * 1.1) : ticks(low - room, high + room, 6);
  const parts = levels.map((value) =>
    `<line class="grid" x1="${left}" x2="${width - right}" y1="${y(value)}" y2="${y(value)}"/><text class="muted" text-anchor="end" x="${left - 6}" y="${y(value) + 4}">${value}</text>`);
  let taken = -Infinity;
  for (const value of xs) {
    const label = powerLabel(value), half = 3.6 * label.length;
    if (x(value) - half < taken + 6) continue;
    taken = x(value) + half;
    parts.push(`<line class="axis" x1="${x(value)}" x2="${x(value)}" y1="${bottom}" y2="${bottom + 4}"/><text class="muted" text-anchor="middle" x="${x(value)}" y="${bottom + 17}">${label}</text>`);
  }
  parts.push(`<line class="unit" x1="${left}" x2="${width - right}" y1="${y(1)}" y2="${y(1)}"/>`);
  parts.push(`<text class="muted" text-anchor="middle" x="${(left + width - right) / 2}" y="${height - 6}">${escaped(title)}</text>`);
  series.forEach((one) => {
    const { rows } = one.run, [colour, shape] = look(one.at);
    const inOrder = [...one.points].sort((first, second) => first.x - second.x);
    const path = inOrder.map(({ x: at, place }, index) => `${index ? "L" : "M"}${x(at).toFixed(1)} ${y(rows.speedup[place]).toFixed(1)}`).join("");
    const dashes = one.run === beside ? ' stroke-dasharray="5 4"' : "";
    const marks = inOrder.map(({ x: at, place }) => {
      const [from, to] = [rows.speedup_low[place] ?? rows.speedup[place], rows.speedup_high[place] ?? rows.speedup[place]];
      return `<g ${attributes(one.run, place, summary(one.run, place).replaceAll("\n", ", "))}><path class="whisker" style="stroke:${colour}" d="M${x(at)} ${y(from)}V${y(to)}"/>`
        + `<g fill="${one.run === beside ? "var(--paper)" : colour}" stroke="${colour}">${mark(shape, x(at), y(rows.speedup[place]), 3.2)}</g>`
        + `<circle class="hit" cx="${x(at)}" cy="${y(rows.speedup[place])}" r="9"/></g>`;
    });
    parts.push(`<g class="${lit && lit !== one.name ? "dim" : ""}"><path class="series" style="stroke:${colour}"${dashes} d="${path}"/>${marks.join("")}</g>`);
  });
  element.innerHTML = `<svg height="${height}" viewBox="0 0 ${width} ${height}" role="group" aria-label="Speed-up over ${escaped(title)}">${parts.join("")}</svg>`;
  return true;
}

/** What a row has in common with those of the same variant and size in other regimes. */
const sizedId = (run, place) => `${run.rows.variant[place]}@${run.rows.size[place]}`;

/** Those of the fastest at each size, in the sweep's first regime. */
const fastestAt = (run, sweep) => new Set((run.sweeps[sweep]?.fastest || []).map((place) => sizedId(run, place)));

/** What the curves of a sweep show: the rows of the bars at every size, or of shapes the fastest, by N x K. */
function curveSeries(run, sweep, regime, shown, beside) {
  const about = run.sweeps[sweep], found = [];
  for (const own of [run, beside]) {
    if (!own) continue;
    const { rows } = own;
    const extent = (place) => rows.m?.[place] ?? rows.elements?.[place] ?? null;
    const fastest = fastestAt(own, sweep);
    const labels = new Set(shown.map((place) => run.rows.label[place]));
    const name = about.shapes ? (place) => `${rows.dtype[place]}, N x K = ${rows.n[place]} x ${rows.k[place]}` : (place) => rows.label[place];
    const wanted = chartRows(own, sweep, regime).filter((place) =>
      rows.speedup[place] !== null && extent(place) !== null && (about.shapes ? fastest.has(sizedId(own, place)) : labels.has(rows.label[place])));
    for (const [title, points] of grouped(wanted.length, (at) => name(wanted[at]))) {
      found.push({ name: title, run: own, points: points.map((at) => ({ x: extent(wanted[at]), place: wanted[at] })) });
    }
  }
  const names = [...new Set(found.map((one) => one.name))];
  for (const one of found) one.at = names.indexOf(one.name);
  return { series: found, names, title: run.rows.m?.[shown[0]] != null ? (about.shapes ? "M" : "size (M)") : "elements" };
}
