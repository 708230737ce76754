// One run: advice if it is in trouble, facts, settings, film.

import { Latest, Refused, address } from "./api.js";
import { element, get, number, speed, table, whole } from "./dom.js";

export class About {
  constructor() {
    this.latest = new Latest();
  }

  async show(run) {
    const place = get("about");
    try {
      const found = await this.latest.get("/api/run", { run: run.id });
      if (!found) return;
      const open = place.querySelector("details")?.open ?? true;
      place.replaceChildren(
        ...found.advice.map(advice),
        element("p", { className: "note" }, ...source(found.advice.length)),
        element("h2", {}, "Run"),
        element("div", { className: "scroll-x" }, table(["", "value"], facts(run, found))),
        ...(found.film ? [element("h2", {}, "Film"), element("img", { src: address("/film", { run: run.id, version: run.policy }), alt: `Film of ${run.name}`, className: "film" })] : []),
        ...(found.changes.length ? [element("h2", {}, "Changes when it was resumed"), element("ul", {}, ...found.changes.map((text) => element("li", {}, text)))] : []),
        element("details", { open }, element("summary", {}, "Settings"), element("div", { className: "scroll-x" }, table(["setting", "value"], found.settings))),
      );
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      place.replaceChildren(element("p", { className: "note" }, error.message));
    }
  }
}

function advice({ name, words, evidence, cure }) {
  return element(
    "div", { className: "advice", role: "alert" },
    element("strong", {}, name.replaceAll("_", " ")),
    element("p", {}, words),
    evidence ? element("p", { className: "faint" }, evidence) : null,
    cure ? element("p", {}, element("b", {}, "What to do: "), cure) : null,
  );
}

// What the advice rests on: playing takes longer than a page may.
function source(count) {
  const looked = count ? "Only settings and reports were examined. " : "Nothing seems to be wrong, as far as settings and reports tell. ";
  return [looked, element("code", {}, "counterpoint why RUN"), " plays the policy as well, which shows more."];
}

function facts(run, found) {
  const differs = Object.entries(run.differs).map(([name, value]) => `${name}=${value}`).join(" ");
  return [
    ["name", run.name],
    ["state", run.owner ? `${run.state}, ${run.owner}` : run.state],
    ["environment", run.env],
    ["algorithm", run.algorithm],
    ["seeds", run.seeds],
    ["episodes", `${whole(run.episodes)} of ${whole(run.planned)}`],
    ["speed", run.speed === null ? "–" : `${speed(run.speed)} steps per second`],
    ...Object.entries(run.returns).map(([team, value]) => [`return of ${team}`, `${number(value)}${run.greedy ? "" : " in training"}`]),
    ...(run.success === null ? [] : [["success", `${(100 * run.success).toFixed(0)} %`]]),
    ["differs in", differs || "nothing"],
    ["policies kept at", found.policies.length ? `${found.policies.map(whole).join(", ")} episodes` : "none yet"],
    ...(found.trusted ? [] : [["trust", "The run names code and was not made by you on this machine: the stage needs counterpoint view --trust."]]),
  ];
}
