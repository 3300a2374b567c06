// Names, numbers and elements. Every text from Python reaches the page through textContent.

function node(tag, attrs = {}, ...children) {
  const el = document.createElement(tag);
  for (const [key, value] of Object.entries(attrs)) {
    if (value === true) el.setAttribute(key, "");
    else if (value !== false && value !== null) el.setAttribute(key, String(value));
  }
  el.append(...children.filter((c) => c !== null));
  return el;
}

// What takes the focus must carry this itself: on an ancestor it does nothing, and JupyterLab's
// command mode takes the key ("a" adds a cell, "d d" deletes one).
const KEYS_ARE_OURS = { "data-lm-suppress-shortcuts": "true" };

// Line ends, other control characters, and the marks that turn the direction of text around.
const INVISIBLE = /[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\u061c]/g;

function visible(text) {
  return String(text).replace(INVISIBLE, (c) => {
    if (c === "\n") return "⏎";
    if (c === "\t") return "⇥";
    return `‹${c.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}›`;
  });
}

// Layers differ in the last part of their name, so a narrow column cuts the middle: the head
// shrinks, the tail does not.
function nameNode(text) {
  const letters = Array.from(visible(text) || "(no name)");
  const tail = letters.length > 24 ? 14 : 0;
  return node(
    "bdi",
    { class: "mk-name" },
    node("span", { class: "mk-name-head" }, letters.slice(0, letters.length - tail).join("")),
    tail ? node("span", { class: "mk-name-tail" }, letters.slice(-tail).join("")) : null,
  );
}

const NO_NUMBER = "–";

// Numbers that JSON cannot hold arrive as null (not measured) and "inf", "-inf".
function value(v) {
  if (v === "inf") return Infinity;
  if (v === "-inf") return -Infinity;
  return v === null || v === undefined ? NaN : v;
}

function number(v) {
  const x = value(v);
  if (Number.isNaN(x)) return NO_NUMBER;
  if (!Number.isFinite(x)) return x > 0 ? "∞" : "−∞";
  if (x === 0) return "0";
  const size = Math.abs(x);
  const text =
    size >= 9999.5 || size < 9.995e-3 ? x.toExponential(1 + (size < 1)) :
    size >= 999.5 ? x.toFixed(0) : x.toPrecision(3);
  return minus(text.replace("e+", "e"));
}

// A hyphen is narrower than the digits, and columns of numbers would not line up.
function minus(text) {
  return String(text).replaceAll("-", "−");
}

function count(n) {
  return Number(n).toLocaleString("en-US");
}

function plural(n, one, many = `${one}s`) {
  return `${count(n)} ${n === 1 ? one : many}`;
}
