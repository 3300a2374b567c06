// The table: 2,000 layers of which only those in view are elements of the page.
const ROW_H = 24;
const HEAD_H = 28;
const SPARE = 6;
const MIN_NAME = 190;
const SCROLLBAR = 16;
const SEVERITY = { same: 0, look: 1, unpaired: 2, differs: 3 };

// Columns as they come from Python: plain lists, or words with an index a row.
class Table {
  constructor(text) {
    Object.assign(this, JSON.parse(text));
    this.top = 1000;
    for (const r of this.columns.R) {
      const x = value(r);
      if (Number.isFinite(x)) this.top = Math.max(this.top, x);
    }
  }
  at(key, i) {
    const column = this.columns[key];
    return column.words ? column.words[column.at[i]] : column[i];
  }
  words(key) {
    return this.columns[key].words;
  }
  flagged(i) {
    return this.at("verdict", i) !== "same";
  }
  // nan and inf hold only the rows that have any: [reference, candidate].
  odd(i) {
    const [a, b] = this.columns.nan[i] ?? [0, 0];
    const [c, d] = this.columns.inf[i] ?? [0, 0];
    return { nan: [a, b], inf: [c, d], sum: [a + c, b + d] };
  }
}

const BAR_LOW = 0.5;
function barLength(r, top) {
  const x = value(r);
  if (Number.isNaN(x)) return 0;
  return Math.min(1, Math.max(0, Math.log(x / BAR_LOW) / Math.log(top / BAR_LOW)));
}

function rCell(table, i) {
  const r = table.at("R", i);
  const length = Number.isNaN(value(r)) ? null : barLength(r, table.top);
  const bar = node("span", { class: "mk-bar", "aria-hidden": "true" });
  if (length !== null) {
    const fill = node("span", { class: "mk-fill" });
    fill.style.width = `${Math.max(2, 100 * length)}%`;
    const tick = node("span", { class: "mk-tick" });
    tick.style.left = `${100 * barLength(8, table.top)}%`;
    bar.append(fill, tick);
  } else bar.classList.add("mk-bar-empty");
  return [bar, node("span", { class: "mk-num" }, number(r))];
}

function oddCell(table, i, cell) {
  const { nan, inf, sum } = table.odd(i);
  const alike = nan[0] === nan[1] && inf[0] === inf[1];
  if (sum[0] + sum[1] === 0) return ["0"];
  cell.title = `NaN: ${count(nan[0])} → ${count(nan[1])}; Inf: ${count(inf[0])} → ${count(inf[1])}`;
  if (!alike) cell.classList.add("mk-loud");
  return [alike ? count(sum[0]) : `${count(sum[0])} → ${count(sum[1])}`];
}

// width: pixels; drop: what a narrow table leaves out first (0: never); down: largest first.
// Bits describe rounding; where the error is none, their number would mislead.
const countsNoBits = (arithmetic) => arithmetic === "not rounding";

