// Curves of the chosen runs with bands over seeds, and the statistics of `counterpoint compare`.

import { Latest, Refused, address } from "./api.js";
import { element, get, number, options, table, whole } from "./dom.js";
import { CONFIG, faint, keys, layout, literal, plotly, save, seen } from "./plot.js";

export class Charts {
  // changed(): called when the user asks for another metric, axis or grouping.
  constructor(changed) {
    this.offers = new Latest();
    this.curves = new Latest();
    this.judgements = new Latest();
    this.charts = []; // the elements of the panels, in their order
    this.families = [];
    for (const id of ["metric", "x", "by", "smooth", "seeds", "log"]) get(id).addEventListener("change", () => changed());
    get("png").addEventListener("click", () => this.export("png"));
    get("svg").addEventListener("click", () => this.export("svg"));
  }

  // The fields of a request for these runs.
  wish(runs) {
    const smooth = Math.min(Math.max(Math.floor(Number(get("smooth").value)) || 1, 1), 1000);
    return {
      run: runs.map((run) => run.id), metric: get("metric").value.split(",").filter(Boolean),
      x: get("x").value, by: get("by").value, smooth, seeds: get("seeds").checked ? 1 : 0,
    };
  }

  // Offers the metrics and groupings of these runs; `wanted` is the metric that an address asks for.
  async offer(runs, wanted) {
    const found = await this.offers.get("/api/metrics", { run: runs.map((run) => run.id) });
    if (!found) return;
    const select = get("metric"), chosen = wanted ?? select.value;
    const groups = found.families.map(({ family, metrics }) => {
      const all = metrics.length > 1 && metrics.length <= 24 && / of (teams|agents)$/.test(family);
      const pairs = metrics.map(({ id, label }) => [id, label]);
      if (all) pairs.push([metrics.map(({ id }) => id).join(","), `each of the ${metrics.length}`]);
      return element("optgroup", { label: family }, ...pairs.map(([value, text]) => element("option", { value, textContent: text })));
    });
    const shape = JSON.stringify(found.families);
    if (shape !== this.shape) {
      this.shape = shape;
      select.replaceChildren(element("option", { value: "", textContent: "return of the team" }), ...groups);
      select.value = [...select.options].some((option) => option.value === chosen) ? chosen : "";
    }
    const names = [...new Set(runs.flatMap((run) => Object.keys(run.differs)))];
    options(get("by"), [["", "what differs"], ["run", "run"], ["algorithm", "algorithm"], ...names.filter((name) => name !== "seed").map((name) => [name, name])]);
  }

  async draw(runs) {
    const wish = this.wish(runs);
    get("csv").href = address("/api/curves.csv", wish);
    get("view-curves").setAttribute("aria-busy", "true");
    try {
      const [Plotly, found] = await Promise.all([plotly(), this.curves.get("/api/curves", wish)]);
      if (!found) return;
      this.#notes(found.notes);
      this.panels = found.panels;
      await this.#panels(Plotly, found.panels);
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      this.#notes([error.message]);
      await this.#panels(globalThis.Plotly, []);
    } finally {
      get("view-curves").setAttribute("aria-busy", "false");
    }
  }

