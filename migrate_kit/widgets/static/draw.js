// Pictures on canvases. Colours are read when drawing, so that a change of theme only redraws.

function styleOf(el) {
  const css = getComputedStyle(el);
  const read = (name) => css.getPropertyValue(name).trim() || "gray";
  return {
    grey: read("--mk-same-bar"),
    quiet: read("--mk-quiet"),
    accent: read("--mk-blue"),
    bad: read("--mk-differs"),
    odd: read("--mk-odd"),
    dark: read("--mk-dark") === "1",
  };
}

function mix(stops, t) {
  const x = Math.min(1, Math.max(0, t)) * (stops.length - 1);
  const i = Math.min(stops.length - 2, Math.floor(x));
  return stops[i].map((c, k) => Math.round(c + (stops[i + 1][k] - c) * (x - i)));
}

// Signed: blue below, white at zero, red above, in both themes. Sizes: one hue, and zero is the
// colour nearest the paper, so that what differs stands out on either.
const SIGNED = [[5, 48, 97], [67, 147, 195], [247, 247, 247], [214, 96, 77], [103, 0, 31]];
const SIZES_LIGHT = [[248, 248, 252], [188, 189, 220], [117, 107, 177], [63, 0, 125]];
const SIZES_DARK = [[34, 32, 44], [84, 62, 140], [150, 128, 214], [236, 230, 255]];

function heatStops(signed, dark) {
  if (signed) return SIGNED;
  return dark ? SIZES_DARK : SIZES_LIGHT;
}

function gradient(stops) {
  return `linear-gradient(to right, ${stops.map((c) => `rgb(${c})`).join(", ")})`;
}

// Size the bitmap to the screen's own pixels; return a context that counts in CSS pixels.
function prepare(canvas) {
  const scale = window.devicePixelRatio || 1;
  const width = canvas.clientWidth;
  const height = canvas.clientHeight;
  canvas.width = Math.max(1, Math.round(width * scale));
  canvas.height = Math.max(1, Math.round(height * scale));
  const ctx = canvas.getContext("2d");
  ctx.setTransform(scale, 0, 0, scale, 0, 0);
  ctx.clearRect(0, 0, width, height);
  return { ctx, width, height };
}

function largest(values) {
  let top = 0;
  for (const v of values) top = Math.max(top, Math.abs(v));
  return top;
}

function drawHeat(canvas, heat, marks, style) {
  const { ctx, width, height } = prepare(canvas);
  const { values, rows, columns, signed, top } = heat;
  if (!width || !rows || !columns) return;
  const stops = heatStops(signed, style.dark);
  const image = new ImageData(columns, rows);
  for (let i = 0; i < values.length; i++) {
    const t = top ? values[i] / top : 0;
    const [r, g, b] = mix(stops, signed ? t / 2 + 0.5 : t);
    image.data.set([r, g, b, 255], 4 * i);
  }
  const small = document.createElement("canvas");
  small.width = columns;
  small.height = rows;
  small.getContext("2d").putImageData(image, 0, 0);
  ctx.imageSmoothingEnabled = false;
  ctx.drawImage(small, 0, 0, width, height);
  // Not finite: a colour that neither scale has, and a cross where a cell has room for one.
  const w = width / columns;
  const h = height / rows;
  for (const [cells, full] of [[marks.alike, false], [marks.unlike, true]]) {
    ctx.fillStyle = ctx.strokeStyle = style.odd;
    for (const cell of cells) {
      const x = (cell % columns) * w;
      const y = Math.floor(cell / columns) * h;
      if (full) ctx.fillRect(x, y, Math.max(w, 1), Math.max(h, 1));
      else ctx.fillRect(x + w / 4, y + h / 4, Math.max(w / 2, 1), Math.max(h / 2, 1));
      if (full && w >= 8 && h >= 8) {
        ctx.strokeStyle = "#000";
        ctx.beginPath();
        ctx.moveTo(x + 1, y + 1);
        ctx.lineTo(x + w - 1, y + h - 1);
        ctx.moveTo(x + w - 1, y + 1);
        ctx.lineTo(x + 1, y + h - 1);
        ctx.stroke();
      }
    }
  }
}

// The outlines often coincide: the broad one shows through the dashes of the other. Counts are on a log scale, or a single
// outlier would be invisible.
function drawHistogram(canvas, histogram, style) {
  const { ctx, width, height } = prepare(canvas);
  if (!width || !histogram) return;
  const sides = [
    [histogram.reference, style.grey, 3.5, []],
    [histogram.candidate, style.accent, 1.5, [4, 3]],
  ].filter(([counts]) => counts);
  const peak = Math.max(1, ...sides.flatMap(([counts]) => counts));
  const base = height - 1;
  for (const [counts, colour, thick, dash] of sides) {
    const step = width / counts.length;
    const y = (n) => base - ((base - 3) * Math.log1p(n)) / Math.log1p(peak);
    ctx.beginPath();
    ctx.moveTo(0, base);
    counts.forEach((n, i) => {
      ctx.lineTo(i * step, y(n));
      ctx.lineTo((i + 1) * step, y(n));
    });
    ctx.lineTo(width, base);
    ctx.setLineDash(dash);
    ctx.strokeStyle = colour;
    ctx.lineWidth = thick;
    ctx.stroke();
  }
  ctx.setLineDash([]);
}

function drawScatter(canvas, scatter, style) {
  const { ctx, width, height } = prepare(canvas);
  if (!width) return;
  const { x, y, sampled, low, high } = scatter;
  const pad = 5;
  const span = high - low || 1;
  const px = (v) => pad + ((width - 2 * pad) * (v - low)) / span;
  const py = (v) => height - pad - ((height - 2 * pad) * (v - low)) / span;
  ctx.strokeStyle = style.quiet;
  ctx.setLineDash([3, 3]);
  ctx.beginPath();
  ctx.moveTo(px(low), py(low));
  ctx.lineTo(px(high), py(high));
  ctx.stroke();
  ctx.setLineDash([]);
  ctx.fillStyle = style.accent;
  ctx.globalAlpha = sampled > 500 ? 0.45 : 0.8;
  for (let i = 0; i < sampled; i++) ctx.fillRect(px(x[i]) - 1, py(y[i]) - 1, 2, 2);
  // The worst elements are crosses, not only red.
  ctx.globalAlpha = 0.9;
  ctx.strokeStyle = style.bad;
  ctx.beginPath();
  for (let i = sampled; i < x.length; i++) {
    const a = px(x[i]);
    const b = py(y[i]);
    ctx.moveTo(a - 2.5, b - 2.5);
    ctx.lineTo(a + 2.5, b + 2.5);
    ctx.moveTo(a + 2.5, b - 2.5);
    ctx.lineTo(a - 2.5, b + 2.5);
  }
  ctx.stroke();
  ctx.globalAlpha = 1;
}