const COLUMNS = [
  { key: "index", head: "#", width: 44, drop: 6, right: true, order: (t, i) => i,
    show: (t, i) => [String(i)], tip: "Place in the order in which the network computes" },
  { key: "layer", head: "layer", width: MIN_NAME, drop: 0,
    order: (t, i) => t.at("layer", i),
    show: (t, i, cell) => { cell.title = t.at("layer", i); return [nameNode(t.at("layer", i))]; },
    tip: "Name in the reference, or in the candidate where the reference has no such layer" },
  { key: "kind", head: "kind", width: 96, drop: 1, order: (t, i) => t.at("kind", i),
    tip: "Class of the module, or the operator" },
  { key: "shape", head: "shape", width: 112, drop: 3, order: (t, i) => t.at("shape", i),
    tip: "Shape of the tensor; both shapes where they differ" },
  { key: "R", head: "R", width: 116, drop: 0, right: true, down: true,
    order: (t, i) => value(t.at("R", i)), show: rCell,
    tip: "Difference divided by what rounding alone does to this layer: up to 2 is the same"
      + " arithmetic, up to 8 deserves a look, above it differs. The bar is on a log scale, its"
      + " tick stands at 8" },
  { key: "verdict", head: "verdict", width: 74, drop: 0, down: true,
    order: (t, i) => SEVERITY[t.at("verdict", i)] ?? 0,
    tip: "same, look, differs; or unpaired: the layer is on one side only" },
  { key: "origin", head: "origin", width: 80, drop: 7, order: (t, i) => t.at("origin", i),
    tip: "made here: this layer adds an error of its own; inherited: it passes on what it was given" },
  { key: "rel_l2", head: "rel L2", width: 72, drop: 4, right: true, down: true,
    tip: "Length of the difference over length of the reference" },
  { key: "max_abs", head: "max |d|", width: 72, drop: 9, right: true, down: true,
    tip: "Largest difference of a single element" },
  { key: "bits", head: "bits", width: 112, drop: 8, right: true,
    order: (t, i) => value(t.at("bits", i)),
    show: (t, i) => [node("span", { class: "mk-quiet" }, visible(t.at("arithmetic", i))),
      ...(countsNoBits(t.at("arithmetic", i)) ? [] : [" ", number(t.at("bits", i))])],
    tip: "Bits of precision that this layer's arithmetic shows, and the number format that has"
      + " about as many" },
  { key: "rho", head: "rho", width: 64, drop: 2, right: true, down: true,
    tip: "Largest difference of this one operator on the same input, in units of its largest"
      + " rounding step; above the number of terms it sums, it cannot be rounding" },
  { key: "odd", head: "NaN/Inf", width: 72, drop: 5, right: true, down: true,
    order: (t, i) => { const [a, b] = t.odd(i).sum; return Math.max(a, b) + (a !== b) / 2; },
    show: oddCell, tip: "Elements that are not finite: in the reference → in the candidate" },
];

const collator = new Intl.Collator("en", { numeric: true });
function sorted(table, ids, key, direction) {
  const column = COLUMNS.find((c) => c.key === key);
  const keyOf = column.order ?? ((t, i) => value(t.at(key, i)));
  const keys = new Map(ids.map((i) => [i, keyOf(table, i)]));
  const sign = direction === "descending" ? -1 : 1;
  const missing = (k) => k === "" || Number.isNaN(k);
  // What was not measured is last in both directions; equals keep the network's order.
  return ids.slice().sort((i, j) => {
    const [a, b] = [keys.get(i), keys.get(j)];
    if (missing(a) || missing(b)) return missing(a) - missing(b) || i - j;
    const by = typeof a === "string" ? collator.compare(a, b) : a < b ? -1 : Number(a > b);
    return sign * by || i - j;
  });
}

class Grid {
  // on.select(i, now): a row was chosen; on.sort(key); on.escape(); on.say(text).
  constructor(table, uid, on) {
    Object.assign(this, { table, uid, on, order: [], selected: -1, headAt: -1, sort: null });
    this.everything = false;
    this.rows = new Map();
    this.head = node("div", { class: "mk-row mk-head", role: "row", "aria-rowindex": "1" });
    this.space = node("div", { class: "mk-space", role: "rowgroup" });
    this.el = node("div",
      { class: "mk-grid", role: "grid", tabindex: "0", "aria-label": "Layers",
        "aria-colcount": COLUMNS.length, ...KEYS_ARE_OURS },
      node("div", { class: "mk-headgroup", role: "rowgroup" }, this.head), this.space);
    this.viewRows = 20;
    this.fit(Infinity);
  }

  listen(signal) {
    this.el.addEventListener("scroll", () => this.paint(), { passive: true, signal });
    this.el.addEventListener("keydown", (e) => this.key(e), { signal });
    this.el.addEventListener("blur", () => this.moveHead(-1), { signal });
    this.el.addEventListener("click", (e) => {
      const head = e.target.closest("[data-key]");
      const row = e.target.closest("[data-row]");
      if (head) this.on.sort(head.dataset.key);
      else if (row) this.on.select(Number(row.dataset.row), true);
    }, { signal });
  }

