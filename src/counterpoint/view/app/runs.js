// The list of runs: search, filters, order, and which runs are chosen.

import { ago, element, get, number, options, say, speed, whole } from "./dom.js";
import { STATES, search, sorted } from "./filter.js";

const COLUMNS = [
  ["name", "Run"], ["state", "State"], ["progress", "Progress"], ["return", "Return"], ["success", "Success"], ["speed", "Steps/s"],
  ["differs", "Differs in"], ["env", "Environment"], ["algorithm", "Algorithm"], ["written", "Written"],
];
const FALLING = new Set(["started", "progress", "return", "success", "speed", "written"]); // the largest first
const MOST_DIFFERENCES = 4;

export class RunList {
  // changed(): called when other runs are chosen or another one is open.
  constructor(changed) {
    this.changed = changed;
    this.runs = new Map();
    this.rows = new Map();
    this.chosen = new Set();
    this.current = null;
    this.key = "started";
    this.descending = true;
    this.#build();
  }

  #build() {
    get("heads").append(element("th", { scope: "col" }, element("span", { className: "hidden" }, "Choose")));
    for (const [key, text] of COLUMNS) {
      const button = element("button", { type: "button", onclick: () => this.sort(key, this.key === key ? !this.descending : FALLING.has(key)) }, text);
      get("heads").append(element("th", { scope: "col", "data-key": key }, button));
    }
    for (const id of ["search", "state", "env", "algorithm"]) get(id).addEventListener("input", () => this.show());
    options(get("sort"), [["started", "newest first"], ...COLUMNS.map(([key, text]) => [key, text.toLowerCase()])], "started");
    get("sort").addEventListener("input", (event) => this.sort(event.target.value, FALLING.has(event.target.value)));
    get("choose-shown").addEventListener("click", () => {
      for (const run of this.shown) if (run.state !== "unreadable") this.chosen.add(run.id);
      this.current ??= this.first();
      this.#marks();
      this.changed();
    });
    get("choose-none").addEventListener("click", () => {
      this.chosen.clear();
      this.current = null;
      this.#marks();
      this.changed();
    });
    document.addEventListener("keydown", (event) => {
      const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target?.tagName ?? "");
      if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
        event.preventDefault();
        get("search").focus();
      }
    });
    setInterval(() => this.#ages(), 1000);
  }

  // Takes what changed; returns sentences about runs that began, ended or got into trouble.
  take({ runs, gone }, quiet) {
    const news = [];
    for (const run of runs) {
      const old = this.runs.get(run.id);
      if (!quiet && !old) news.push(`${run.name} is new.`);
      if (old && old.state !== run.state) news.push(`${run.name} is ${run.state}.`);
      for (const word of run.trouble) if (old && !old.trouble.includes(word)) news.push(`${run.name} is ${word}.`);
      this.runs.set(run.id, run);
      this.#fill(run);
    }
    for (const id of gone) {
      this.runs.delete(id);
      this.rows.get(id)?.row.remove();
      this.rows.delete(id);
      this.chosen.delete(id);
      if (this.current === id) this.current = this.first();
    }
    if (runs.length || gone.length) {
      this.#choices();
      this.show();
    }
    return news;
  }

  first() {
    return [...this.chosen][0] ?? null;
  }

  choose(id, on) {
    if (on) this.chosen.add(id);
    else this.chosen.delete(id);
    if (on) this.current ??= id;
    else if (this.current === id) this.current = this.first();
    this.#marks();
    this.changed();
  }

  open(id) {
    this.chosen.add(id);
    this.current = id;
    this.#marks();
    this.changed();
  }

  sort(key, descending) {
    [this.key, this.descending] = [key, descending];
    get("sort").value = key;
    this.show();
  }

  #choices() {
    const runs = [...this.runs.values()];
    const counted = (name, every) => {
      const counts = new Map();
      for (const run of runs) counts.set(run[name], (counts.get(run[name]) ?? 0) + 1);
      const values = name === "state" ? STATES.filter((state) => counts.has(state)) : [...counts.keys()].filter(Boolean).sort();
      return [["", every], ...values.map((value) => [`=${value}`, `${value} (${counts.get(value)})`])];
    };
    const troubled = runs.filter((run) => run.trouble.length).length;
    options(get("state"), [...counted("state", "all"), ...(troubled ? [["trouble", `in trouble (${troubled})`]] : [])]);
    options(get("env"), counted("env", "all"));
    options(get("algorithm"), counted("algorithm", "all"));
  }

  // Shows the runs that meet search and filters, in order.
  show() {
    const found = search(get("search").value);
    const wanted = (run, id) => {
      const value = get(id).value;
      return value === "" || (value === "trouble" ? run.trouble.length > 0 : run[id] === value.slice(1));
    };
    const met = [...this.runs.values()].filter((run) => found(run) && ["state", "env", "algorithm"].every((id) => wanted(run, id)));
    this.shown = sorted(met, this.key, this.descending);
    const body = get("rows"), rows = this.shown.map((run) => this.rows.get(run.id).row);
    if (rows.length !== body.children.length || rows.some((row, k) => body.children[k] !== row)) {
      const focused = document.activeElement;
      body.replaceChildren(...rows);
      if (focused && focused !== document.activeElement && body.contains(focused)) focused.focus({ preventScroll: true });
    }
    for (const head of get("heads").children) {
      if (!head.dataset.key) continue;
      const own = head.dataset.key === this.key;
      head.setAttribute("aria-sort", own ? (this.descending ? "descending" : "ascending") : "none");
    }
    this.#count();
    const empty = get("empty");
    empty.hidden = rows.length > 0;
    say(empty, this.runs.size ? "No run meets the search and the filters." : "There are no runs in this folder yet. Start one with: counterpoint train");
  }

  #count() {
    const shown = this.shown.length, all = this.runs.size;
    const some = shown === all ? `${whole(all)} run${all === 1 ? "" : "s"}` : `${whole(shown)} of ${whole(all)} runs`;
    say(get("count"), `${some}, ${this.chosen.size} chosen`);
  }

  #marks() {
    for (const [id, { row, box, open }] of this.rows) {
      box.checked = this.chosen.has(id);
      row.classList.toggle("chosen", this.chosen.has(id));
      row.classList.toggle("current", this.current === id);
      if (this.current === id) open.setAttribute("aria-current", "true");
      else open.removeAttribute("aria-current");
    }
    this.#count();
  }

  // Makes or renews the row of a run.
  #fill(run) {
    const parts = this.rows.get(run.id) ?? this.#row(run);
    const unreadable = run.state === "unreadable";
    parts.box.disabled = parts.open.disabled = unreadable;
    say(parts.open, run.name);
    parts.marks.replaceChildren(...run.trouble.map((word) => element("span", { className: "badge trouble", title: run.problem || word }, word)));
    say(parts.state, run.state);
    parts.state.className = `badge ${run.state}`;
    parts.state.title = run.owner;
    parts.bar.max = Math.max(run.planned, 1);
    parts.bar.value = Math.min(run.episodes, Math.max(run.planned, 1));
    parts.bar.hidden = unreadable;
    say(parts.progress, unreadable ? "" : run.episodes >= run.planned ? whole(run.episodes) : `${whole(run.episodes)} of ${whole(run.planned)}`);
    const teams = Object.entries(run.returns);
    const returns = teams.map(([team, value]) => (teams.length > 1 ? `${team} ${number(value)}` : number(value))).join(", ");
    say(parts.cells.return, teams.length ? returns + (run.greedy ? "" : " (training)") : "–");
    say(parts.cells.success, run.success === null ? "–" : `${(100 * run.success).toFixed(0)} %`);
    say(parts.cells.speed, speed(run.speed));
    say(parts.cells.env, run.env);
    say(parts.cells.algorithm, run.algorithm + (run.seeds > 1 ? `, ${run.seeds} seeds` : ""));
    const late = ([name]) => Number(/^(num_)?seeds?$/.test(name)); // what differs between most runs comes last
    const different = Object.entries(run.differs).sort((a, b) => late(a) - late(b)).map(([name, value]) => `${name}=${value}`);
    const more = different.length > MOST_DIFFERENCES ? ` and ${different.length - MOST_DIFFERENCES} more` : "";
    say(parts.cells.differs, different.slice(0, MOST_DIFFERENCES).join(" ") + more);
    parts.cells.differs.title = different.join("\n");
    parts.cells.written.dataset.at = String(run.written);
    say(parts.cells.written, ago(Date.now() / 1000 - run.written));
  }

  #row(run) {
    const box = element("input", { type: "checkbox", "aria-label": `Choose ${run.name}`, onchange: () => this.choose(run.id, box.checked) });
    const open = element("button", { type: "button", className: "name", onclick: () => this.open(run.id) });
    const marks = element("span", { className: "marks" }), state = element("span", {});
    const bar = element("progress", { "aria-hidden": "true" }), progress = element("span", {});
    const cells = {};
    for (const [key, text] of COLUMNS) cells[key] = element(key === "name" ? "th" : "td", { "data-label": text, className: `cell-${key}` });
    cells.name.scope = "row";
    cells.name.append(open, marks);
    cells.state.append(state);
    cells.progress.append(bar, progress);
    const row = element("tr", {}, element("td", { className: "cell-choose" }, box), ...COLUMNS.map(([key]) => cells[key]));
    row.dataset.id = run.id;
    const parts = { row, box, open, marks, state, bar, progress, cells };
    box.checked = this.chosen.has(run.id);
    this.rows.set(run.id, parts);
    return parts;
  }

  #ages() {
    const now = Date.now() / 1000;
    for (const { cells } of this.rows.values()) if (cells.written.dataset.at) say(cells.written, ago(now - Number(cells.written.dataset.at)));
  }
}
