// The widget: a tool bar, the table and the detail of the chosen layer.
// text.js, draw.js, detail.js and grid.js stand before this file when Python joins them.
const PAUSE_MS = 120; // moving through the table fetches only where it rests
const LATE_MS = 4000;
const WIDE = 940;
const SMALL = 560;
const NO_KERNEL = "No kernel: run the cell again.";

function toolBar(table) {
  const control = (tag, label, attrs = {}, ...children) =>
    node(tag, { "aria-label": label, ...KEYS_ARE_OURS, ...attrs }, ...children);
  const option = (text, v) => node("option", { value: v }, text);
  const tally = (key) => {
    const counts = new Map();
    for (let i = 0; i < table.count; i++) {
      const word = table.at(key, i);
      counts.set(word, (counts.get(word) ?? 0) + 1);
    }
    return counts;
  };
  const verdicts = tally("verdict");
  const channels = tally("channel");
  const choices = (counts, names) => names.filter((n) => counts.has(n)).map((n) =>
    option(`${visible(n)} (${count(counts.get(n))})`, n));
  const bySeverity = Object.keys(SEVERITY).reverse();
  const button = (text, title) => control("button", text, { type: "button", title }, text);
  const bar = {
    text: control("input", "Filter by layer or kind",
      { type: "search", placeholder: "filter layers", spellcheck: "false", autocomplete: "off" }),
    verdict: control("select", "Filter by verdict", {}, option("all verdicts", ""),
      ...choices(verdicts, bySeverity)),
    channel: control("select", "Filter by channel", {}, option("all channels", ""),
      ...choices(channels, table.words("channel"))),
    first: button("First divergence", "Go to the first layer that differs"),
    previous: button("‹ Flagged", "Go to the layer before this one that is not the same"),
    next: button("Flagged ›", "Go to the next layer that is not the same"),
    columns: button("All columns", "Show every column; the table then scrolls sideways"),
  };
  bar.previous.setAttribute("aria-label", "Previous flagged layer");
  bar.next.setAttribute("aria-label", "Next flagged layer");
  bar.columns.setAttribute("aria-pressed", "false");
  bar.channel.hidden = channels.size < 2;
  // Not "disabled": a disabled button cannot be reached, and then cannot say why.
  const off = (b, why) => { b.setAttribute("aria-disabled", "true"); b.title = why; };
  if (table.first < 0) off(bar.first, "No layer differs");
  if ([...verdicts.keys()].every((v) => v === "same")) {
    off(bar.previous, "No layer is flagged: all are the same");
    off(bar.next, "No layer is flagged: all are the same");
  }
  bar.tally = node("span", { class: "mk-tally" });
  bar.el = node("div", { class: "mk-bar-top", role: "group", "aria-label": "Find layers" },
    bar.text, bar.verdict, bar.channel, bar.first, bar.previous, bar.next, bar.columns);
  return bar;
}

