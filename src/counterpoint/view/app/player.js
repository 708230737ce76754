// The stage: the page of `counterpoint share` in a frame, for any policy that a run kept, following the newest one.

import { Latest, Refused, address, fetched } from "./api.js";
import { element, get, options, say } from "./dom.js";

export class Player {
  constructor(theme) {
    this.theme = theme;
    this.latest = new Latest();
    this.frame = null;
    this.shown = ""; // the run, seed and rivals on the stage
    this.policy = ""; // the version of the newest policy on it
    this.refused = false; // whether the run could not play with that policy, or without one
    get("stage-seed").addEventListener("change", () => this.run && this.show(this.run, this.others));
    get("follow").addEventListener("change", () => this.run && this.follow(this.run));
  }

  // The program inside the frame, once it has started.
  get page() {
    return this.frame?.contentWindow?.counterpoint ?? null;
  }

  // Puts a run on the stage; other runs of its environment can take a team's place.
  async show(run, others) {
    [this.run, this.others] = [run, others];
    const seeds = Array.from({ length: Math.min(run.seeds, 1000) }, (_, k) => [String(k), String(Number(run.settings.seed ?? 0) + k)]);
    options(get("stage-seed"), seeds);
    get("seed-label").hidden = run.seeds < 2;
    get("follow-label").hidden = run.state !== "running";
    const fields = { run: run.id, seed: get("stage-seed").value || 0, with: others.map((other) => other.id) };
    const wanted = JSON.stringify(fields);
    const again = this.refused && run.policy !== this.policy; // a live run has saved its first policy
    if (wanted === this.shown && !again) return this.follow(run);
    this.shown = wanted;
    this.policy = run.policy;
    this.refused = false;
    this.#clear();
    say(get("stage-note"), "Translating the world and its policies for this page …");
    get("view-stage").setAttribute("aria-busy", "true");
    try {
      const found = await this.latest.get("/api/stage", fields);
      if (!found || this.shown !== wanted) return;
      say(get("stage-note"), found.note);
      this.#open(address("/stage", fields), run);
    } catch (error) {
      if (this.shown !== wanted) return;
      if (!(error instanceof Refused)) {
        this.shown = ""; // the server did not answer: the next change asks again
        throw error;
      }
      this.refused = true;
      await this.#instead(run, error.message, wanted);
      const late = this.shown === wanted && this.run.policy !== this.policy; // the policy was saved while the server answered
      if (late) await this.show(this.run, this.others);
    } finally {
      get("view-stage").setAttribute("aria-busy", "false");
    }
  }

  #clear() {
    this.frame = null;
    get("stage").replaceChildren();
  }

  #open(source, run) {
    const frame = element("iframe", { src: source, title: `The stage: ${run.name} plays ${run.env}` });
    frame.addEventListener("load", () => {
      const inner = frame.contentDocument;
      if (!inner?.body) return;
      inner.documentElement.classList.add("embedded");
      this.tone();
      const fit = () => (frame.style.height = `${Math.ceil(inner.body.getBoundingClientRect().height) + 4}px`);
      new ResizeObserver(fit).observe(inner.body);
      fit();
      if (this.frame === frame) this.follow(this.run); // a policy may have been saved while the stage was built
    });
    this.frame = frame;
    get("stage").replaceChildren(frame);
  }

  // Where a run cannot play in a page: why, and its film.
  async #instead(run, sentence, wanted) {
    say(get("stage-note"), sentence);
    const facts = await fetched("/api/run", { run: run.id }).catch(() => ({ film: false }));
    if (facts.film && this.shown === wanted) get("stage").replaceChildren(element("img", { src: address("/film", { run: run.id }), alt: `Film of ${run.name}`, className: "film" }));
  }

  // Hands a newer policy to the stage, if the run has saved one.
  async follow(run) {
    this.run = run;
    if (!get("follow").checked || run.policy === this.policy || !this.page?.learn) return;
    const [wanted, version] = [this.shown, run.policy];
    try {
      const policy = await fetched("/api/policy", { run: run.id, seed: get("stage-seed").value || 0 });
      if (this.shown !== wanted || !this.page) return;
      this.page.learn(policy);
      this.policy = version;
    } catch (error) {
      if (!(error instanceof Refused)) throw error; // the file is being replaced: the next change tells
    }
  }

  tone() {
    this.page?.theme?.(this.theme.chosen);
  }
}
