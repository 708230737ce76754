// The page: asks the server again and again (EVERY) what has changed, and shows what the user looks at.

import { About } from "./about.js";
import { Refused, fetched } from "./api.js";
import { Charts } from "./charts.js";
import { get, options, say } from "./dom.js";
import { Learners } from "./learners.js";
import { Player } from "./player.js";
import { RunList } from "./runs.js";
import { Theme } from "./theme.js";

const EVERY = 800; // milliseconds between looks at the runs
const TABS = ["curves", "statistics", "stage", "learners", "about"];

class App {
  constructor() {
    this.revision = -1;
    this.tab = "curves";
    this.asked = from_address();
    this.theme = new Theme(() => this.recolour());
    this.player = new Player(this.theme);
    this.charts = new Charts(() => this.show());
    this.learners = new Learners();
    this.about = new About();
    this.list = new RunList(() => this.show());
    for (const tab of TABS) get(`tab-${tab}`).addEventListener("click", () => this.open(tab));
    get("tabs").addEventListener("keydown", (event) => this.#arrow(event));
    get("current").addEventListener("change", (event) => this.list.open(event.target.value));
    document.addEventListener("visibilitychange", () => document.hidden || this.look());
    this.open(TABS.includes(this.asked.tab) ? this.asked.tab : "curves");
    this.look();
  }

  // --- What has changed.

  async look() {
    clearTimeout(this.timer);
    try {
      const found = await fetched("/api/runs", { since: this.revision });
      const first = this.revision < 0;
      this.revision = found.revision;
      say(get("folder"), found.folder);
      const news = this.list.take(found, first);
      if (news.length) get("news").textContent = news.slice(0, 5).join(" ");
      if (first) this.#begin();
      else if (found.gone.length || found.runs.some((run) => this.list.chosen.has(run.id))) this.show();
      const running = [...this.list.runs.values()].filter((run) => run.state === "running").length;
      this.#live("on", running ? `Live: ${running} run${running === 1 ? "" : "s"} training` : "Live: no run is training");
    } catch (error) {
      this.#live("off", error instanceof Refused ? error.message : "The server does not answer: start counterpoint view again and open its new link.");
    }
    this.timer = setTimeout(() => this.look(), EVERY);
  }

  #live(state, text) {
    get("live").dataset.state = state;
    say(get("live"), text);
  }

  // Chooses the runs that the address names, or the newest one.
  #begin() {
    const readable = [...this.list.runs.values()].filter((run) => run.state !== "unreadable").sort((a, b) => b.started - a.started);
    const named = this.asked.run.filter((id) => this.list.runs.has(id));
    for (const id of named.length ? named : readable.slice(0, 1).map((run) => run.id)) this.list.choose(id, true);
  }

  // --- What is shown.

  get chosen() {
    return [...this.list.chosen].map((id) => this.list.runs.get(id)).filter(Boolean);
  }

  open(tab) {
    this.tab = tab;
    for (const name of TABS) {
      const own = name === tab;
      get(`tab-${name}`).setAttribute("aria-selected", String(own));
      get(`tab-${name}`).tabIndex = own ? 0 : -1;
    }
    this.show();
  }

  #arrow(event) {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key], tabs = TABS.filter((tab) => !get(`tab-${tab}`).hidden);
    const at = tabs.indexOf(this.tab);
    const next = event.key === "Home" ? 0 : event.key === "End" ? tabs.length - 1 : step ? (at + step + tabs.length) % tabs.length : -1;
    if (next < 0) return;
    event.preventDefault();
    this.open(tabs[next]);
    get(`tab-${tabs[next]}`).focus();
  }

  // Shows the chosen runs in the open tab; of several calls at once, the last one counts.
  async show() {
    const runs = this.chosen, many = this.tab === "curves" || this.tab === "statistics";
    const learners = runs.some((run) => run.distributed);
    const fitting = this.tab === "learners" ? runs.filter((run) => run.distributed) : runs;
    const current = fitting.find((run) => run.id === this.list.current) ?? fitting[0] ?? null;
    get("tab-learners").hidden = !learners;
    if (this.tab === "learners" && !learners && runs.length) return this.open("curves");
    get("nothing").hidden = runs.length > 0;
    get("chart-bar").hidden = !many || !runs.length;
    get("run-bar").hidden = many || !runs.length;
    for (const part of document.querySelectorAll(".curves-only")) part.hidden = this.tab !== "curves";
    for (const tab of TABS) get(`view-${tab}`).hidden = tab !== this.tab || !runs.length;
    options(get("current"), fitting.map((run) => [run.id, run.name]), current?.id ?? "");
    this.#address();
    if (!runs.length || !current) return;
    try {
      if (many) {
        await this.charts.offer(runs, this.asked.metric);
        this.asked.metric = undefined;
        await (this.tab === "curves" ? this.charts.draw(runs) : this.charts.judge(runs));
      } else if (this.tab === "stage") await this.player.show(current, runs.filter((run) => run !== current && run.env === current.env && run.policy));
      else if (this.tab === "learners") await this.learners.show(current);
      else await this.about.show(current);
    } catch (error) {
      if (error instanceof Refused) this.#live("on", error.message);
      else if (error instanceof TypeError && /fetch/i.test(error.message)) this.#live("off", "The server does not answer: start counterpoint view again and open its new link.");
      else throw error;
    }
  }

  recolour() {
    this.player.tone();
    this.show();
  }

  // Keeps in the address what is shown, and takes the token out of it.
  #address() {
    const fields = new URLSearchParams();
    if (this.revision >= 0) {
      if (this.list.chosen.size) fields.set("run", [...this.list.chosen].join(","));
      fields.set("tab", this.tab);
      if (get("metric").value) fields.set("metric", get("metric").value);
    } else fields.set("run", this.asked.run.join(","));
    history.replaceState(null, "", `${location.pathname}#${fields}`);
  }
}

function from_address() {
  const fields = new URLSearchParams(location.hash.slice(1));
  return { run: (fields.get("run") ?? "").split(",").filter(Boolean), tab: fields.get("tab") ?? "", metric: fields.get("metric") ?? undefined };
}

globalThis.app = new App();
