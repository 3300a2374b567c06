// The list: 10,000 pairings of which only those in view are elements of the page, and one that is
// open. text.js, pairing_text.js and pairing_rows.js stand before this file when Python joins them.
const ROW_H = 26;
const HEAD_H = 28;
const SPARE = 6;
const VIEW_ROWS = 18;
const PADDING = 14;

class PairList {
  // on.select(i): a row was chosen; on.escape(); on.detail(i): what an open row holds.
  constructor(table, uid, on) {
    Object.assign(this, { table, uid, on, order: [], selected: -1, open: -1, openHeight: 0 });
    this.places = new Map();
    this.rows = new Map();
    this.detail = null;
    this.head = node("div", { class: "mk-pair-row mk-pair-head", role: "row", "aria-rowindex": "1" });
    this.space = node("div", { class: "mk-pair-space", role: "rowgroup" });
    this.el = node("div",
      { class: "mk-pair-list", role: "treegrid", tabindex: "0", "aria-label": "Pairings",
        "aria-readonly": "true", ...KEYS_ARE_OURS },
      node("div", { class: "mk-pair-headgroup", role: "rowgroup" }, this.head), this.space);
    this.el.style.maxHeight = `${HEAD_H + VIEW_ROWS * ROW_H + 2}px`;
    this.sizes = new ResizeObserver(() => this.measure());
    this.fit(Infinity);
  }

  listen(signal) {
    this.el.addEventListener("scroll", () => this.paint(), { passive: true, signal });
    this.el.addEventListener("keydown", (e) => this.key(e), { signal });
    this.el.addEventListener("click", (e) => {
      const row = e.target.closest("[data-row]");
      // A name that was marked with the pointer is to be copied.
      if (!row || !getSelection().isCollapsed) return;
      const i = Number(row.dataset.row);
      this.on.select(i);
      this.toggle(i);
    }, { signal });
    signal.addEventListener("abort", () => this.sizes.disconnect());
  }

  fit(width) {
    this.setColumns(width);
    const room = this.letters();
    if (room === this.room) return;
    this.room = room;
    this.redraw();
  }

  // How many letters of a name a column holds; all, before the page has laid the list out.
  letters() {
    const column = this.head.firstChild.clientWidth - PADDING;
    if (column <= 0) return Infinity;
    const probe = node("span", { class: "mk-pair-name mk-pair-probe" }, "0".repeat(50));
    this.head.firstChild.append(probe);
    const each = probe.getBoundingClientRect().width / 50;
    probe.remove();
    return each ? Math.floor(column / each) : Infinity;
  }

  // A narrow list has one column for what differs, a very narrow one none: an open row has it all.
  setColumns(width) {
    const extra = width >= 860 ? ["shape", "dtype"] : width >= 480 ? ["tensor"] : [];
    const shown = ["key", "link", "source", ...extra];
    if (String(shown) === String(this.shown)) return;
    this.shown = shown;
    this.room = null;
    const tracks = shown.map((c) => (c === "link" && width < 480 ? "104px" : COLUMNS[c].track));
    this.el.style.setProperty("--mk-pair-columns", tracks.join(" "));
    this.el.setAttribute("aria-colcount", shown.length);
    this.head.replaceChildren(...shown.map((c, i) => {
      const [word, amount] = COLUMNS[c].head(this.table);
      return node("span", { role: "columnheader", "aria-colindex": i + 1, class: "mk-pair-cell" },
        word, amount ? node("span", { class: "mk-pair-amount" }, ` ${amount}`) : null);
    }));
    this.detail?.firstChild.setAttribute("aria-colspan", shown.length);
  }

  redraw() {
    this.rows.clear();
    this.paint();
  }

  setOrder(order) {
    this.order = order;
    this.places = new Map(order.map((i, at) => [i, at]));
    if (this.open >= 0 && !this.places.has(this.open)) this.close();
    this.redraw();
  }

  place(i) {
    return this.places.get(i) ?? -1;
  }

  // --- where things lie: rows of one height, and below the open one what it holds ---
  openAt() {
    return this.open < 0 ? Infinity : this.place(this.open);
  }
  y(at) {
    return at * ROW_H + (at > this.openAt() ? this.openHeight : 0);
  }
  atY(y) {
    const end = (this.openAt() + 1) * ROW_H;
    if (y < end) return Math.floor(y / ROW_H);
    return Math.max(this.openAt(), Math.floor((y - this.openHeight) / ROW_H));
  }

  drawRow(i) {
    const { table } = this;
    const { key, source } = table.names(i);
    const status = table.at("status", i);
    const [ours, theirs] = runsOf(key, source);
    const show = {
      key: (cell) => nameCell(ours, key, status, this.room, cell),
      link: (cell) => linkCell(table, i, cell),
      source: (cell) => sourceCell(theirs, source, status, this.room, cell),
    };
    return node("div", { class: `mk-pair-row mk-pair-${toneOf(status)}`, role: "row",
      id: `${this.uid}-${i}`, "data-row": i, "aria-level": "1" },
    ...this.shown.map((c, k) => {
      const cell = node("span", { role: "gridcell", "data-cell": c, "aria-colindex": k + 1,
        class: "mk-pair-cell" });
      cell.append(...(show[c] ? show[c](cell) : COLUMNS[c].show(table, i, cell)));
      return cell;
    }));
  }

