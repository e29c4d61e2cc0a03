"use strict";
// Charts as SVG text, drawn at the width that there is. A mark carries its run and cell: data-run, data-cell.
// Needs data.js.

const MOST_LINES = 6; // --s0 to --s5
const MOST_BARS = 40;
const SHAPES = ["circle", "square", "diamond", "triangle", "bar", "cross"];

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
const LOG_TICKS = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000];

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

/** What a chart shows of a row, with its interval: the ratio, or the rate where baselines differ. [null] if unknown. */
function measure({ rows }, place, column) {
  const value = rows[column]?.[place] ?? null;
  if (value === null) return [null, null, null];
  if (column === "speedup") return [value, rows.speedup_low[place] ?? value, rows.speedup_high[place] ?? value];
  const work = value * rows.median_us[place];
  return [value, work / (rows.median_us_high?.[place] ?? rows.median_us[place]), work / (rows.median_us_low?.[place] ?? rows.median_us[place])];
}

/** The column that orders rows by speed: speed-ups where they compare, else the rate. */
function speedColumn(run, places) {
  if (comparable(run, places)) return "speedup";
  return places.some((place) => run.rows.copy_fraction?.[place] != null || run.rows.tflops?.[place] == null) ? "gbytes_per_s" : "tflops";
}

/**
 * A row each: its name, its speed with the measured interval (thick) and what another GPU would read (thin), and in
 * words on the right. The axis shows the values and not 0. Those of `beside` are diamonds.
 */
function drawSpeeds(element, run, places, beside, named, column) {
  const width = element.clientWidth || 600, narrow = width < 560, { rows } = run;
  if (!places.length) {
    element.innerHTML = "<p>No cell of this size and regime.</p>";
    return;
  }
  const left = narrow ? 4 : Math.min(0.46 * width, Math.max(140, ...places.map((place) => 6.9 * named(place).length + 12)));
  const high = narrow ? 36 : 24, top = 22, right = narrow ? 62 : 176, bottom = top + places.length * high;
  const counterparts = places.map((place) => beside?.places.get(run.ids[place]) ?? null);
  const ratio_ = column === "speedup", far = (own, place) => (ratio_ ? own.rows.range[place] ?? [] : []);
  const ends = [...(ratio_ ? [1] : []), ...places.flatMap((place) => [...measure(run, place, column), ...far(run, place)]),
    ...counterparts.flatMap((place) => (place === null ? [] : measure(beside, place, column)))].filter((value) => value !== null);
  if (!ends.length) ends.push(1);
  const [least, most] = [Math.min(...ends), Math.max(...ends)], room = 0.03 * (most - least) || 0.01;
  const wide = least > 0 && most > 3 * least;
  const x = wide ? logarithmic(least, most, left + 8, width - right) : linear(least - room, most + room, left + 4, width - right);
  const levels = wide ? LOG_TICKS.filter((value) => value >= least && value <= most) : ticks(least - room, most + room, narrow ? 4 : 8);
  const parts = levels.map((value) =>
    `<line class="grid" x1="${x(value)}" x2="${x(value)}" y1="${top}" y2="${bottom}"/><text class="muted" text-anchor="middle" x="${x(value)}" y="${bottom + 15}">${value}</text>`);
  if (ratio_) parts.push(`<line class="unit" x1="${x(1)}" x2="${x(1)}" y1="${top - 4}" y2="${bottom}"/><text text-anchor="middle" x="${x(1)}" y="${top - 8}">reference</text>`);
  places.forEach((place, index) => {
    const y = top + index * high, middle = narrow ? y + 25 : y + high / 2;
    const [value, low, up] = measure(run, place, column);
    const label = narrow ? `<text x="${left}" y="${y + 14}">${fitted(named(place), width)}</text>`
      : `<text text-anchor="end" x="${left - 8}" y="${middle + 4}">${fitted(named(place), left - 12)}</text>`;
    const said = summary(run, place).replaceAll("\n", ", ");
    if (value === null) {
      parts.push(`<g tabindex="0" ${attributes(run, place, said)}>${label}<rect class="hit" x="0" y="${y}" width="${width}" height="${high}"/>`
        + `<text class="muted" font-style="italic" x="${left + 4}" y="${middle + 4}">no result: ${escaped(rows.status[place])}</text></g>`);
      return;
    }
    const rate = rows.tflops?.[place] != null ? `${figure(rows.tflops[place], 3)} TFLOP/s` : rows.gbytes_per_s?.[place] != null ? `${figure(rows.gbytes_per_s[place])} GB/s` : "";
    const words = [ratio_ ? figure(value, 3) : "", narrow && ratio_ ? "" : rate].filter(Boolean).join(", ");
    const [farLow, farHigh] = far(run, place);
    parts.push(`<g tabindex="0" ${attributes(run, place, said)}>${label}`
      + (farLow == null ? "" : `<path class="far" d="M${x(farLow)} ${middle}H${x(farHigh)}"/>`) + `<path class="near" d="M${x(low)} ${middle}H${x(up)}"/>`
      + `<circle class="bar" cx="${x(value)}" cy="${middle}" r="4.5"/><text text-anchor="end" x="${width}" y="${middle + 4}">${words}</text>`
      + `<rect class="hit" x="0" y="${y}" width="${width}" height="${high}"/></g>`);
    const counterpart = counterparts[index];
    if (counterpart !== null && measure(beside, counterpart, column)[0] !== null) {
      const [at, itsLow, itsHigh] = measure(beside, counterpart, column);
      parts.push(`<g tabindex="0" ${attributes(beside, counterpart, `${runName(beside)}: ${summary(beside, counterpart).replaceAll("\n", ", ")}`)}>`
        + `<path class="whisker other" d="M${x(itsLow)} ${middle}H${x(itsHigh)}"/><path class="beside" d="M${x(at)} ${middle - 6}l6 6-6 6-6-6z"/></g>`);
    }
  });
  element.innerHTML = `<svg height="${bottom + 22}" viewBox="0 0 ${width} ${bottom + 22}" role="group" aria-label="Speed of each row">${parts.join("")}</svg>`;
}

