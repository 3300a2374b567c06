// What two names have in common, what two shapes differ in, and pairs as Python text.
// text.js stands before this file when Python joins them.

// Words, numbers and what stands between them, so that a difference is a whole part of a name.
const PARTS = /\d+|[._/:-]|[^\d._/:-]+/gu;
const WORD = /[^\d._/:-]/;
const BETWEEN = /^[._/:-]$/;
// Beyond it (some 60 unlike parts on either side) two names are not worth comparing.
const MOST_CELLS = 4096;
// What is always kept of a name that is cut.
const HEAD = 2;
const TAIL = 7;

// Say of each part whether the other name has it too. The ends first: most names differ in a prefix
// or in one word.
function common(a, b) {
  const marks = [a.map(() => false), b.map(() => false)];
  const both = (i, j) => { marks[0][i] = marks[1][j] = true; };
  let start = 0;
  let end = 0;
  const shorter = Math.min(a.length, b.length);
  while (start < shorter && a[start] === b[start]) both(start, start++);
  while (end < shorter - start && a[a.length - 1 - end] === b[b.length - 1 - end]) {
    end++;
    both(a.length - end, b.length - end);
  }
  const m = a.length - end - start;
  const n = b.length - end - start;
  if (m && n && m * n <= MOST_CELLS) align(a, b, start, m, n, both);
  return marks.map((side, k) => withoutLoneDots([a, b][k], side));
}

// The longest common parts, counted in letters: a dot alone is hardly worth an agreement.
function align(a, b, start, m, n, both) {
  const best = Array.from({ length: m + 1 }, () => new Float64Array(n + 1));
  const worth = (part) => (BETWEEN.test(part) ? 0.01 : part.length);
  const alike = (i, j) => a[start + i] === b[start + j];
  for (let i = m - 1; i >= 0; i--) {
    for (let j = n - 1; j >= 0; j--) {
      const here = alike(i, j) ? worth(a[start + i]) + best[i + 1][j + 1] : 0;
      best[i][j] = Math.max(here, best[i + 1][j], best[i][j + 1]);
    }
  }
  for (let i = 0, j = 0; i < m && j < n;) {
    if (alike(i, j) && best[i][j] === worth(a[start + i]) + best[i + 1][j + 1]) {
      both(start + i++, start + j++);
    } else if (best[i + 1][j] >= best[i][j + 1]) i++;
    else j++;
  }
}

// A dot that both have, between words that differ, would only break up the difference.
function withoutLoneDots(parts, marks) {
  return marks.map((mark, i) => mark && !(BETWEEN.test(parts[i])
    && marks[i - 1] === false && marks[i + 1] === false));
}

const whole = (name) => (name === null ? null : [[visible(name) || "(empty name)", null]]);

// [[text, is common], ...] for both names of a pair; a name alone is one run.
function runsOf(key, source) {
  const sides = [key, source].map((name) => visible(name ?? "").match(PARTS) ?? []);
  const marks = key === source ? [[], []] : common(...sides);
  // Where no word is common, all of it differs, and to mark it would say nothing.
  if (!sides[0].some((part, i) => marks[0][i] && WORD.test(part))) return [whole(key), whole(source)];
  return sides.map((parts, k) => {
    const runs = [];
    parts.forEach((part, i) => {
      if (runs.length && runs.at(-1)[1] === marks[k][i]) runs.at(-1)[0] += part;
      else runs.push([part, marks[k][i]]);
    });
    return runs;
  });
}

function runNode(text, isCommon) {
  const kind = isCommon === null ? null : isCommon ? "mk-pair-common" : "mk-pair-unlike";
  return node("span", { class: kind }, text);
}

// Letters of the east are as wide as two.
const wide = (letters) => letters.reduce((n, c) => n + (c.codePointAt(0) >= 0x1100 ? 2 : 1), 0);

// Where a name of these letters gives way, as [from, to] each: in one place near the middle, but not
// where the other name differs. If that cannot be, on both sides of what differs.
function gapsOf(letters, unlike, room) {
  const size = letters.length;
  const gone = Math.min(size - HEAD - TAIL, wide(letters) - room + 1); // 1: the dots
  if (gone < 2) return [];
  const cost = [0];
  letters.forEach((_, i) => cost.push(cost[i] + (unlike[i] ? 1 : 0)));
  let best = HEAD;
  const lost = (at) => cost[at + gone] - cost[at];
  const off = (at) => Math.abs(2 * at + gone - size);
  for (let at = HEAD; at <= size - gone - TAIL; at++) {
    if (lost(at) < lost(best) || (lost(at) === lost(best) && off(at) < off(best))) best = at;
  }
  const first = unlike.indexOf(true);
  const end = unlike.lastIndexOf(true) + 1;
  const spare = Math.floor((size - gone - HEAD - TAIL - 1 - (end - first)) / 2);
  const between = [first - spare, end + spare];
  if (lost(best) && spare >= 0 && between[0] > HEAD + 1 && between[1] < size - TAIL - 1) {
    return [[HEAD, between[0]], [between[1], size - TAIL]];
  }
  return [[best, best + gone]];
}

