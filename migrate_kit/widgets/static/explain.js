// The box to paste into and the diagnosis under it. text.js and clipboard.js stand before this file
// when Python joins them.
const LATE_MS = 4000;

const WORDS = {
  en: {
    box: "Error message or log", hint: "Paste a traceback or log here", go: "Explain",
    clear: "Clear", language: "Language", line: (n) => `line ${n}`, cause: "Cause", fix: "Fix",
    command: "Command", next_check: "Check next", source: "Source", copy: "Copy", copied: "Copied",
    select: "Press Ctrl+C", others: "Also in this text", benign: "Harmless lines",
    suspects: "Lines that look like the first error", first: "Perhaps the reason: lines not in the table",
    unknown: "No known error in this text.", working: "Reading …", paste: "Paste a message first.",
    late: "No answer yet: is the kernel busy? If it was restarted, run the cell again.",
    noKernel: "No kernel: run the cell again.",
    copiedCommand: "The command is copied.", selected: "The command is selected.",
    done: (n) => `${n === 1 ? "1 answer" : `${n} answers`}.`,
    cut: (n) => `The text is long: the first and the last ${count(n)} characters were sent. For all of it name a file: mk.explain(pathlib.Path("name.log")).`,
    roles: { cause: "cause", effect: "follows from something else", code: "error code",
      wrapper: "only says that it failed", notice: "notice" },
  },
  zh: {
    box: "错误信息或日志", hint: "把 traceback 或日志粘贴到这里", go: "解释", clear: "清空",
    language: "语言", line: (n) => `第 ${n} 行`, cause: "原因", fix: "处理", command: "命令",
    next_check: "继续检查", source: "依据", copy: "复制", copied: "已复制", select: "请按 Ctrl+C",
    others: "文本中的其他问题", benign: "无害的行", suspects: "看起来最早出错的行",
    first: "可能是真正的原因：表中没有收录的行", unknown: "文本中没有已知的错误。",
    working: "正在读取……", paste: "请先粘贴错误信息。",
    late: "还没有回应：内核是否繁忙？若已重启，请重新运行该单元。",
    noKernel: "没有内核：请重新运行该单元。", copiedCommand: "命令已复制。", selected: "命令已选中。",
    done: (n) => `共 ${n} 条解释。`,
    cut: (n) => `文本很长：只发送了开头和结尾各 ${count(n)} 个字符。要读全部，请给文件：mk.explain(pathlib.Path("name.log"))。`,
    roles: { cause: "原因", effect: "由别处引起", code: "错误码", wrapper: "只说明失败了",
      notice: "提示" },
  },
};

// A long log would close the connection to the kernel: its ends hold what matters.
function sendable(text, most) {
  if (text.length <= most) return { text, cut: 0 };
  const half = Math.floor(most / 2);
  return { text: `${text.slice(0, half)}\n${text.slice(-half)}`, cut: half };
}

