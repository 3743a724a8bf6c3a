"use strict";
(() => {
  // Whatever an environment or a model wrote reaches the page through textContent only.
  const PAGE_ROWS = 200;
  const KEYWORDS = new Set(("and as assert async await break class continue def del elif else except False finally for from global if import in is lambda None nonlocal not or pass raise return True try while with yield self").split(" "));
  const TOKEN = /("""[\s\S]*?"""|'''[\s\S]*?'''|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')|(#[^\n]*)|\b(\d[\d_.]*(?:e[+-]?\d+)?)\b|([A-Za-z_]\w*)/g;
  const REGIME_NAMES = { misleading: "misleading hint", password: "password only" };

  const $ = (id) => document.getElementById(id);
  const make = (tag, className, text) => {
    const element = document.createElement(tag);
    if (className) element.className = className;
    if (text !== undefined && text !== null) element.textContent = text;
    return element;
  };
  const put = (parent, ...children) => {
    parent.append(...children.filter(Boolean));
    return parent;
  };
  const show = (value, digits = 2) => (value === null || value === undefined ? "–" : value.toFixed(digits).replace("-", "\u2212"));

  const index = JSON.parse($("index").textContent);
  const environments = index.rows.map((row) =>
    Object.fromEntries(index.columns.map((name, i) => [name, row[i]])));
  const byId = new Map(environments.map((e) => [e.id, e]));
  const blockTexts = [...document.querySelectorAll("script.block")].map((s) => JSON.parse(s.textContent));
  const blocks = new Map();

  async function details(environment) {
    if (environment.block < 0) return null;
    if (!blocks.has(environment.block)) {
      const bytes = Uint8Array.from(atob(blockTexts[environment.block]), (c) => c.charCodeAt(0));
      const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
      blocks.set(environment.block, await new Response(stream).json());
    }
    return blocks.get(environment.block)[environment.at];
  }

  // ---- the list

  const state = (e) => (e.reason && e.reason !== "OK" ? e.reason : REGIME_NAMES[e.regime] || e.regime || "not measured");
  const COLUMNS = [
    { name: "step", key: "step", numeric: true, text: (e) => (e.step === null ? "–" : e.step) },
    { name: "family", key: "family", text: (e) => e.family || e.skill || e.kind || "–" },
    { name: "state", key: "state", className: "state", text: state },
    { name: "return", key: "win", numeric: true, text: (e) => show(e.win) },
    { name: "regret", key: "regret", numeric: true, text: (e) => show(e.regret) },
  ];
  const FILTERS = [
    { name: "any outcome", key: "reason", label: (v) => (v === "OK" ? "passed the gates" : "refused: " + v) },
    { name: "any regime", key: "regime", label: (v) => REGIME_NAMES[v] || v },
    { name: "any family", key: "family" },
    { name: "any skill", key: "skill" },
    { name: "any kind", key: "kind" },
    { name: "any method", key: "method", label: (v) => v.replaceAll("_", " ") },
  ];
  let sort = { key: "step", down: true };
  let limit = PAGE_ROWS;
  let picked = null;

  for (const filter of FILTERS) {
    const counts = new Map();
    for (const e of environments) if (e[filter.key]) counts.set(e[filter.key], (counts.get(e[filter.key]) || 0) + 1);
    if (counts.size < 2) continue;
    filter.select = make("select");
    filter.select.id = "f-" + filter.key;
    filter.select.setAttribute("aria-label", filter.name);
    filter.select.append(new Option(filter.name, ""));
    for (const [value, n] of [...counts].sort((a, b) => b[1] - a[1])) {
      filter.select.append(new Option((filter.label ? filter.label(value) : value) + " (" + n + ")", value));
    }
    filter.select.addEventListener("change", () => { limit = PAGE_ROWS; list(); });
    $("f-selects").append(filter.select);
  }
  for (const column of COLUMNS) {
    const head = make("th", (column.numeric && column.key !== "step" ? "n " : "") + (column.className || ""), column.name);
    head.addEventListener("click", () => {
      sort = { key: column.key, down: sort.key === column.key ? !sort.down : Boolean(column.numeric) };
      list();
    });
    column.head = head;
    $("row-head").append(head);
  }
  $("f-text").addEventListener("input", () => { limit = PAGE_ROWS; list(); });
  $("more").addEventListener("click", () => { limit += PAGE_ROWS; list(); });

  function matching() {
    const words = $("f-text").value.toLowerCase().split(/\s+/).filter(Boolean);
    const found = environments.filter((e) => {
      if (FILTERS.some((f) => f.select && f.select.value && e[f.key] !== f.select.value)) return false;
      const text = [e.id, e.family, e.skill, e.kind, e.method, state(e)].join(" ").toLowerCase();
      return words.every((word) => text.includes(word));
    });
    const value = (e) => (sort.key === "state" ? state(e) : e[sort.key]);
    return found.sort((a, b) => {
      const x = value(a), y = value(b);
      if (x === y) return 0;
      if (x === null || x === "") return 1;
      if (y === null || y === "") return -1;
      return (x < y ? -1 : 1) * (sort.down ? -1 : 1);
    });
  }

  function list() {
    const found = matching();
    const refused = found.filter((e) => e.reason && e.reason !== "OK").length;
    $("f-count").textContent = found.length + " of " + environments.length + (refused ? ", " + refused + " refused" : "");
    for (const column of COLUMNS) {
      column.head.textContent = column.name + (sort.key === column.key ? (sort.down ? " ↓" : " ↑") : "");
    }
    $("row-body").replaceChildren(...found.slice(0, limit).map((e) => {
      const row = make("tr", e.reason && e.reason !== "OK" ? "refused" : "");
      row.dataset.env = e.id;
      row.tabIndex = 0;
      for (const column of COLUMNS) {
        const cell = make("td", column.key === "state" ? "state" : column.numeric && column.key !== "step" ? "n" : "", column.text(e));
        if (column.key === "state" && e.regime) {
          cell.classList.add("c-" + e.regime);
          cell.prepend(make("span", "swatch"));
        }
        cell.title = cell.textContent;
        row.append(cell);
      }
      row.classList.toggle("picked", e === picked);
      row.addEventListener("click", () => open(e));
      row.addEventListener("keydown", (event) => {
        if (event.key === "Enter") open(e);
        const next = event.key === "ArrowDown" ? row.nextSibling : event.key === "ArrowUp" ? row.previousSibling : null;
        if (next) { event.preventDefault(); next.focus(); next.click(); }
      });
      return row;
    }));
    $("more").hidden = found.length <= limit;
  }

  // ---- one environment

  function highlighted(source) {
    const pre = make("pre");
    let end = 0;
    for (const match of source.matchAll(TOKEN)) {
      pre.append(source.slice(end, match.index));
      end = match.index + match[0].length;
      const className = match[1] ? "s" : match[2] ? "m" : match[3] ? "d" : KEYWORDS.has(match[0]) ? "k" : "";
      pre.append(className ? make("span", className, match[0]) : match[0]);
    }
    pre.append(source.slice(end));
    return pre;
  }

  const wrapped = (text) => make("pre", "wrap", text);

  function arm(name, color, episode) {
    const column = make("div", "arm c-" + color);
    column.append(make("h4", "", name));
    if (!episode) return put(column, make("p", "nothing", "No play of this arm on this seed."));
    episode.turns.forEach(([observation, action, reward]) => {
      if (observation) column.append(make("p", "turn", observation));
      column.append(make("p", "turn act", action || "(empty action)"));
      if (reward) column.append(make("p", "reward", "reward " + show(reward)));
    });
    if (episode.leftOut) column.append(make("p", "nothing", episode.leftOut + " more turns are in trajectories/."));
    const how = episode.lost ? "lost" + (episode.fault ? " (" + episode.fault + ")" : "") + ": scores nobody" : episode.terminated ? "ended by itself" : episode.truncated ? "cut off by a limit" : "not finished";
    column.append(make("p", "end", how + (episode.return === null ? "" : ", return " + show(episode.return))));
    return column;
  }

  function plays(info) {
    const box = make("div");
    if (!info.pairs.length) return put(box, make("p", "nothing", "No play of it was recorded."));
    const choice = make("select");
    choice.setAttribute("aria-label", "Which play");
    info.pairs.forEach((pair, i) => choice.append(new Option("step " + pair.step + ", seed " + pair.seed, i)));
    const arms = make("div", "arms");
    const draw = () => {
      const pair = info.pairs[Number(choice.value)];
      arms.replaceChildren(arm("without the hint", "plain", pair.plain), arm("with the hint", "hinted", pair.hinted));
    };
    choice.addEventListener("change", draw);
    draw();
    const line = make("p");
    if (info.pairs.length > 1) put(line, choice);
    else line.append(make("span", "dim", choice.options[0].text + ", the same in both arms"));
    return put(box, info.hint && make("p", "hint-box", info.hint), line, arms);
  }

  function historyTable(info) {
    if (!info.history.length) return make("p", "nothing", "It was never measured.");
    const table = make("table");
    const head = make("tr");
    ["step", "without hint", "with hint", "regret", "± standard error", "pairs", "regime"].forEach((name, i) => head.append(make("th", i < 6 ? "n" : "", name)));
    table.append(put(make("thead"), head));
    const body = make("tbody");
    for (const [step, plain, hinted, regret, se, regime, pairs] of info.history) {
      const row = make("tr");
      [step, show(plain), show(hinted), show(regret), show(se), pairs === null ? "–" : pairs].forEach((text) => row.append(make("td", "n", text)));
      const cell = make("td", "c-" + regime, REGIME_NAMES[regime] || regime);
      cell.prepend(make("span", "swatch"));
      body.append(put(row, cell));
    }
    return put(make("div", "scroll"), put(table, body));
  }

  function design(info) {
    const box = make("div");
    for (const [role, content] of info.prompt) put(box, make("h4", "", "prompt, " + role), wrapped(content));
    put(box, make("h4", "", "completion"), info.completion ? wrapped(info.completion) : make("p", "nothing", "Not recorded."));
    return box;
  }

  function gates(e, info) {
    const box = make("div");
    put(box, make("h4", "", e.reason === "OK" ? "passed every gate" : "refused: " + (e.reason || "reason not recorded")));
    if (info.gateDetail) box.append(wrapped(info.gateDetail));
    if (info.gateCost) put(box, make("h4", "", "seconds each gate took"), wrapped(info.gateCost));
    return box;
  }

  async function open(e) {
    picked = e;
    for (const row of $("row-body").children) row.classList.toggle("picked", row.dataset.env === e.id);
    for (const track of document.querySelectorAll(".track")) track.classList.toggle("picked", track.dataset.env === e.id);
    let info;
    try {
      info = await details(e);
    } catch (error) {
      info = undefined;
    }
    if (picked !== e) return;
    const detail = $("detail");
    detail.replaceChildren(make("h3", "", [e.family || e.kind || "environment", state(e)].join(", ")));
    const sub = make("p", "sub", [e.skill, (e.method || "").replaceAll("_", " "), e.step === null ? "" : "written at step " + e.step, e.reward === null ? "" : "designer reward " + show(e.reward)].filter(Boolean).join(" · "));
    put(sub, make("br"), make("code", "", e.id));
    detail.append(sub);
    if (!info) {
      detail.append(make("p", "nothing", info === null ? "Its details did not fit into this file; see archive.sqlite." : "This browser cannot unpack the details; a browser of 2023 or newer can."));
      return;
    }
    const tabs = [
      ["Plays", () => plays(info)],
      ["Measured", () => historyTable(info)],
      ["Source", () => (info.source ? highlighted(info.source) : make("p", "nothing", "No source: the draft could not be parsed."))],
      info.spec && ["Spec", () => highlighted(info.spec)],
      ["Hint", () => (info.hint ? make("p", "hint-box", info.hint) : make("p", "nothing", "No hint."))],
      ["Prompt and completion", () => design(info)],
      ["Gates", () => gates(e, info)],
    ].filter(Boolean);
    const bar = make("div", "tabs");
    bar.setAttribute("role", "tablist");
    const panel = make("div", "panel");
    const pick = (button, draw) => {
      for (const other of bar.children) other.setAttribute("aria-selected", String(other === button));
      panel.replaceChildren(draw());
    };
    for (const [name, draw] of tabs) {
      const button = make("button", "", name);
      button.setAttribute("role", "tab");
      button.addEventListener("click", () => pick(button, draw));
      bar.append(button);
    }
    put(detail, bar, panel);
    const first = info.pairs.length ? 0 : tabs.findIndex(([name]) => name === (e.reason === "OK" ? "Source" : "Gates"));
    pick(bar.children[first], tabs[first][1]);
  }

  for (const track of document.querySelectorAll(".track")) {
    track.addEventListener("click", () => {
      const environment = byId.get(track.dataset.env);
      if (!environment) return;
      open(environment);
      $("environments").scrollIntoView();
    });
  }
  list();
  const played = matching().find((e) => e.win !== null && e.block >= 0);
  if (played) open(played);
})();
