// The checklist. text.js and clipboard.js stand before this file when Python joins them.
const STATES = ["error", "warning", "info", "ok"];
const SAYS = { error: "fault", warning: "look", info: "note", ok: "in order" };
const COUNTED = { error: "faults", warning: "to look at", info: "notes", ok: "in order" };

function press(text, attrs = {}) {
  return node("button", { type: "button", ...KEYS_ARE_OURS, ...attrs }, text);
}

function lineOf([state, group, what, why, command], status, signal) {
  const line = node("li", { class: `mk-check mk-${STATES.includes(state) ? state : "info"}` },
    node("span", { class: "mk-state" }, SAYS[state] ?? visible(state)),
    node("div", { class: "mk-body" },
      node("p", { class: "mk-what" }, node("bdi", {}, visible(what)),
        node("span", { class: "mk-about" }, visible(group))),
      why ? node("p", { class: "mk-why" }, node("bdi", {}, visible(why))) : null));
  if (command) {
    const code = node("code", {}, command);
    const button = press("Copy",
      { "aria-label": `Copy the command: ${visible(command).slice(0, 120)}` });
    let timer = 0;
    button.addEventListener("click", async () => {
      const done = await copied(code);
      button.textContent = done ? "Copied" : "Press Ctrl+C";
      status.textContent = done ? "The command is copied." : "The command is selected.";
      clearTimeout(timer);
      timer = setTimeout(() => { button.textContent = "Copy"; }, COPIED_MS);
    }, { signal });
    line.lastChild.append(node("div", { class: "mk-command" }, code, button));
  }
  return line;
}

function render({ model, el }) {
  const stop = new AbortController(); // every listener on an element ends with it
  const { signal } = stop;
  const { title, lines } = JSON.parse(model.get("checks"));
  const status = node("p", { class: "mk-status", role: "status" });
  const list = node("ul", { class: "mk-checks", "aria-label": visible(title) });
  const tally = STATES.map((s) => [s, lines.filter((line) => line[0] === s).length]);
  const summary = tally.filter(([, n]) => n).map(([s, n]) =>
    node("span", { class: `mk-count mk-${s}` }, n === 1 && s !== "warning" ? `1 ${SAYS[s]}` : `${n} ${COUNTED[s]}`));
  const every = press("Show all", { title: "Also show what is in order", "aria-pressed": "false" });
  const bar = node("div", { class: "mk-tools", role: "group", "aria-label": "Checklist" },
    node("strong", {}, visible(title)), ...summary, every);
  const root = node("div", { class: "mk-env" }, bar, list);

  function fill() {
    const all = every.getAttribute("aria-pressed") === "true";
    list.replaceChildren(...lines.filter((line) => all || line[0] !== "ok")
      .map((line) => lineOf(line, status, signal)));
    if (!list.childElementCount) {
      list.append(node("li", { class: "mk-check mk-ok" }, "Nothing to do: everything is in order."));
    }
  }
  every.addEventListener("click", () => {
    const all = every.getAttribute("aria-pressed") !== "true";
    every.setAttribute("aria-pressed", String(all));
    every.textContent = all ? "Show less" : "Show all";
    fill();
    status.textContent = all ? "All checks are shown." : "What is in order is hidden.";
  }, { signal });

  if (model.get("live")) {
    const name = node("input", { type: "text", value: "ascend", "aria-label": "Name of the kernel",
      spellcheck: "false", autocomplete: "off", maxlength: "64", ...KEYS_ARE_OURS });
    const kernel = press("Write a kernel with these variables",
      { title: "A Jupyter kernel with the variables of set_env.sh" });
    const script = press("Write env.sh",
      { title: "A shell script with the variables of set_env.sh" });
    const ask = (action) => {
      const { number = 0 } = model.get("request") ?? {};
      status.textContent = "Writing ...";
      model.set("request", { number: number + 1, action, name: name.value });
      model.save_changes();
    };
    kernel.addEventListener("click", () => ask("kernel"), { signal });
    script.addEventListener("click", () => ask("script"), { signal });
    root.append(node("div", { class: "mk-tools", role: "group", "aria-label": "Write files" },
      name, kernel, script));
  }
  root.append(status);

  const receive = () => {
    const text = model.get("answer");
    if (!text) return;
    const answer = JSON.parse(text);
    if (answer.number !== model.get("request").number) return;
    status.classList.toggle("mk-failed", !answer.ok);
    status.replaceChildren(...answer.text.split("\n").flatMap((part, i) =>
      i ? [node("br"), visible(part)] : [visible(part)]));
  };
  model.on("change:answer", receive);
  fill();
  el.append(root);
  root.dataset.ready = "true";
  return () => {
    stop.abort();
    model.off("change:answer", receive);
    root.remove();
  };
}

export default { render };