function render({ model, el }) {
  const stop = new AbortController(); // every listener on an element ends with it
  const { signal } = stop;
  const timers = { late: 0, copied: 0 };
  const uid = `mk${Math.random().toString(36).slice(2)}`;
  const button = (attrs = {}) => node("button", { type: "button", ...KEYS_ARE_OURS, ...attrs });
  const label = node("label", { for: uid });
  const box = node("textarea", { id: uid, rows: "7", spellcheck: "false", autocomplete: "off",
    wrap: "off", ...KEYS_ARE_OURS });
  const go = button({ class: "mk-go" });
  const clear = button();
  const language = node("select", KEYS_ARE_OURS,
    node("option", { value: "en", lang: "en" }, "English"),
    node("option", { value: "zh", lang: "zh" }, "中文"));
  const status = node("p", { class: "mk-status", role: "status", "aria-live": "polite" });
  const result = node("div", { class: "mk-result" });
  const tools = node("div", { class: "mk-tools", role: "group" }, go, clear, language);
  const root = node("div", { class: "mk-explain" }, label, box, tools, status, result);
  let answer = null;
  let sent = 0;

  const words = () => WORDS[model.get("language")] ?? WORDS.en;
  const say = (text) => { status.textContent = text; };

  function relabel() {
    const w = words();
    root.lang = model.get("language");
    label.textContent = w.box;
    box.placeholder = w.hint;
    go.textContent = w.go;
    clear.textContent = w.clear;
    language.setAttribute("aria-label", w.language);
    tools.setAttribute("aria-label", w.box);
    language.value = WORDS[model.get("language")] ? model.get("language") : "en";
  }

  function command(text) {
    const w = words();
    const code = node("code", { dir: "ltr" }, text);
    const copy = button({ "aria-label": `${w.copy}: ${visible(text).slice(0, 120)}` });
    copy.textContent = w.copy;
    copy.addEventListener("click", async () => {
      const done = await copied(code);
      copy.textContent = done ? w.copied : w.select;
      say(done ? w.copiedCommand : w.selected);
      clearTimeout(timers.copied);
      timers.copied = setTimeout(() => { copy.textContent = w.copy; }, COPIED_MS);
    }, { signal });
    return node("span", { class: "mk-command" }, code, copy);
  }

  const lineOf = (n, text) => node("p", { class: "mk-line" },
    node("span", { class: "mk-number" }, words().line(n)),
    node("code", {}, node("bdi", {}, visible(text))));

  function body(a) {
    const w = words();
    const parts = [["cause", a.cause], ["fix", a.fix], ["command", a.command],
      ["next_check", a.next_check], ["source", a.source]];
    return node("dl", {}, ...parts.filter(([, text]) => text).flatMap(([key, text]) => [
      node("dt", {}, w[key]),
      node("dd", { class: `mk-${key}` }, key === "command" ? command(text) : visible(text))]));
  }

  const heading = (a) => node("span", { class: "mk-heading" }, visible(a.meaning),
    node("span", { class: "mk-about" },
      `${visible(a.id)} · ${words().roles[a.role] ?? visible(a.role)}`));

  function list(title, rows, make) {
    if (!rows.length) return null;
    return node("section", { "aria-label": title }, node("h4", {}, title),
      node("ul", {}, ...rows.map((row) => node("li", {}, ...make(row)))));
  }

  function show() {
    result.replaceChildren();
    if (!answer) return;
    if (answer.message) {
      result.append(node("p", { class: "mk-failed" }, visible(answer.message)));
      return;
    }
    const w = words();
    const said = answer.said[model.get("language")] ?? answer.said.en;
    const [root_, ...others] = said.answers;
    if (root_) {
      result.append(node("section", { class: `mk-root-answer mk-${root_.role}`, "aria-label": visible(root_.meaning) },
        node("h3", {}, heading(root_)), lineOf(root_.line, root_.text), body(root_)));
    } else {
      result.append(node("p", { class: "mk-unknown" }, w.unknown));
    }
    const plain = (s) => [lineOf(s.line, s.text)];
    const parts = [
      list(root_ ? w.first : w.suspects, said.suspects, plain),
      list(w.others, others, (a) => [node("details", {},
        node("summary", KEYS_ARE_OURS, heading(a)), lineOf(a.line, a.text), body(a))]),
      list(w.benign, said.benign, (a) => [lineOf(a.line, a.text),
        node("p", { class: "mk-why" }, visible(a.meaning))]),
    ];
    result.append(...parts.filter((part) => part));
    for (const note of answer.notes) result.append(node("p", { class: "mk-why" }, visible(note)));
  }

  function ask() {
    const w = words();
    if (!box.value.trim()) {
      say(w.paste);
      box.focus();
      return;
    }
    if (root.closest(".jupyter-widgets-disconnected")) {
      say(w.noKernel);
      return;
    }
    const { text, cut } = sendable(box.value, model.get("most"));
    sent = (model.get("request")?.number ?? 0) + 1;
    say(cut ? w.cut(cut) : w.working);
    result.setAttribute("aria-busy", "true");
    model.set("request", { number: sent, text });
    model.save_changes();
    clearTimeout(timers.late);
    timers.late = setTimeout(() => say(words().late), LATE_MS);
  }

  function receive() {
    const text = model.get("answer");
    if (!text) return;
    const got = JSON.parse(text);
    // An answer to an older text would contradict what stands in the box.
    if (got.number !== (model.get("request")?.number ?? 0)) return;
    clearTimeout(timers.late);
    answer = got;
    result.removeAttribute("aria-busy");
    show();
    const said = got.said?.[model.get("language")] ?? got.said?.en;
    if (sent && said) {
      const root_ = said.answers[0];
      say(root_ ? `${visible(root_.meaning)}. ${words().done(said.answers.length)}` : words().unknown);
    } else if (sent) {
      say("");
    }
  }

  go.addEventListener("click", ask, { signal });
  box.addEventListener("keydown", (e) => {
    if (e.key === "Enter" && (e.ctrlKey || e.metaKey)) {
      e.preventDefault();
      e.stopPropagation(); // JupyterLab would run the cell
      ask();
    }
  }, { signal });
  clear.addEventListener("click", () => {
    clearTimeout(timers.late);
    box.value = "";
    answer = null;
    show();
    say("");
    box.focus();
  }, { signal });
  language.addEventListener("change", () => {
    model.set("language", language.value);
    model.save_changes();
  }, { signal });
  const onLanguage = () => {
    relabel();
    show();
  };
  model.on("change:language", onLanguage);
  model.on("change:answer", receive);

  box.value = model.get("text");
  relabel();
  el.append(root);
  receive();
  root.dataset.ready = "true";
  return () => {
    stop.abort();
    clearTimeout(timers.late);
    clearTimeout(timers.copied);
    model.off("change:language", onLanguage);
    model.off("change:answer", receive);
    root.remove();
  };
}

export default { render };
