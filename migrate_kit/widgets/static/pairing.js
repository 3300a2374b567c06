// The widget: findings, a tool bar that filters and copies, and the list of pairings.
// text.js, clipboard.js and the other pairing files stand before this file when Python joins them.
const PAUSE_MS = 120; // moving through the list tells Python only where it rests
const FEW_FINDINGS = 3;
const ALL = "all";
const LOOK = "needs attention";

const press = (text, attrs = {}) =>
  node("button", { type: "button", ...KEYS_ARE_OURS, ...attrs }, text);

// --- what the report says besides ---
function findingNode([level, what, where, fix]) {
  const tone = { error: "error", warning: "warning" }[level] ?? "info";
  return node("li", { class: `mk-pair-${tone}` },
    node("span", { class: "mk-pair-level" }, visible(level)),
    node("div", {}, node("bdi", {}, visible(what)),
      where ? node("span", { class: "mk-pair-where" }, " ", node("bdi", {}, visible(where))) : null,
      fix ? node("p", { class: "mk-pair-fix" }, "→ ", node("bdi", {}, visible(fix))) : null));
}

function findingsNode({ findings, more }) {
  if (!findings.length) return null;
  const list = (some) => node("ul", { class: "mk-pair-findings" }, ...some.map(findingNode));
  const rest = findings.slice(FEW_FINDINGS);
  const hidden = rest.length + more;
  return node("section", { "aria-label": "Findings" }, list(findings.slice(0, FEW_FINDINGS)),
    hidden ? node("details", {}, node("summary", KEYS_ARE_OURS, plural(hidden, "more finding")),
      list(rest), more ? node("p", {}, `${count(more)} not shown: see .findings`) : null) : null);
}

// --- the tool bar ---
function toolBar(table) {
  const tally = table.tally();
  const looks = [...tally].reduce((sum, [word, n]) => sum + (needsLook(word) ? n : 0), 0);
  const chip = (filter, word, n, tone) => {
    const button = press("", { class: `mk-pair-chip mk-pair-${tone}`, "aria-pressed": "false" });
    button.append(node("span", { class: "mk-pair-word" }, visible(word)), " ",
      node("span", { class: "mk-pair-count" }, count(n)));
    return { filter, button, wanted: filter === ALL ? () => true
      : filter === LOOK ? needsLook : (status) => `is ${status}` === filter };
  };
  const chips = [
    ...(looks ? [chip(LOOK, LOOK, looks, "all")] : []),
    chip(ALL, ALL, table.count, "all"),
    // "is": a status that is called like one of the others is still its own.
    ...[...tally].map(([word, n]) => chip(`is ${word}`, word, n, toneOf(word))),
  ];
  const text = node("input", { type: "search", "aria-label": "Filter by name",
    placeholder: "filter by name, on either side", spellcheck: "false", autocomplete: "off",
    ...KEYS_ARE_OURS });
  const copy = press("Copy mapping",
    { title: "Copy all pairs as a Python dict, model key to checkpoint key" });
  const group = node("div",
    { class: "mk-pair-chips", role: "group", "aria-label": "Show by status" },
    ...chips.map((c) => c.button));
  const el = node("div", { class: "mk-pair-bar", role: "group", "aria-label": "Find pairings" },
    node("div", { class: "mk-pair-tools" }, text, copy), tally.size > 1 ? group : null);
  return { el, chips, text, copy, first: looks ? LOOK : ALL };
}

// --- an open row ---
function detailNode(table, i, copy, signal) {
  const { key, source } = table.names(i);
  const runs = runsOf(key, source);
  const part = (what, ours, theirs) => {
    if (!what) return "";
    const odd = ours && theirs && ours !== theirs;
    return node(odd ? "b" : "span", { class: odd ? "mk-pair-odd" : null }, visible(what));
  };
  const cut = table.cut.includes(i);
  const status = table.at("status", i);
  const side = (label, name, k) => {
    if (name === null) {
      return [node("dt", {}, label), node("dd", { class: "mk-pair-absent" }, absent(status))];
    }
    const tensor = [shapes(table, i), dtypes(table, i)].filter((both) => both[k])
      .flatMap((both, n) => [n ? " · " : "", part(both[k], ...both)]);
    // Of a tensor that is made of several every name is a key, and what they have in common says little.
    const several = k && name.includes(AND) ? name.split(AND) : null;
    return [node("dt", {}, label), ...(several ?? [name]).map((one) => {
      const button = cut ? null : press("Copy", { "aria-label": `Copy the ${label}'s key` });
      button?.addEventListener("click", () => copy(button, one, `The ${label}'s key`), { signal });
      return node("dd", { class: "mk-pair-side" },
        wholeName(several ? whole(one) : runs[k]),
        node("span", { class: "mk-pair-tensor" }, ...tensor.splice(0)), button);
    })];
  };
  const line = (label, text) => (text ? [node("dt", {}, label),
    node("dd", {}, node("bdi", {}, visible(text)))] : []);
  return node("dl", { class: `mk-pair-${toneOf(status)}` }, ...side("model", key, 0), ...side("checkpoint", source, 1),
    ...line("status", status), ...line("rule", table.at("rule", i)),
    ...line("reason", table.at("reason", i)),
    ...(cut ? line("note", "A name is too long for this view and shown without its middle.") : []));
}