/** Colour and mark of the line at a place: no two of a chart share either. */
const look = (at) => [`var(--s${at % MOST_LINES})`, SHAPES[at % SHAPES.length]];

function mark(shape, x, y, size) {
  if (shape === "circle") return `<circle cx="${x}" cy="${y}" r="${size}"/>`;
  if (shape === "square") return `<rect x="${x - size}" y="${y - size}" width="${2 * size}" height="${2 * size}"/>`;
  if (shape === "diamond") return `<path d="M${x} ${y - 1.3 * size}l${1.3 * size} ${1.3 * size}-${1.3 * size} ${1.3 * size}-${1.3 * size}-${1.3 * size}z"/>`;
  if (shape === "bar") return `<rect x="${x - size / 2}" y="${y - 1.4 * size}" width="${size}" height="${2.8 * size}"/>`;
  if (shape === "cross") return `<path stroke-width="2" fill="none" d="M${x - size} ${y - size}l${2 * size} ${2 * size}m0 ${-2 * size}l${-2 * size} ${2 * size}"/>`;
  return `<path d="M${x} ${y - 1.2 * size}l${1.2 * size} ${2.2 * size}h-${2.4 * size}z"/>`;
}

/**
 * Lines over a logarithmic axis, with intervals. series: [{name, run, at, points: [{x, place, value: [value, low, high]}]}];
 * those of the run beside have the names of their own and are dashed. Names stand at the right ends. What is far slower
 * than the fastest leaves the axis below.
 */