  // Leave out columns until the rest fits; the detail still has every number.
  fit(width) {
    const odd = Object.keys(this.table.columns.nan).length
      + Object.keys(this.table.columns.inf).length;
    const rank = (c) => (c.key === "odd" && odd ? 10 : c.drop);
    const droppable = COLUMNS.filter((c) => c.drop).sort((a, b) => rank(a) - rank(b));
    let total = COLUMNS.reduce((sum, c) => sum + c.width, SCROLLBAR);
    const dropped = new Set();
    while (!this.everything && total > width && droppable.length) {
      const column = droppable.shift();
      dropped.add(column);
      total -= column.width;
    }
    this.dropped = dropped.size;
    this.shown = COLUMNS.filter((c) => !dropped.has(c));
    const tracks = this.shown.map((c) =>
      (c.key === "layer" ? `minmax(${Math.min(MIN_NAME, Math.max(90, width / 3))}px, 1fr)`
        : `${c.width}px`));
    this.el.style.setProperty("--mk-columns", tracks.join(" "));
    this.el.style.setProperty("--mk-width", this.everything ? `${total - SCROLLBAR}px` : "auto");
    this.headAt = -1;
    this.drawHead();
    this.rows.clear();
    this.paint();
  }

  drawHead() {
    this.head.replaceChildren(...this.shown.map((c, i) => {
      const direction = this.sort?.key === c.key ? this.sort.direction : "none";
      const arrow = { ascending: "▲", descending: "▼", none: "" }[direction];
      return node("span",
        { role: "columnheader", id: `${this.uid}-head-${i}`, "data-key": c.key, title: c.tip,
          "aria-colindex": COLUMNS.indexOf(c) + 1, "aria-sort": direction,
          class: `mk-cell${c.right ? " mk-right" : ""}${c.key === "layer" ? " mk-first" : ""}` },
        node("span", { class: "mk-label" }, c.head),
        // Empty it would still take the gap and push the heading out of line with its numbers.
        arrow ? node("span", { class: "mk-arrow", "aria-hidden": "true" }, arrow) : null);
    }));
  }

  setOrder(order, sort) {
    this.order = order;
    this.sort = sort;
    this.places = new Map(order.map((i, at) => [i, at]));
    this.el.setAttribute("aria-rowcount", order.length + 1);
    this.space.style.height = `${Math.max(1, order.length) * ROW_H}px`;
    const headAt = this.headAt;
    this.drawHead();
    this.rows.clear();
    this.moveHead(headAt);
    this.paint();
  }

  place(i) {
    return this.places.get(i) ?? -1;
  }

  setViewRows(rows) {
    this.viewRows = Math.max(3, Math.min(rows, this.table.count));
    this.el.style.height = `${HEAD_H + this.viewRows * ROW_H + 2}px`;
  }

  drawRow(i, at) {
    const { table } = this;
    const row = node("div",
      { class: `mk-row mk-${table.at("verdict", i)}`, role: "row", id: `${this.uid}-${i}`,
        "data-row": i, "aria-rowindex": at + 2 });
    row.style.top = `${at * ROW_H}px`;
    for (const c of this.shown) {
      const cell = node("span",
        { role: "gridcell", "data-cell": c.key, "aria-colindex": COLUMNS.indexOf(c) + 1,
          class: `mk-cell${c.right ? " mk-right" : ""}${c.key === "layer" ? " mk-first" : ""}` });
      const raw = c.show ? null : table.at(c.key, i);
      if (c.show) cell.append(...c.show(table, i, cell));
      else if (c.right) cell.append(number(raw));
      else {
        cell.append(node("bdi", {}, visible(raw)));
        if (raw) cell.title = raw;
      }
      row.append(cell);
    }
    return row;
  }

