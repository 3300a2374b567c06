// What Python sent, and what a row of it shows. text.js and pairing_text.js stand before this file
// when Python joins them.

// The gravest first. look: needs attention.
const STATUSES = {
  missing: { tone: "error", look: true },
  "shape differs": { tone: "error", look: true },
  ambiguous: { tone: "warning", look: true },
  unexpected: { tone: "warning", look: true },
  "dtype differs": { tone: "info", look: false }, // it is converted when it is loaded
  renamed: { tone: "info", look: false },
  made: { tone: "info", look: false },
  kept: { tone: "quiet", look: false },
  "left out": { tone: "quiet", look: false },
  "same name": { tone: "ok", look: false },
};
// hasOwn: a status may be any word, such as "constructor".
const toneOf = (status) => (Object.hasOwn(STATUSES, status) ? STATUSES[status].tone : "quiet");
const needsLook = (status) => Object.hasOwn(STATUSES, status) && STATUSES[status].look;

// Columns as they come from Python: plain lists, or words with an index a row.
class Pairs {
  constructor(text) {
    Object.assign(this, JSON.parse(text));
    this.search = null;
  }
  at(key, i) {
    const { words, at } = this.columns[key];
    return words[at[i]];
  }
  names(i) {
    const key = this.columns.key[i];
    const source = this.columns.source[i];
    return { key, source: source === 0 ? key : source };
  }
  // The rows of Python, of which some may not have been sent.
  row(i) {
    return this.rows ? this.rows[i] : i;
  }
  place(row) {
    return this.rows ? this.rows.indexOf(row) : row < this.count ? row : -1;
  }
  tally() {
    const counts = new Map();
    for (let i = 0; i < this.count; i++) {
      const word = this.at("status", i);
      counts.set(word, (counts.get(word) ?? 0) + 1);
    }
    const order = Object.keys(STATUSES);
    const rank = (word) => (order.indexOf(word) + 1 || order.length + 1);
    return new Map([...counts].sort(([a], [b]) => rank(a) - rank(b)));
  }
  // Which rows a filter leaves: `wanted` of a status, and every word in one of the names.
  found(wanted, text) {
    const words = text.toLowerCase().split(/\s+/).filter((w) => w);
    if (words.length && !this.search) {
      this.search = Array.from({ length: this.count }, (_, i) => {
        const { key, source } = this.names(i);
        return `${key ?? ""}\n${source ?? ""}`.toLowerCase();
      });
    }
    const ids = [];
    for (let i = 0; i < this.count; i++) {
      if (wanted(this.at("status", i)) && words.every((w) => this.search[i].includes(w))) ids.push(i);
    }
    return ids;
  }
}

// What stands in for a name; a tensor that is made of others, or not told apart, is not absent.
const ABSENT = new Map([["missing", "not in the checkpoint"], ["unexpected", "not in the model"],
  ["kept", "the model's own value"], ["left out", "not needed"]]);
const absent = (status) => ABSENT.get(status) ?? "–";

function nameCell(runs, raw, status, room, cell) {
  if (raw === null) {
    cell.classList.add("mk-pair-absent");
    return [absent(status)];
  }
  cell.title = raw;
  return [shortName(runs, room)];
}

// Of several names the first, and how many more; the open row has them all.
function sourceCell(runs, raw, status, room, cell) {
  const several = raw?.split(AND) ?? [];
  if (several.length < 2) return nameCell(runs, raw, status, room, cell);
  cell.title = raw;
  const more = ` + ${count(several.length - 1)}`;
  return [shortName(whole(several[0]), room - more.length),
    node("span", { class: "mk-pair-amount" }, more)];
}

function linkCell(table, i, cell) {
  const status = table.at("status", i);
  const { key, source } = table.names(i);
  cell.title = status;
  cell.dataset.side = key === null ? "source" : source === null ? "key" : "both";
  const line = (side) =>
    node("span", { class: `mk-pair-line mk-pair-line-${side}`, "aria-hidden": "true" });
  return [line("key"), node("span", { class: "mk-pair-status" }, visible(status)), line("source")];
}

const pairOf = (what) => (table, i) => [table.at(what, i), table.at(`source_${what}`, i)];
const shapes = pairOf("shape");
const dtypes = pairOf("dtype");

function bothCell(pair, cell) {
  const parts = pair.filter((p, k) => p && (k === 0 || p !== pair[0]));
  cell.title = parts.map(visible).join(" ≠ ");
  return bothNode(...pair);
}

// Where one column is all there is room for, it shows what differs.
function tensorCell(table, i, cell) {
  const [ours, theirs] = shapes(table, i);
  const types = dtypes(table, i);
  const odd = types[0] && types[1] && types[0] !== types[1];
  return bothCell(odd && ours === theirs ? types : [ours, theirs], cell);
}

const COLUMNS = {
  key: { head: (t) => ["model", plural(t.keys, "key")], track: "minmax(0, 1fr)" },
  link: { head: () => ["link"], track: "116px" },
  source: { head: (t) => ["checkpoint", plural(t.sources, "key")], track: "minmax(0, 1fr)" },
  shape: { head: () => ["shape"], track: "156px", show: (t, i, cell) => bothCell(shapes(t, i), cell) },
  dtype: { head: () => ["dtype"], track: "146px", show: (t, i, cell) => bothCell(dtypes(t, i), cell) },
  tensor: { head: () => ["shape, dtype"], track: "138px", show: tensorCell },
};