  paint() {
    const { order, table } = this;
    this.el.setAttribute("aria-rowcount", order.length + 1 + (this.open >= 0));
    const total = order.length * ROW_H + (this.open >= 0 ? this.openHeight : 0);
    this.space.style.height = `${Math.max(ROW_H, total)}px`;
    if (!order.length) {
      const text = table.count ? "No pairing matches the filter. Escape clears it."
        : "Neither side has a tensor.";
      this.space.replaceChildren(node("div", { class: "mk-pair-row mk-pair-none", role: "row" },
        node("span", { role: "gridcell", class: "mk-pair-cell" }, text)));
      this.el.removeAttribute("aria-activedescendant");
      return;
    }
    // Before the page has laid the list out, its height is not known: assume the full view.
    const height = this.el.clientHeight || HEAD_H + VIEW_ROWS * ROW_H;
    // Rows that are still in the page keep the place beyond the end of a list that became shorter.
    const top = Math.max(0, Math.min(this.el.scrollTop, total + HEAD_H - height));
    const from = Math.max(0, this.atY(top) - SPARE);
    const to = Math.min(order.length, this.atY(top + height) + 1 + SPARE);
    const kept = new Map();
    const ids = order.slice(from, to);
    // The open row stays: the focus may be on one of its buttons.
    if (this.open >= 0 && !ids.includes(this.open)) {
      if (this.openAt() < from) ids.unshift(this.open);
      else ids.push(this.open);
    }
    for (const i of ids) kept.set(i, this.rows.get(i) ?? this.drawRow(i));
    this.rows = kept;
    this.arrange();
    if (kept.has(this.selected)) {
      this.el.setAttribute("aria-activedescendant", `${this.uid}-${this.selected}`);
    } else this.el.removeAttribute("aria-activedescendant");
  }

  // Put the rows into the page without moving one that is there: moved, it would lose the focus.
  arrange() {
    const wanted = [];
    for (const [i, row] of this.rows) {
      const at = this.place(i);
      row.style.top = `${this.y(at)}px`;
      row.setAttribute("aria-rowindex", at + 2 + (at > this.openAt()));
      row.setAttribute("aria-selected", i === this.selected);
      row.setAttribute("aria-expanded", i === this.open);
      wanted.push(row);
      if (i !== this.open) continue;
      this.detail.style.top = `${(at + 1) * ROW_H}px`;
      this.detail.setAttribute("aria-rowindex", at + 3);
      wanted.push(this.detail);
    }
    const set = new Set(wanted);
    for (const child of [...this.space.children]) if (!set.has(child)) child.remove();
    let next = this.space.firstChild;
    for (const el of wanted) {
      if (el === next) next = next.nextSibling;
      else this.space.insertBefore(el, next);
    }
  }

  // --- the open row ---
  toggle(i) {
    if (this.open === i) this.close();
    else this.openRow(i);
  }

  openRow(i) {
    this.close();
    this.open = i;
    this.detail = node("div", { class: "mk-pair-detail", role: "row", "aria-level": "2" },
      node("div", { role: "gridcell", "aria-colspan": this.shown.length }, this.on.detail(i)));
    this.paint();
    this.sizes.observe(this.detail);
    this.measure();
    this.reveal(this.y(this.place(i)), ROW_H + this.openHeight);
  }

  close() {
    if (this.open < 0) return;
    const had = this.detail.contains(document.activeElement);
    this.sizes.unobserve(this.detail);
    this.open = -1;
    this.detail = null;
    this.openHeight = 0;
    this.paint();
    if (had) this.el.focus();
  }

  measure() {
    const height = Math.ceil(this.detail?.getBoundingClientRect().height ?? 0);
    if (height === this.openHeight) return;
    this.openHeight = height;
    this.paint();
  }

  // --- moving ---
  reveal(y, height) {
    const room = (this.el.clientHeight || HEAD_H + VIEW_ROWS * ROW_H) - HEAD_H;
    const over = y + height - this.el.scrollTop - room;
    if (over > 0) this.el.scrollTop += Math.min(over, y - this.el.scrollTop);
    if (y < this.el.scrollTop) this.el.scrollTop = y;
  }

  select(i) {
    this.selected = i;
    if (this.place(i) >= 0) this.reveal(this.y(this.place(i)), ROW_H);
    this.paint();
  }

  key(e) {
    if (e.ctrlKey || e.metaKey || e.altKey) return;
    if (e.target !== this.el) {
      // In an open row the keys are its buttons'; Escape leads back.
      if (e.key === "Escape") this.close();
      e.stopPropagation();
      return;
    }
    if (!this.rowKey(e.key)) return;
    e.preventDefault();
    e.stopPropagation();
  }

  rowKey(key) {
    const at = this.place(this.selected);
    const to = placeAfter(key, this, Math.floor((this.el.clientHeight - HEAD_H) / ROW_H));
    if (to !== undefined) this.go(to);
    else if (key === "Escape") {
      if (this.open >= 0) this.close();
      else this.on.escape();
    } else if (at < 0) return key === "Enter" || key === " ";
    else if (key === "Enter" || key === " ") this.toggle(this.selected);
    else if (key === "ArrowRight" && this.open !== this.selected) this.openRow(this.selected);
    else if (key === "ArrowLeft" && this.open === this.selected) this.close();
    else return key === "ArrowRight" || key === "ArrowLeft";
    return true;
  }

  go(at) {
    if (this.order.length) this.on.select(this.order[at]);
  }
}