  paint() {
    if (!this.order.length) {
      const text = this.table.count ? "No layer matches the filter. Escape clears it."
        : "There are no layers in this comparison.";
      this.space.replaceChildren(node("div", { class: "mk-row mk-none", role: "row" },
        node("span", { role: "gridcell", class: "mk-cell" }, text)));
      this.el.removeAttribute("aria-activedescendant");
      this.window = "";
      return;
    }
    // Before the page has laid the table out, its height is not known: assume the full view.
    const height = this.el.clientHeight ? this.el.clientHeight - HEAD_H : this.viewRows * ROW_H;
    const top = this.el.scrollTop;
    const from = Math.max(0, Math.floor(top / ROW_H) - SPARE);
    const to = Math.min(this.order.length, Math.ceil((top + height) / ROW_H) + SPARE);
    const ids = this.order.slice(from, to);
    const key = ids.join();
    if (key !== this.window || !this.rows.size) {
      const kept = new Map();
      ids.forEach((i, k) => kept.set(i, this.rows.get(i) ?? this.drawRow(i, from + k)));
      this.rows = kept;
      this.space.replaceChildren(...kept.values());
      this.window = key;
    }
    for (const [i, row] of this.rows) row.setAttribute("aria-selected", i === this.selected);
    if (this.headAt >= 0) return;
    if (this.rows.has(this.selected)) {
      this.el.setAttribute("aria-activedescendant", `${this.uid}-${this.selected}`);
    } else this.el.removeAttribute("aria-activedescendant");
  }

  // Mark a row and bring it into view; after a jump with some rows above it.
  select(i, jump = false) {
    this.selected = i;
    const at = this.place(i);
    if (at >= 0) {
      const y = at * ROW_H;
      const height = (this.el.clientHeight || HEAD_H + this.viewRows * ROW_H) - HEAD_H;
      const above = y < this.el.scrollTop;
      const below = y + ROW_H > this.el.scrollTop + height;
      if (jump && (above || below)) this.el.scrollTop = y - Math.floor(height / 3 / ROW_H) * ROW_H;
      else if (above) this.el.scrollTop = y;
      else if (below) this.el.scrollTop = y + ROW_H - height;
    }
    this.paint();
  }

  // The keyboard reaches the headers through the first row, so that the table is one tab stop.
  moveHead(at) {
    this.head.children[this.headAt]?.classList.remove("mk-active");
    this.headAt = at < 0 ? -1 : Math.min(at, this.shown.length - 1);
    if (this.headAt < 0) {
      this.paint();
      return;
    }
    const cell = this.head.children[this.headAt];
    cell.classList.add("mk-active");
    cell.scrollIntoView({ block: "nearest", inline: "nearest" });
    this.el.setAttribute("aria-activedescendant", cell.id);
    this.on.say(`${this.shown[this.headAt].head}: ${this.shown[this.headAt].tip}. Enter sorts.`);
  }

  key(e) {
    if (e.ctrlKey || e.metaKey || e.altKey) return;
    const used = this.headAt >= 0 ? this.headKey(e.key) : this.rowKey(e.key);
    if (!used) return;
    e.preventDefault();
    e.stopPropagation();
  }

  headKey(key) {
    const last = this.shown.length - 1;
    const to = { ArrowLeft: Math.max(0, this.headAt - 1), Home: 0, End: last,
      ArrowRight: Math.min(last, this.headAt + 1) }[key];
    if (to !== undefined) this.moveHead(to);
    else if (key === "ArrowDown") {
      this.moveHead(-1);
      if (this.place(this.selected) < 0) this.go(0);
    } else if (key === "Enter" || key === " ") this.on.sort(this.shown[this.headAt].key);
    else if (key === "Escape") this.on.escape();
    else return key === "ArrowUp";
    return true;
  }

  rowKey(key) {
    const at = this.place(this.selected);
    const to = placeAfter(key, this, Math.floor((this.el.clientHeight - HEAD_H) / ROW_H));
    if (key === "ArrowUp" && at <= 0) this.moveHead(Math.max(0, this.headAt));
    else if (to !== undefined) this.go(to);
    else if ((key === "Enter" || key === " ") && at >= 0) this.on.select(this.selected, true);
    else if (key === "Escape") this.on.escape();
    else if (key === "ArrowLeft") this.el.scrollLeft -= 60;
    else if (key === "ArrowRight") this.el.scrollLeft += 60;
    else return false;
    return true;
  }

  go(at) {
    if (this.order.length) this.on.select(this.order[at], false);
  }
}