function drawCurves(element, series, title, unit, beside) {
  const width = element.clientWidth || 600, narrow = width < 560, height = Math.min(440, Math.max(280, 0.5 * width));
  const points = series.flatMap((one) => one.points);
  if (new Set(points.map((point) => point.x)).size < 2) {
    element.innerHTML = "";
    return false;
  }
  const xs = [...new Set(points.map((point) => point.x))].sort((one, other) => one - other);
  const fastest = xs.map((x) => Math.max(...points.filter((point) => point.x === x).map((point) => point.value[0])));
  const floor = 0.85 * Math.min(...fastest), every = points.flatMap((point) => point.value);
  let [low, high] = [Math.max(Math.min(...every), floor), Math.max(...every)];
  if (unit === "speedup" && low / 1.25 < 1 && high * 1.25 > 1) [low, high] = [Math.min(low, 1), Math.max(high, 1)];
  const wide = high > 4 * low, room = 0.04 * (high - low) || 0.01;
  const names = narrow ? 0 : Math.min(0.3 * width, Math.max(...series.map((one) => 6.6 * one.name.length)) + 14);
  const [left, right, top, bottom] = [46, 12 + names, 10, height - 40];
  const x = logarithmic(xs[0], xs[xs.length - 1], left + 12, width - right - 12);
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
  if (unit === "speedup" && y(1) >= top && y(1) <= bottom) parts.push(`<line class="unit" x1="${left}" x2="${width - right}" y1="${y(1)}" y2="${y(1)}"/>`);
  parts.push(`<text class="muted" text-anchor="middle" x="${(left + width - right) / 2}" y="${height - 6}">${escaped(title)}</text>`);
  const inside = (value) => Math.min(bottom, Math.max(top, y(value))), ends = [], below = new Map(); // values of what has left the axis below, at each x
  parts.push(`<clipPath id="plot"><rect x="${left}" y="${top - 6}" width="${width - right - left + 8}" height="${bottom - top + 6}"/></clipPath>`);
  for (const one of series) {
    const [colour, shape] = look(one.at), inOrder = [...one.points].sort((first, second) => first.x - second.x);
    const path = inOrder.map(({ x: at, value }, index) => `${index ? "L" : "M"}${x(at).toFixed(1)} ${y(value[0]).toFixed(1)}`).join("");
    const dashes = one.run === beside ? ' stroke-dasharray="5 4"' : "";
    const marks = inOrder.filter(({ value }) => y(value[0]) <= bottom).map(({ x: at, place, value }) =>
      `<g ${attributes(one.run, place, summary(one.run, place).replaceAll("\n", ", "))}><path class="whisker" style="stroke:${colour}" d="M${x(at)} ${inside(value[1])}V${inside(value[2])}"/>`
        + `<g fill="${one.run === beside ? "var(--paper)" : colour}" stroke="${colour}">${mark(shape, x(at), y(value[0]), 3.2)}</g>`
        + `<circle class="hit" cx="${x(at)}" cy="${y(value[0])}" r="9"/></g>`);
    const gone = inOrder.filter(({ value }) => y(value[0]) > bottom).map(({ x: at, place, value }) => {
      below.set(at, [...(below.get(at) ?? []), value[0]]);
      return `<g class="gone" ${attributes(one.run, place, summary(one.run, place).replaceAll("\n", ", "))}><path style="fill:${colour}" d="M${x(at) - 4} ${bottom - 7}h8l-4 7z"/>`
        + `<circle class="hit" cx="${x(at)}" cy="${bottom - 5}" r="9"/></g>`;
    });
    parts.push(`<g><path class="series" clip-path="url(#plot)" style="stroke:${colour}"${dashes} d="${path}"/>${marks.join("")}${gone.join("")}</g>`);
    const last = inOrder[inOrder.length - 1];
    if (one.run !== beside) ends.push({ name: one.name, colour, at: inside(last.value[0]), level: inside(last.value[0]), x: x(last.x) });
  }
  for (const [at, values] of below) {
    parts.push(`<text class="muted" text-anchor="middle" x="${x(at)}" y="${bottom - 11}">${[...new Set([Math.min(...values), Math.max(...values)].map((value) => figure(value, 2)))].join(" to ")}</text>`);
  }
  if (!narrow) {
    ends.sort((one, other) => one.at - other.at);
    for (let turn = 0; turn < 60; turn += 1) {
      for (let index = 1; index < ends.length; index += 1) {
        const overlap = 15 - (ends[index].at - ends[index - 1].at);
        if (overlap > 0) { ends[index].at += overlap / 2; ends[index - 1].at -= overlap / 2; }
      }
    }
    for (const end of ends) {
      parts.push(`<path class="lead" style="stroke:${end.colour}" d="M${end.x + 6} ${end.level}H${width - right - 4}L${width - right + 6} ${end.at}"/>`
        + `<text style="fill:${end.colour}" x="${width - right + 9}" y="${end.at + 4}">${fitted(end.name, names)}</text>`);
    }
  }
  element.innerHTML = `<svg height="${height}" viewBox="0 0 ${width} ${height}" role="group" aria-label="Speed over ${escaped(title)}">${parts.join("")}</svg>`;
  return true;
}

