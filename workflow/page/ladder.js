"use strict";
// The ladder: a bar for what each rung gains over the rung that it changes, on a logarithmic axis.
// Needs data.js and charts.js.

/** 12 times, +14 % (another GPU: +12 % to +15 %). */
function stepWords(step) {
  const range = elsewhere(step.predicted.slice(1));
  return times(step.gain[0]) + (range ? ` (another GPU: ${range})` : "");
}

/** The cell of a rung at the size that its ladder is about; null where it has none. */
const rungPlace = (run, sweep, variant) => run.places.get(`${sweep}/${variant}@${run.sweeps[sweep].size}:${run.sweeps[sweep].regime}`) ?? null;

function drawLadder(element, run, sweep) {
  const about = run.sweeps[sweep], width = element.clientWidth || 600, narrow = width < 520, { rows } = run;
  const steps = about.steps.map((step) => ({ ...step, place: rungPlace(run, sweep, step.variant) })).filter((step) => step.place !== null);
  if (!steps.length) {
    element.innerHTML = "<p>No rung has a result.</p>";
    return;
  }
  const rungName = (step) => rows.label[step.place] + (step.on ? ` (on ${step.on})` : "");
  const ends = steps.flatMap((step) => [...step.gain, ...step.predicted.slice(1)]).filter((value) => value !== null);
  const [low, high] = [Math.min(1, ...ends), Math.max(1, ...ends)];
  const left = narrow ? 4 : Math.min(280, Math.max(...steps.map((step) => 6.6 * rungName(step).length + 26)));
  const over = narrow ? 62 : 76, right = narrow ? 112 : 150, leads = about.steps.filter((step) => step.main).length > 2;
  const words = narrow ? 46 : 58, row = narrow ? 34 : 21, top = 18, bottom = top + row * steps.length;
  // Words stand beside the bars on both sides.
  const x = logarithmic(low, high, left + words, width - right - words);
  const marks = (high / low > 4 ? [0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50] : ticks(low, high, 7)).filter((value) => value >= low && value <= high);
  const parts = marks.map((value) => `<line class="grid" x1="${x(value)}" x2="${x(value)}" y1="${top}" y2="${bottom}"/><text class="muted" text-anchor="middle" x="${x(value)}" y="${bottom + 14}">${value}</text>`);
  // Of a rung its number, for which there is room.
  const reference = rows.against[steps[0].place] === "library" ? libraryName(run, steps[0].place)
    : baselineName(run, sweep).replace(/^“(\d+\w*) .*/, "rung $1");
  const axis = (from, to) => parts.push(`<line class="axis one" x1="${x(1)}" x2="${x(1)}" y1="${from}" y2="${to}"/>`);
  // A rung that has another baseline, such as a causal one, has no number beside the others.
  const overReference = (place) => (rows.against[place] === "library" || rows.reference[place] === rows.reference[steps[0].place] ? rows.speedup[place] : null);
  if (!narrow) axis(top, bottom); // else it would cross the names, and stands beside each bar
  parts.push(`<text class="muted" text-anchor="end" x="${width - over}" y="${top - 6}">TFLOP/s</text><text class="muted" text-anchor="end" x="${width}" y="${top - 6}">x ${escaped(reference)}</text>`);
  steps.forEach((step, index) => {
    const { place } = step, y = top + index * row, middle = narrow ? y + 24 : y + row / 2, tall = step.main ? 13 : 9;
    const name = rungName(step), number = (at, value) => `<text class="muted" text-anchor="end" x="${at}" y="${middle + 4}">${figure(value, 3)}</text>`;
    if (narrow) axis(middle - 8, middle + 8);
    const said = [`${name}: ${about.rungs?.[step.variant] ?? ""}`, step.gain[0] === null ? "the first rung" : `${stepWords(step)} on “${rows.label[rungPlace(run, sweep, step.below)] ?? step.below}”`, step.why].filter(Boolean).join("\n");
    const kind = step.main ? "main" : "branch";
    const label = narrow ? `<text class="${kind}" x="${left + (step.main ? 0 : 12)}" y="${y + 13}">${fitted(name, width - 20)}</text>`
      : `<text class="${kind}" text-anchor="end" x="${left - (step.main ? 8 : 22)}" y="${middle + 4}">${fitted(name, left - 12)}</text>`;
    let bar = "";
    if (step.gain[0] !== null) {
      const [value, from, to] = step.gain, [, farLow, farHigh] = step.predicted, at = x(value), one = x(1);
      const colour = step.main || !leads ? step.verdict : `${step.verdict} aside`;
      const reach = [from, to, farLow, farHigh, value].filter((end) => end !== null), up = value >= 1;
      const edge = up ? Math.max(one, ...reach.map(x)) + 6 : Math.min(one, ...reach.map(x)) - 6;
      bar = `<rect class="${colour}" x="${Math.min(one, at)}" y="${middle - tall / 2}" width="${Math.max(1, Math.abs(at - one))}" height="${tall}"/>`
        + (farLow === null ? "" : `<path class="far" d="M${x(farLow)} ${middle}H${x(farHigh)}"/>`) + `<path class="near" d="M${x(from)} ${middle}H${x(to)}"/>`
        + `<text class="${kind}" text-anchor="${up ? "start" : "end"}" x="${edge}" y="${middle + 4}">${times(value)}</text>`;
    }
    parts.push(`<g tabindex="0" data-tip="${escaped(said)}" ${attributes(run, place, said.replaceAll("\n", ", "))}>${label}${bar}${number(width - over, rows.tflops?.[place])}${number(width, overReference(place))}`
      + `<rect class="hit" x="0" y="${y}" width="${width}" height="${row}"/></g>`);
  });
  parts.push(`<text class="muted" text-anchor="middle" x="${(left + width - right) / 2}" y="${bottom + 30}">${about.one ? `speed with the change, over that of “${escaped(about.one)}”` : "gain over the rung that it changes"}</text>`);
  element.innerHTML = `<svg height="${bottom + 36}" viewBox="0 0 ${width} ${bottom + 36}" role="group" aria-label="Gain of each rung">${parts.join("")}</svg>`;
}
