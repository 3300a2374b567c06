// The right-hand side: one layer's pictures, worst elements and the sentence that sums them up.

// Layout of an answer: length of the header (uint32), JSON header padded to four bytes, floats.
function decode(view) {
  if (!view || view.byteLength < 4) return null;
  // A DataView may begin at an offset that a Float32Array refuses, so its bytes are copied.
  const bytes = new Uint8Array(view.buffer, view.byteOffset, view.byteLength).slice();
  const size = new DataView(bytes.buffer).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(bytes.subarray(4, 4 + size)));
  const floats = new Float32Array(bytes.buffer, 4 + size);
  const arrays = {};
  for (const [name, [at, ...shape]] of Object.entries(header.arrays)) {
    const length = shape.reduce((a, b) => a * b, 1);
    arrays[name] = { shape, values: floats.subarray(at, at + length) };
  }
  return { header, arrays };
}

// "4 × 49" and the like: how many elements lie in one cell of the heatmap.
function cellSize({ row, sample, column }) {
  return [row, sample, column].filter((a) => a).reduce((n, a) => n * a.block, 1);
}

function axisText({ name, axes, total, block }) {
  const where = axes.length ? ` (${axes.length > 1 ? "axes" : "axis"} ${axes.join(", ")})` : "";
  const each = block > 1 ? `, ${count(block)} to a cell` : "";
  return `${plural(total, name)}${where}${each}`;
}

function factsText(f) {
  const number_ = (label, v) => (Number.isNaN(value(v)) ? null : `${label} ${number(v)}`);
  const both = (a, b) => (!b || a === b ? a : `${a || "none"} → ${b}`);
  const shape = (s) => (s && s.length ? s.join("×") : "scalar");
  const moved = f.candidate_shape?.length && shape(f.shape) !== shape(f.candidate_shape);
  return [
    [f.kind, f.channel === "forward" ? null : f.channel,
      moved ? `${shape(f.shape)} → ${shape(f.candidate_shape)}` : shape(f.shape),
      both(f.dtype, f.candidate_dtype)],
    [f.verdict === "unpaired" ? "unpaired: on one side only" : f.verdict, f.origin,
      number_("R", f.R), number_("rel L2", f.rel_l2), number_("noise", f.noise),
      number_("local", f.local), number_("rho", f.rho),
      Number.isNaN(value(f.bits)) ? null : `bits ${number(f.bits)} ${f.arithmetic}`.trim(),
      number_("mean |d|", f.mean_abs), number_("1 − cosine", f.one_minus_cosine)],
  ].map((line) => line.filter((part) => part).map(visible)).filter((line) => line.length);
}

class DetailPane {
  constructor() {
    this.shown = null;
    const p = (name) => node("p", { class: name });
    const canvas = (name) => node("canvas", { class: name, role: "img", "aria-label": "" });
    this.title = p("mk-title");
    this.facts = p("mk-facts");
    this.note = p("mk-note");
    this.message = p("mk-message");
    this.heat = canvas("mk-heat");
    this.scale = node("span", { class: "mk-scale" });
    this.scaleLow = node("span");
    this.scaleHigh = node("span");
    this.odd = node("span", { class: "mk-odd" });
    this.heatCaption = node("figcaption");
    this.readout = p("mk-readout");
    this.histogram = canvas("mk-histogram");
    this.histogramEnds = p("mk-ends");
    this.scatter = canvas("mk-scatter");
    this.scatterEnds = p("mk-ends");
    this.heatBox = node("figure", { class: "mk-figure mk-figure-wide" }, this.heatCaption, this.heat,
      node("p", { class: "mk-legend" }, this.scaleLow, this.scale, this.scaleHigh, this.odd),
      this.readout);
    this.histogramCaption = node("figcaption");
    this.histogramBox = node("figure", { class: "mk-figure" }, this.histogramCaption,
      this.histogram, this.histogramEnds);
    this.scatterCaption = node("figcaption");
    this.scatterBox = node("figure", { class: "mk-figure" }, this.scatterCaption, this.scatter,
      this.scatterEnds);
    this.worst = node("tbody");
    this.worstCaption = node("caption", {}, "Worst elements");
    const head = ["element", "reference", "candidate", "difference"];
    this.worstBox = node("div",
      { class: "mk-worst", tabindex: "0", role: "region", "aria-label": "Worst elements",
        ...KEYS_ARE_OURS },
      node("table", {}, this.worstCaption,
        node("thead", {}, node("tr", {}, ...head.map((h) => node("th", { scope: "col" }, h)))),
        this.worst));
    this.figures = node("div", { class: "mk-figures" }, this.heatBox, this.histogramBox,
      this.scatterBox, this.worstBox);
    this.el = node("div", { class: "mk-detail", role: "region", "aria-label": "Layer detail" },
      this.title, this.facts, this.note, this.message, this.figures);
    this.hint();
  }