function render({ model, el }) {
  const stop = new AbortController(); // every listener on an element ends with it
  const { signal } = stop;
  const table = new Table(model.get("table"));
  const uid = `mk${Math.random().toString(36).slice(2)}`;
  const bar = toolBar(table);
  const status = node("p", { class: "mk-status", role: "status", "aria-live": "polite" });
  const pane = new DetailPane();
  const timers = { pause: 0, late: 0, frame: 0 };
  let sort = null;

  const say = (text) => { status.textContent = text; };
  const grid = new Grid(table, uid, { select, sort: sortBy, say, escape: clearFilter });
  const root = node("div", { class: "mk-root" },
    node("div", { class: "mk-table" }, bar.el, grid.el,
      node("div", { class: "mk-below" }, status, bar.tally)), pane.el);

  // --- which rows, in which order ---
  function arrange() {
    const words = bar.text.value.toLowerCase().split(/\s+/).filter((w) => w);
    const ids = [];
    for (let i = 0; i < table.count; i++) {
      if (bar.verdict.value && table.at("verdict", i) !== bar.verdict.value) continue;
      if (bar.channel.value && table.at("channel", i) !== bar.channel.value) continue;
      const text = words.length ? `${table.at("layer", i)} ${table.at("kind", i)}`.toLowerCase() : "";
      if (words.every((w) => text.includes(w))) ids.push(i);
    }
    grid.setOrder(sort ? sorted(table, ids, sort.key, sort.direction) : ids, sort);
    const all = plural(table.count, "layer");
    bar.tally.textContent = ids.length === table.count ? all : `${count(ids.length)} of ${all}`;
  }

  function filter() {
    arrange();
    grid.el.scrollTop = 0;
    if (grid.place(grid.selected) >= 0) grid.select(grid.selected);
    say(`${bar.tally.textContent} shown.`);
  }

  function clearFilter() {
    if (!bar.text.value && !bar.verdict.value && !bar.channel.value) return;
    bar.text.value = bar.verdict.value = bar.channel.value = "";
    filter();
  }

  // First click: the direction in which one looks for trouble; then the other; then none.
  function sortBy(key) {
    const column = COLUMNS.find((c) => c.key === key);
    const [one, two] = column.down ? ["descending", "ascending"] : ["ascending", "descending"];
    const next = sort?.key !== key ? one : sort.direction === one ? two : null;
    sort = next && { key, direction: next };
    arrange();
    grid.el.scrollTop = 0;
    say(next ? `Sorted by ${column.head}, ${next}.` : "In the network's order.");
  }

  // --- choosing a layer and asking Python for it ---
  function select(i, now, jump = false) {
    clearTimeout(timers.pause);
    grid.select(i, jump);
    model.set("selected", i); // which moves the mark in every other view of this model
    if (now) ask(i);
    else timers.pause = setTimeout(() => ask(i), PAUSE_MS);
  }

  function goTo(i, why) {
    if (grid.place(i) < 0) clearFilter();
    say(why);
    select(i, true, true);
  }

  function ask(i) {
    const last = model.get("request");
    // What is shown already is not asked again, except where it was a failure.
    if (last.row === i && pane.shown && pane.shown.header.row === i
      && !pane.shown.header.error) return;
    model.set("request", { number: (last.number ?? 0) + 1, row: i });
    model.save_changes();
    wait();
  }

  // While nothing has come: say so, and say so differently when nothing can come.
  function wait() {
    clearTimeout(timers.late);
    if (model.get("request").number === answered()) return; // a page answers at once
    if (el.closest(".jupyter-widgets-disconnected")) {
      say(NO_KERNEL);
      return;
    }
    pane.el.setAttribute("aria-busy", "true");
    timers.late = setTimeout(() => {
      say(el.closest(".jupyter-widgets-disconnected") ? NO_KERNEL
        : "Still waiting for Python: it is busy, or there is no kernel. In that case run the"
          + " cell again.");
    }, LATE_MS);
  }

  const answered = () => pane.shown?.header.number ?? 0;

  function receive() {
    const answer = decode(model.get("detail"));
    // An answer to an older question would replace the layer the reader is looking at.
    if (!answer || answer.header.number !== model.get("request").number) return;
    clearTimeout(timers.late);
    pane.el.setAttribute("aria-busy", "false");
    const { row, message, error } = answer.header;
    const name = visible(table.at("layer", row) || "(no name)");
    pane.show(answer, name);
    say(error ? `${name}: ${message}` : `${name}: ${table.at("verdict", row)}, R `
      + `${number(table.at("R", row))}. Details shown.`);
    root.dataset.painted = String(answer.header.number);
    root.dataset.row = String(row);
  }

  function step(direction) {
    let at = grid.place(grid.selected);
    if (at < 0 && direction < 0) at = grid.order.length;
    for (at += direction; at >= 0 && at < grid.order.length; at += direction) {
      if (table.flagged(grid.order[at])) {
        goTo(grid.order[at], "");
        return;
      }
    }
    say(`No flagged layer ${direction > 0 ? "after" : "before"} this one in the table.`);
  }

  const onSelected = () => grid.select(model.get("selected"));
  const press = (button, act) => button.addEventListener("click", () => {
    if (button.getAttribute("aria-disabled") === "true") say(`${button.title}.`);
    else act();
  }, { signal });
  press(bar.first, () => goTo(table.first, "First divergence."));
  press(bar.previous, () => step(-1));
  press(bar.next, () => step(1));
  press(bar.columns, () => {
    grid.everything = !grid.everything;
    bar.columns.setAttribute("aria-pressed", String(grid.everything));
    measure();
  });
  bar.text.addEventListener("input", filter, { signal });
  for (const s of [bar.verdict, bar.channel]) s.addEventListener("change", filter, { signal });
  barKeys(bar, grid, clearFilter, signal);
  grid.listen(signal);
  pane.listen(signal);
  model.on("change:selected", onSelected);
  model.on("change:detail", receive);

  // --- size and theme ---
  let width = 0;
  function measure() {
    root.classList.toggle("mk-wide", width >= WIDE);
    root.classList.toggle("mk-small", width < SMALL);
    grid.setViewRows(width >= WIDE ? 24 : 12);
    grid.fit(grid.el.offsetWidth || Infinity);
    bar.columns.hidden = !grid.dropped && !grid.everything;
  }
  const redraw = () => {
    cancelAnimationFrame(timers.frame);
    timers.frame = requestAnimationFrame(() => pane.redraw());
  };
  const sizes = new ResizeObserver(() => {
    if (Math.abs(root.clientWidth - width) < 1) return;
    const first = width === 0;
    width = root.clientWidth;
    measure();
    // A view made after a row was chosen could not scroll to it before it was laid out.
    if (first && grid.selected >= 0) grid.select(grid.selected);
    redraw();
  });
  sizes.observe(root);
  const themes = new MutationObserver(redraw);
  themes.observe(document.body, { attributes: true,
    attributeFilter: ["class", "data-jp-theme-light", "data-jp-theme-name",
      "data-vscode-theme-kind"] });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw, { signal });

  arrange();
  grid.setViewRows(24);
  grid.select(model.get("selected"));
  el.append(root);
  receive();
  root.dataset.ready = "true";
  return () => {
    stop.abort();
    sizes.disconnect();
    themes.disconnect();
    clearTimeout(timers.pause);
    clearTimeout(timers.late);
    cancelAnimationFrame(timers.frame);
    model.off("change:selected", onSelected);
    model.off("change:detail", receive);
    root.remove();
  };
}

export default { render };
