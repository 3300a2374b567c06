// The keys of a list and of the tool bar above it. A list has el, order, selected, place(i), go(at).

// The place that a key leads to from place `at`, some rows being in view; undefined for other keys.
function placeAfter(key, list, rowsInView) {
  const at = list.place(list.selected);
  const page = Math.max(1, rowsInView - 1);
  const last = list.order.length - 1;
  const to = { ArrowDown: at + 1, ArrowUp: at - 1, PageDown: at + page, PageUp: at - page,
    Home: 0, End: last }[key];
  return to === undefined ? to : Math.min(last, Math.max(0, to));
}

// Escape clears the filter, and the arrow leads from the search to the list.
function barKeys(bar, list, clearFilter, signal) {
  bar.el.addEventListener("keydown", (e) => {
    if (e.key === "Escape") {
      e.preventDefault();
      clearFilter();
    } else if (e.key === "ArrowDown" && e.target === bar.text) {
      e.preventDefault();
      list.el.focus();
      if (list.place(list.selected) < 0) list.go(0);
    }
    e.stopPropagation();
  }, { signal });
}
