// Starts a widget in a page of its own: no widget manager, no kernel.
function fromBase64(text) {
  return Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
}

// Everything from outside arrives as base64 in an element that is never run as a script.
function startPage(widget, modelOf) {
  const kept = document.querySelector("#data").textContent;
  const data = JSON.parse(new TextDecoder().decode(fromBase64(kept)));
  const scheme = matchMedia("(prefers-color-scheme: dark)");
  const theme = () => document.body.classList.toggle("mk-page-dark", scheme.matches);
  theme();
  scheme.addEventListener("change", theme);
  widget.render({ model: modelOf(data), el: document.querySelector("#here") });
}