  #notes(notes) {
    get("curve-notes").replaceChildren(...notes.map((note) => element("p", { className: "note" }, note)));
  }

  async #panels(Plotly, panels) {
    const place = get("curves");
    while (this.charts.length > panels.length) {
      const chart = this.charts.pop();
      Plotly.purge(chart);
      chart.remove();
    }
    while (this.charts.length < panels.length) {
      const chart = element("div", { className: "chart", tabIndex: 0, role: "img" });
      keys(chart);
      place.append(chart);
      this.charts.push(chart);
    }
    const legend = new Set(panels.flatMap((panel) => panel.groups.map((group) => group.label))).size;
    await Promise.all(panels.map((panel, k) => this.#panel(Plotly, this.charts[k], panel, legend)));
  }

  async #panel(Plotly, chart, panel, labels) {
    const log = get("log").checked;
    const traces = panel.groups.flatMap((group) => traces_of(group));
    const key = `${panel.title}/${panel.metric}/${panel.x}/${log}`; // zoom is kept as long as the axes mean the same
    const rows = Math.ceil(labels / 3);
    const shape = layout({
      title: { text: literal(`${panel.title}`, 70), font: { size: 14 }, x: 0, xref: "paper", xanchor: "left", y: 0.98, yanchor: "top" },
      hovermode: "x unified", showlegend: labels > 1, uirevision: key, height: 320 + 18 * Math.min(rows, 8),
      xaxis: { title: { text: literal(panel.x), font: { size: 12 } }, rangemode: "tozero" },
      yaxis: { title: { text: panel.y.map((line) => literal(line)).join("<br>"), font: { size: 12 } }, type: log ? "log" : "linear", ...(panel.share && !log ? { range: [-0.03, 1.03] } : {}) },
    });
    shape.xaxis.uirevision = shape.yaxis.uirevision = key;
    chart.setAttribute("aria-label", spoken(panel));
    await Plotly.react(chart, traces, shape, CONFIG);
  }

  // Shows the tables of `counterpoint compare`.
  async judge(runs) {
    const place = get("statistics");
    place.setAttribute("aria-busy", "true");
    try {
      const found = await this.judgements.get("/api/statistics", this.wish(runs));
      if (!found) return;
      place.replaceChildren(
        ...found.tables.flatMap(({ title, header, rows }) => [element("h2", {}, title), element("div", { className: "scroll-x" }, table(header, rows))]),
        ...found.notes.map((note) => element("p", { className: "note" }, note)),
      );
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      place.replaceChildren(element("p", { className: "note" }, error.message));
    } finally {
      place.setAttribute("aria-busy", "false");
    }
  }

  async export(format) {
    for (const [k, chart] of this.charts.entries()) await save(chart, format, `${this.panels[k].title}-${this.panels[k].metric}`);
  }
}

// The band, the seeds and the mean of a group.
function traces_of(group) {
  const { x, mean, low, high, label, dash, seeds } = group, name = literal(label), colour = seen(group.colour);
  const shared = { type: "scatter", mode: "lines", legendgroup: label, hoverinfo: "skip", showlegend: false };
  const traces = [];
  if (seeds > 1 && x.length) {
    traces.push({ ...shared, x, y: low, line: { width: 0 }, name: `${name} low` });
    traces.push({ ...shared, x, y: high, line: { width: 0 }, fill: "tonexty", fillcolor: faint(colour, 0.2), name: `${name} high` });
  }
  for (const [k, [along, values]] of group.lines.entries()) {
    traces.push({ ...shared, x: along, y: values, line: { width: 1, color: faint(colour, x.length ? 0.45 : 1), dash }, name, ...(x.length ? {} : { showlegend: k === 0, hoverinfo: "all" }) });
  }
  if (x.length) {
    const words = seeds > 1 ? `%{y:.4g}<extra>%{fullData.name}, mean of ${seeds} seeds</extra>` : "%{y:.4g}<extra>%{fullData.name}</extra>";
    traces.push({
      type: "scatter", mode: x.length > 1 ? "lines" : "markers", x, y: mean, name, legendgroup: label,
      line: { color: colour, width: 2, dash }, marker: { color: colour, size: 7 }, hovertemplate: words,
    });
  }
  return traces;
}

// What a chart shows, in words.
function spoken(panel) {
  const parts = panel.groups.map(({ label, x, mean, seeds, band }) => {
    if (!x.length) return `${label}: seeds without a common part`;
    const spread = seeds > 1 ? `, mean of ${seeds} seeds with the ${band}` : "";
    return `${label}: from ${number(mean[0])} to ${number(mean[mean.length - 1])} at ${whole(x[x.length - 1])}${spread}`;
  });
  return `${panel.y.join(" ")} over ${panel.x} in ${panel.title}. ${parts.join(". ")}.`;
}