function shortName(runs, room) {
  const all = runs.flatMap(([text]) => Array.from(text));
  const unlike = runs.flatMap(([text, isCommon]) => Array.from(text, () => isCommon === false));
  const gaps = wide(all) > room ? gapsOf(all, unlike, room) : [];
  let at = 0;
  return node("bdi", { class: "mk-pair-name" }, ...runs.map(([text, isCommon]) => {
    const end = at + Array.from(text).length;
    const run = runNode("", isCommon);
    const keep = (to) => { run.append(all.slice(at, to).join("")); at = to; };
    for (const [from, to] of gaps) {
      if (to <= at || from >= end) continue;
      keep(Math.max(at, from));
      // Still there for who copies the name or has it read out.
      const dots = at === from ? "mk-pair-gone mk-pair-dots" : "mk-pair-gone";
      run.append(node("span", { class: dots }, all.slice(at, Math.min(to, end)).join("")));
      at = Math.min(to, end);
    }
    keep(end);
    return run;
  }));
}

function wholeName(runs) {
  return node("bdi", { class: "mk-pair-whole" }, ...runs.map((run) => runNode(...run)));
}

// A shape, or both where they differ, with the lengths that do in bold; a dtype has one length.
function bothNode(ours, theirs) {
  if (!ours || !theirs || ours === theirs) return [visible(ours || theirs)];
  const [a, b] = [ours, theirs].map((text) => visible(text).split("×"));
  const odd = (text) => node("b", { class: "mk-pair-odd" }, text);
  if (a.length !== b.length) return [odd(`${a.join("×")} ≠ ${b.join("×")}`)];
  const unlike = a.length > 1 ? "≠" : " ≠ ";
  return a.flatMap((length, i) => [i ? "×" : "",
    length === b[i] ? length : odd(`${length}${unlike}${b[i]}`)]);
}

// --- Python ---
const AND = " + "; // between the names of which a tensor is made
const ESCAPES = { "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t" };
// What Python would not print either, and halves of a surrogate pair.
const TO_ESCAPE = new RegExp(`\\\\|${INVISIBLE.source}|\\p{Cs}|[\\p{Zl}\\p{Zp}\\u00ad]`, "gu");

function pythonText(text) {
  const quote = text.includes("'") && !text.includes('"') ? '"' : "'";
  const body = text.replace(TO_ESCAPE, (c) => {
    if (ESCAPES[c]) return ESCAPES[c];
    return `\\u${c.codePointAt(0).toString(16).padStart(4, "0")}`;
  });
  return quote + (quote === "'" ? body.replaceAll("'", "\\'") : body) + quote;
}

// Only these may be loaded under the model's name as they are: a shape that differs, a tensor made of
// others or a status from elsewhere stays a comment.
const LOADED = new Set(["same name", "renamed", "dtype differs"]);

function mappingText(table) {
  const lines = ["{", "    # model key: checkpoint key"];
  const cut = new Set(table.cut);
  const left = { cut: 0, commented: 0, pairs: 0 };
  for (let i = 0; i < table.count; i++) {
    const { key, source } = table.names(i);
    if (key === null || source === null) continue;
    const status = table.at("status", i);
    const entry = `${pythonText(key)}: ${pythonText(source)},`;
    if (cut.has(i)) left.cut++;
    else if (LOADED.has(status) && !source.includes(AND)) {
      // What is converted may have been turned, too; its rule says so.
      const rule = status === "dtype differs" ? `  # ${status}; ${visible(table.at("rule", i))}` : "";
      lines.push(`    ${entry}${rule}`);
      left.pairs++;
    } else {
      lines.push(`    # ${entry}  # ${visible(status)}`);
      left.commented++;
    }
  }
  if (left.cut) {
    lines.push(`    # left out: ${plural(left.cut, "pair")} with a name too long for this view`);
  }
  if (table.count < table.total) {
    lines.push(`    # not all: this view holds ${table.count} of ${table.total} rows`);
  }
  return { text: [...lines, "}", ""].join("\n"), ...left };
}
