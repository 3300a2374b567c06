// Nothing can be asked of a page without a kernel, so its model only holds what Python knew.
startPage({ render }, (state) => ({
  get: (k) => state[k], set() {}, on() {}, off() {}, save_changes() {},
}));
