// The learners of a distributed run: their tasks over time, who is late, who is dead.

import { Latest, Refused } from "./api.js";
import { element, get, table } from "./dom.js";
import { CONFIG, faint, keys, layout, plotly } from "./plot.js";

const WORDS = {
  used: "its result was used", unused: "finished too late to be needed", stopped: "late, and therefore stopped", lost: "the learner died or hung",
};

export class Learners {
  constructor() {
    this.latest = new Latest();
    this.chart = null;
  }

  async show(run) {
    const place = get("learners");
    try {
      const [Plotly, found] = await Promise.all([plotly(), this.latest.get("/api/learners", { run: run.id })]);
      if (!found) return;
      if (!this.chart) {
        this.chart = element("div", { className: "chart", tabIndex: 0, role: "img" });
        keys(this.chart);
      }
      const rows = found.learners.map(summary);
      const shown = found.begins.map(([update]) => update), span = `${shown[0]} to ${shown[shown.length - 1]}`;
      place.replaceChildren(
        element("h2", {}, `Updates ${span}: computing (solid), waiting and transfer (faint)`),
        this.chart,
        element("h2", {}, "All recorded updates"),
        element("div", { className: "scroll-x" }, table(["learner", "tasks", "used", "unused", "stopped", "lost", "remark"], rows)),
        element("p", { className: "help" }, `Used: ${WORDS.used}. Unused: ${WORDS.unused}. Stopped: ${WORDS.stopped}. Lost: the learner died or hung.`),
      );
      for (const row of place.querySelectorAll("tbody tr")) row.classList.toggle("trouble", /dead|late/.test(row.lastElementChild.textContent));
      const dead = rows.filter((row) => /dead/.test(row[6])).length, late = rows.filter((row) => /late/.test(row[6])).length;
      this.chart.setAttribute("aria-label", `Tasks of ${rows.length} learners in updates ${span}; ${late} are often late, ${dead} were lost. The table below has the numbers.`);
      await Plotly.react(this.chart, traces_of(found), layout({
        barmode: "overlay", bargap: 0.3, hovermode: "closest", uirevision: run.id, height: 150 + 22 * rows.length, showlegend: true,
        legend: { orientation: "h", x: 0, y: -70 / (40 + 22 * rows.length), yanchor: "top" },
        xaxis: { title: { text: "seconds" }, range: [0, found.end] },
        yaxis: { title: { text: "learner" }, autorange: "reversed", dtick: 1, showgrid: false },
        shapes: found.begins.map(([, at]) => ({ type: "line", xref: "x", yref: "paper", x0: at, x1: at, y0: 0, y1: 1, line: { width: 1, color: "rgba(128,128,128,0.5)" } })),
      }), CONFIG);
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      place.replaceChildren(element("p", { className: "note" }, error.message));
    }
  }
}

function summary({ learner, used, unused, stopped, lost }) {
  const tasks = used + unused + stopped + lost, late = (unused + stopped) / Math.max(tasks, 1);
  const remarks = [];
  if (lost) remarks.push(`dead ${lost === 1 ? "once" : `${lost} times`}`);
  if (late > 0.25) remarks.push(`late in ${Math.round(100 * late)} % of its tasks`);
  return [learner, tasks, used, unused, stopped, lost, remarks.join(", ")];
}

function traces_of({ tasks, colours }) {
  return Object.entries(colours).flatMap(([outcome, colour]) => {
    const own = tasks.filter((task) => task.outcome === outcome);
    const y = own.map((task) => task.learner);
    const shared = { type: "bar", orientation: "h", y, legendgroup: outcome, name: outcome };
    const text = own.map((task) => `learner ${task.learner}, update ${task.update}, agents ${task.agents.replace(/[^\d+]/g, "")}: ${WORDS[outcome]}`);
    return [
      { ...shared, base: own.map((task) => task.sent), x: own.map((task) => task.arrived - task.sent), marker: { color: faint(colour, 0.3) }, showlegend: false, text, textposition: "none", hovertemplate: "%{text}<extra></extra>" },
      { ...shared, base: own.map((task) => task.sent + task.waited), x: own.map((task) => task.computed), marker: { color: colour }, showlegend: true, text, textposition: "none", hovertemplate: "%{text}, computed %{x:.3f} s<extra></extra>" },
    ];
  });
}