function render({ model, el }) {
  const stop = new AbortController(); // every listener on an element ends with it
  const { signal } = stop;
  const table = new Pairs(model.get("table"));
  const uid = `mk${Math.random().toString(36).slice(2)}`;
  const bar = toolBar(table);
  const status = node("p", { class: "mk-pair-says", role: "status", "aria-live": "polite" });
  const tally = node("span", { class: "mk-pair-tally" });
  // What is copied, in a place where it can be selected when there is no clipboard.
  const kept = node("pre", { class: "mk-pair-unseen", role: "region", "aria-label": "Text to copy" });
  const timers = { pause: 0, copied: 0 };
  let restore = () => {};
  let filter = bar.first;

  const say = (text) => { status.textContent = text; };
  const list = new PairList(table, uid, { select, escape: clearFilter,
    detail: (i) => detailNode(table, i, copy, signal) });
  const root = node("div", { class: "mk-pairing" }, findingsNode(table), bar.el, list.el,
    node("div", { class: "mk-pair-below" }, status, tally), kept);

  // --- which rows ---
  function arrange() {
    const chip = bar.chips.find((c) => c.filter === filter);
    for (const c of bar.chips) c.button.setAttribute("aria-pressed", c === chip);
    const ids = table.found(chip.wanted, bar.text.value);
    list.setOrder(ids);
    const all = plural(table.count, "pairing");
    const sent = table.count < table.total ? ` (of ${count(table.total)}; more than a view holds)` : "";
    tally.textContent = `${ids.length === table.count ? all : `${count(ids.length)} of ${all}`}${sent}`;
  }

  function show(next) {
    filter = next;
    list.el.scrollTop = 0;
    arrange();
    if (list.place(list.selected) >= 0) list.select(list.selected);
    say(`${tally.textContent} shown.`);
  }

  // A filter that hides everything is worse than none: all, not what was shown at first.
  function clearFilter() {
    if (!bar.text.value && filter === ALL) return;
    bar.text.value = "";
    show(ALL);
  }

  // --- choosing ---
  function select(i) {
    clearTimeout(timers.pause);
    list.select(i);
    model.set("selected", table.row(i)); // which moves the mark in every other view of this model
    timers.pause = setTimeout(() => model.save_changes(), PAUSE_MS);
  }
  const onSelected = () => list.select(table.place(model.get("selected")));

  // --- copying ---
  async function copy(button, text, what) {
    kept.textContent = text;
    kept.classList.add("mk-pair-unseen");
    kept.removeAttribute("tabindex");
    const done = await copied(kept);
    if (done) kept.textContent = "";
    else {
      kept.classList.remove("mk-pair-unseen");
      kept.setAttribute("tabindex", "0");
      kept.dataset.lmSuppressShortcuts = "true";
    }
    restore();
    const word = button.textContent;
    restore = () => { button.textContent = word; };
    button.textContent = done ? "Copied" : "Press Ctrl+C";
    say(done ? `${what} is copied.` : `${what} is selected: press Ctrl+C.`);
    clearTimeout(timers.copied);
    timers.copied = setTimeout(() => {
      restore();
      restore = () => {};
    }, COPIED_MS);
  }

  bar.copy.addEventListener("click", () => {
    const { text, pairs, commented } = mappingText(table);
    const rest = commented ? `, with ${count(commented)} more as comments,` : "";
    copy(bar.copy, text, `A dict of ${plural(pairs, "pair")}${rest}`);
  }, { signal });
  bar.text.addEventListener("input", () => show(filter), { signal });
  for (const { filter: next, button } of bar.chips) {
    button.addEventListener("click", () => show(next), { signal });
  }
  barKeys(bar, list, clearFilter, signal);
  list.listen(signal);
  model.on("change:selected", onSelected);

  const sizes = new ResizeObserver(() => list.fit(list.el.offsetWidth || Infinity));
  sizes.observe(list.el);
  arrange();
  onSelected();
  el.append(root);
  list.paint();
  root.dataset.ready = "true";
  return () => {
    stop.abort();
    sizes.disconnect();
    clearTimeout(timers.pause);
    clearTimeout(timers.copied);
    model.off("change:selected", onSelected);
    root.remove();
  };
}

export default { render };