/** What most of a sweep's rows are timed against: by its rung where it has one there, else kernel and parameters. */
function baselineName(run, sweep) {
  const { rows } = run, about = run.sweeps[sweep];
  const own = run.ids.findIndex((_, place) => rows.sweep[place] === sweep && rows.rung[place] !== null && rows.reference[place] === rows.variant[place]);
  return own < 0 ? about.reference : `“${rows.label[own]}”`;
}

/** What a row has in common with those of the same variant and size in other regimes. */
const sizedId = (run, place) => `${run.rows.variant[place]}@${run.rows.size[place]}`;

/** Those of the fastest at each size, in the sweep's first regime. */
const fastestAt = (run, sweep) => new Set((run.sweeps[sweep]?.fastest || []).map((place) => sizedId(run, place)));

/**
 * Lines that a sweep has: its rows at every size, or of shapes the fastest, by N x K. Where baselines differ a value is
 * the share of the fastest at its size.
 */
function curveSeries(run, sweep, regime, beside) {
  const about = run.sweeps[sweep], found = [];
  const known = chartRows(run, sweep, regime).filter((place) => run.rows.speedup[place] !== null);
  // As in the figure a variant with a slower baseline than the others' is left out, if then all compare.
  const most = known.filter((place) => !about.own_baselines.includes(run.rows.variant[place]));
  const left = new Set(most.length && comparable(run, most) ? about.own_baselines : []);
  const column = speedColumn(run, left.size ? most : known);
  for (const own of [run, beside]) {
    if (!own) continue;
    const { rows } = own;
    const extent = (place) => Object.values(sizeOf(rows, place))[0] ?? null;
    const fastest = fastestAt(own, sweep);
    const name = about.shapes ? (place) => `${rows.dtype[place]}, N x K = ${rows.n[place]} x ${rows.k[place]}` : (place) => rows.label[place];
    const wanted = chartRows(own, sweep, regime).filter((place) => !left.has(rows.variant[place]) && rows.variant[place] !== rows.reference[place] &&
      measure(own, place, column)[0] !== null && extent(place) !== null && (!about.shapes || fastest.has(sizedId(own, place))));
    const fast = new Map();
    for (const place of wanted) fast.set(extent(place), Math.max(fast.get(extent(place)) ?? 0, measure(own, place, column)[0]));
    const value = (place) => measure(own, place, column).map((one) => (column === "speedup" ? one : one / fast.get(extent(place))));
    for (const [title, points] of grouped(wanted.length, (at) => name(wanted[at]))) {
      found.push({ name: title, run: own, points: points.map((at) => ({ x: extent(wanted[at]), place: wanted[at], value: value(wanted[at]) })) });
    }
  }
  const [first] = found.length ? Object.keys(sizeOf(found[0].run.rows, found[0].points[0].place)) : ["elements"];
  const title = first === "m" ? (about.shapes ? "M" : "size (M)") : first;
  const without = [...new Set(known.filter((place) => left.has(run.rows.variant[place])).map((place) => run.rows.label[place]))];
  return { series: found, names: [...new Set(found.map((one) => one.name))], title, column, without };
}

/** The lines that say most: the fastest at each size, from the largest on, then the fastest of the others. */
function chosenLines(series, run) {
  const own = series.filter((one) => one.run === run), order = [];
  const xs = [...new Set(own.flatMap((one) => one.points.map((point) => point.x)))].sort((one, other) => other - one);
  const at = (one, x) => one.points.find((point) => point.x === x)?.value[0] ?? -Infinity;
  for (const x of xs) order.push(own.reduce((best, one) => (at(one, x) > at(best, x) ? one : best)).name);
  const wide = (one) => one.points.length, most = (one) => Math.max(...one.points.map((point) => point.value[0]));
  order.push(...[...own].sort((one, other) => wide(other) - wide(one) || most(other) - most(one)).map((one) => one.name));
  return [...new Set(order)].slice(0, MOST_LINES);
}
