// Stands in for the widget manager in as_page(): the same script in a page of its own, with the
// answers that Python gave when the page was made.
class PageModel {
  constructor(state, answers, absent) {
    this.state = { ...state, detail: new DataView(new ArrayBuffer(0)) };
    this.answers = answers;
    this.absent = absent;
    this.handlers = new Map();
  }
  get(key) {
    return this.state[key];
  }
  set(key, value) {
    if (this.state[key] === value) return;
    this.state[key] = value;
    for (const handler of this.handlers.get(`change:${key}`) ?? []) handler();
  }
  on(event, handler) {
    if (!this.handlers.has(event)) this.handlers.set(event, new Set());
    this.handlers.get(event).add(handler);
  }
  off(event, handler) {
    this.handlers.get(event)?.delete(handler);
  }
  save_changes() {
    const { number, row } = this.state.request;
    const kept = this.answers[row];
    const bytes = kept ? fromBase64(kept) : null;
    const size = bytes ? new DataView(bytes.buffer).getUint32(0, true) : 0;
    const header = bytes ? JSON.parse(new TextDecoder().decode(bytes.subarray(4, 4 + size)))
      : { row, message: this.absent, arrays: {}, facts: null };
    this.set("detail", joined({ ...header, number }, bytes ? bytes.subarray(4 + size) : []));
  }
}

function joined(header, floats) {
  let text = new TextEncoder().encode(JSON.stringify(header));
  const length = text.length + ((4 - (text.length % 4)) % 4);
  const bytes = new Uint8Array(4 + length + floats.length).fill(32);
  new DataView(bytes.buffer).setUint32(0, length, true);
  bytes.set(text, 4);
  bytes.set(floats, 4 + length);
  return new DataView(bytes.buffer);
}

startPage({ render }, ({ state, answers, absent }) => new PageModel(state, answers, absent));