  listen(signal) {
    this.heat.addEventListener("pointermove", (e) => this.point(e), { signal });
    this.heat.addEventListener("pointerleave", () => this.readout.replaceChildren(), { signal });
  }

  hint() {
    this.fill({ message: "Choose a layer: click a row, or use the arrow keys." });
  }

  // Show the parts there is something for; what is missing leaves no hole.
  fill(parts) {
    for (const key of ["title", "note", "message"]) {
      this[key].textContent = parts[key] ?? "";
      this[key].hidden = !parts[key];
    }
    // Each fact is a box of its own, so that a line never breaks between a name and its number.
    this.facts.replaceChildren(...(parts.facts ?? []).map((line) => node("span", {},
      ...line.flatMap((fact, i) => [i ? " · " : "", node("span", { class: "mk-fact" }, fact)]))));
    this.facts.hidden = !parts.facts?.length;
    this.heatBox.hidden = !parts.heat;
    this.histogramBox.hidden = !parts.histogram;
    this.scatterBox.hidden = !parts.scatter;
    this.worstBox.hidden = !parts.worst;
    this.figures.classList.toggle("mk-alone", !parts.heat);
  }

  // `known` is what the table calls the layer; the answer has the whole name.
  show({ header, arrays }, known) {
    const name = header.facts?.layer || header.facts?.candidate || known;
    const other = header.facts?.candidate;
    this.shown = { header, arrays, heat: this.heatOf(header, arrays), scatter: null };
    this.shown.scatter = this.scatterOf(header, arrays);
    this.fill({
      title: visible(name) + (other && other !== name ? `  ↔  ${visible(other)}` : ""),
      facts: header.facts ? factsText(header.facts) : [],
      note: header.facts?.note ? visible(header.facts.note) : "",
      message: [header.message, this.sums(header)].filter((s) => s).map(visible).join(" "),
      heat: this.shown.heat,
      histogram: header.histogram,
      scatter: this.shown.scatter,
      worst: header.worst?.length,
    });
    this.label(visible(name));
    this.worst.replaceChildren(...(header.worst ?? []).map((w) => this.worstRow(w)));
    this.worstBox.scrollTop = 0;
    this.redraw();
  }

  // One sentence of numbers beside every picture.
  sums({ elements, changed, max, nonfinite, magnitude }) {
    const parts = [];
    if (changed === 0 && !nonfinite.unlike) parts.push("Both sides are equal in every element.");
    else if (elements) {
      const what = magnitude ? "|difference| of complex values" : "difference";
      parts.push(`${count(changed)} of ${plural(elements, "element")} differ;`
        + ` largest ${what} ${number(max)}.`);
    }
    const side = (name) => {
      const [nan, inf] = nonfinite?.[name] ?? [0, 0];
      return nan || inf ? `${name}: ${count(nan)} NaN, ${count(inf)} Inf` : null;
    };
    const odd = [side("reference"), side("candidate")].filter((s) => s);
    if (odd.length) {
      const unlike = nonfinite.unlike === undefined ? ""
        : nonfinite.unlike ? `; ${plural(nonfinite.unlike, "place")} not alike` : "; all alike";
      parts.push(`Not finite, and left out of every scale: ${odd.join("; ")}${unlike}.`);
    }
    return parts.join(" ");
  }

  heatOf(header, arrays) {
    if (!header.heat || !arrays.heat) return null;
    const [rows, columns] = arrays.heat.shape;
    const { values } = arrays.heat;
    const marks = { alike: arrays.alike?.values ?? [], unlike: arrays.unlike?.values ?? [] };
    return { values, rows, columns, marks, top: largest(values), ...header.heat };
  }

  scatterOf(header, arrays) {
    if (!arrays.x?.values.length) return null;
    let low = Infinity;
    let high = -Infinity;
    for (const { values } of [arrays.x, arrays.y]) {
      for (const v of values) {
        low = Math.min(low, v);
        high = Math.max(high, v);
      }
    }
    return { x: arrays.x.values, y: arrays.y.values, sampled: header.sampled, low, high };
  }

  // Captions and the sentences that stand in for the pictures.
  label(name) {
    const { heat, scatter, header } = this.shown;
    if (heat) {
      const size = cellSize(heat);
      const what = heat.signed ? "candidate − reference" : "|candidate − reference|";
      const cell = size > 1 ? `largest of ${count(size)} elements a cell` : "one element a cell";
      const down = heat.row.total > 1 || heat.row.name ? `Down: ${axisText(heat.row)}. ` : "";
      const across = [heat.sample, heat.column].filter((a) => a).map(axisText).join("; then ");
      this.heatCaption.replaceChildren(
        node("b", {}, what), `, ${cell}. ${down}Across: ${across}.`);
      this.scaleLow.textContent = heat.signed ? number(-heat.top) : "0";
      this.scaleHigh.textContent = number(heat.top);
      this.odd.hidden = !heat.marks.alike.length && !heat.marks.unlike.length;
      this.odd.textContent = "NaN or Inf";
      this.heat.style.height = `${Math.min(150, Math.max(24, heat.rows * 10))}px`;
      this.heat.setAttribute("aria-label", `Heatmap of ${name}: ${this.heatCaption.textContent}`
        + ` From ${this.scaleLow.textContent} to ${this.scaleHigh.textContent}.`);
    }
    if (header.histogram) {
      const { low, high, reference, candidate } = header.histogram;
      const peak = Math.max(...(reference ?? []), ...(candidate ?? []));
      this.histogramCaption.replaceChildren(node("b", {}, "Values"),
        reference ? node("span", { class: "mk-key mk-key-reference" }, "reference") : "",
        candidate ? node("span", { class: "mk-key mk-key-candidate" }, "candidate") : "");
      this.histogramEnds.replaceChildren(node("span", {}, number(low)),
        node("span", {}, `log count, top ${count(peak)}`), node("span", {}, number(high)));
      this.histogram.setAttribute("aria-label", `Histogram of ${name}, from ${number(low)} to`
        + ` ${number(high)}, log counts up to ${count(peak)}`);
    }
    if (scatter) {
      const extra = scatter.x.length - scatter.sampled;
      const all = scatter.sampled >= header.elements;
      const sampled = `${count(scatter.sampled)} ${all ? "elements" : "at random"}`;
      this.scatterCaption.replaceChildren(node("b", {}, "Candidate over reference"),
        node("span", {}, sampled),
        extra ? node("span", { class: "mk-key mk-key-worst" }, `${count(extra)} worst`) : "");
      this.scatterEnds.replaceChildren(node("span", {}, number(scatter.low)),
        node("span", {}, "reference →"), node("span", {}, number(scatter.high)));
      this.scatter.setAttribute("aria-label", `Scatter of ${name}: candidate over reference,`
        + ` ${sampled} and ${extra} worst; equal values lie on the diagonal`);
    }
  }

  worstRow({ index, reference, candidate, d }) {
    const odd = d === null || typeof d === "string";
    return node("tr", odd ? { class: "mk-not-finite" } : {},
      node("td", {}, `[${index.join(", ")}]`), node("td", {}, minus(reference)),
      node("td", {}, minus(candidate)), node("td", {}, odd ? "not finite" : number(d)));
  }

  // Under the pointer: which cell, and its value.
  point(event) {
    const heat = this.shown?.heat;
    if (!heat) return;
    const along = (part, cells) => Math.min(cells - 1, Math.max(0, Math.floor(part * cells)));
    const column = along(event.offsetX / this.heat.clientWidth, heat.columns);
    const row = along(event.offsetY / this.heat.clientHeight, heat.rows);
    const span = (axis, i) => {
      if (!axis || !axis.name) return null;
      const from = i * axis.block;
      const to = Math.min(axis.total, from + axis.block) - 1;
      return `${axis.name} ${from === to ? from : `${from}–${to}`}`;
    };
    const across = heat.column.cells;
    const cell = row * heat.columns + column;
    const odd = heat.marks.unlike.includes(cell) || heat.marks.alike.includes(cell);
    this.readout.textContent = [span(heat.row, row), span(heat.sample, Math.floor(column / across)),
      span(heat.column, column % across)].filter((s) => s).join(", ")
      + `: ${number(heat.values[cell])}${odd ? ", and NaN or Inf" : ""}`;
  }

  redraw() {
    if (!this.shown) return;
    const style = styleOf(this.el);
    const { heat, scatter, header } = this.shown;
    if (heat) {
      this.scale.style.background = gradient(heatStops(heat.signed, style.dark));
      drawHeat(this.heat, heat, heat.marks, style);
    }
    if (header.histogram) drawHistogram(this.histogram, header.histogram, style);
    if (scatter) drawScatter(this.scatter, scatter, style);
  }
}
