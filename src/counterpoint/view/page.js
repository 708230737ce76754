// The page: controls, keys and pointers around a Stage.

import { Stage, decoded } from "./stage.js";
import { Painter, between, css, word_name } from "./painter.js";

const HOLD = 900; // milliseconds on the last moment of an episode
const ARROWS = {
  ArrowLeft: "left", ArrowRight: "right", ArrowUp: "up", ArrowDown: "down",
  a: "left", d: "right", w: "up", s: "down", A: "left", D: "right", W: "up", S: "down",
};

export function open(program, info, document) {
  return new Page(program, info, document);
}

function element(document, tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name in made) made[name] = value;
    else made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

class Page {
  constructor(program, info, document) {
    this.document = document;
    this.info = info;
    const policies = info.policies.map((policy) => ({
      ...policy,
      parameters: policy.arrays.map((text) => decoded(text, policy.bits)),
    }));
    this.stage = new Stage(program, info, policies);
    this.painter = new Painter(this.get("stage"), info.colours);
    this.playing = !globalThis.matchMedia?.("(prefers-reduced-motion: reduce)").matches;
    this.speed = info.speed;
    this.share = 1; // how far the picture has glided to the current frame
    this.pressed = new Set();
    this.words = [];
    this.view = null;
    this.frames_drawn = 0;
    this.tones = globalThis.matchMedia?.("(prefers-color-scheme: dark)");
    this.build();
    this.last = performance.now();
    this.show();
    requestAnimationFrame((now) => this.tick(now));
  }

  get(id) {
    return this.document.getElementById(id);
  }

  // --- The clock.

  tick(now) {
    const passed = Math.min(now - this.last, 250);
    this.last = now;
    if (this.playing && !this.drag) {
      this.share += (passed / 1000) * this.speed;
      if (this.stage.frame.done && this.stage.at_end) {
        if (this.share * (1000 / this.speed) > HOLD + 1000 / this.speed) this.reset(this.stage.seed + 1);
      } else if (this.share >= 1) {
        // Fast play computes several steps per picture.
        for (let left = Math.min(Math.floor(this.share), 20); left > 0 && this.step_once(); left--);
        this.share = this.stage.frame.done ? 0 : this.share % 1;
        this.show();
      }
    }
    if (this.playing || this.drag || this.dirty) this.paint();
    requestAnimationFrame((next) => this.tick(next));
  }

  step_once() {
    this.hold_action();
    return this.stage.advance();
  }

  paint() {
    this.dirty = false;
    this.frames_drawn++;
    const { theme } = this.document.documentElement.dataset;
    this.painter.dark = theme ? theme === "dark" : Boolean(this.tones?.matches);
    const { stage } = this, picture = stage.picture();
    if (!picture) return this.painter.numbers(stage.frame.obs, this.info);
    const earlier = stage.frames.slice(Math.max(0, stage.cursor - 13), stage.cursor).map((frame) => stage.picture(frame));
    const gliding = this.playing && !this.drag && stage.cursor > 0 && !this.shaken;
    const shown = gliding ? between(earlier[earlier.length - 1], picture, Math.min(this.share, 1)) : picture;
    this.view = this.painter.grown(picture, this.view);
    this.painter.fit(this.view);
    const held = stage.held && this.info.agents[stage.held.agent].name;
    this.painter.paint(shown, earlier, held);
    this.shown = shown;
  }

  // --- Controls.

  build() {
    const { document, info, stage } = this;
    this.get("play").addEventListener("click", () => this.play(!this.playing));
    this.get("step").addEventListener("click", () => this.step(1));
    this.get("back").addEventListener("click", () => this.step(-1));
    this.get("reset").addEventListener("click", () => this.reset(this.stage.seed));
    this.get("next").addEventListener("click", () => this.reset(this.stage.seed + 1));
    this.get("seed").addEventListener("change", (event) => this.reset(Math.max(0, Math.floor(Number(event.target.value) || 0))));
    this.faster(this.speed);
    this.get("speed").value = String(Math.log2(this.speed));
    this.get("speed").addEventListener("input", (event) => this.faster(2 ** Number(event.target.value)));
    this.get("scrub").addEventListener("input", (event) => {
      const moment = Number(event.target.value); // pausing draws, which moves the slider to the present moment
      this.play(false);
      stage.seek(moment);
      this.show();
    });
    this.rows = info.agents.map((agent, i) => {
      const button = element(document, "button", {
        type: "button",
        className: "take",
        textContent: "Play",
        onclick: () => this.take(stage.held?.agent === i ? null : i),
      });
      button.setAttribute("aria-label", `Play ${agent.name} yourself`);
      button.setAttribute("aria-pressed", "false");
      const dot = element(document, "span", { className: "dot" });
      dot.style.background = css(this.painter.colour(agent.role));
      const cells = ["said", "reward", "return"].map((name) => element(document, "td", { className: name }));
      const row = element(
        document, "tr", {},
        element(document, "th", { scope: "row" }, dot, agent.name),
        ...cells,
        element(document, "td", {}, button),
      );
      this.get("agents").append(row);
      return { row, button, said: cells[0], reward: cells[1], sum: cells[2] };
    });
    this.build_policies();
    this.build_pad();
    const keys = this.document;
    keys.addEventListener("keydown", (event) => this.key(event, true));
    keys.addEventListener("keyup", (event) => this.key(event, false));
    globalThis.addEventListener?.("blur", () => this.release());
    const canvas = this.get("stage");
    canvas.addEventListener("pointerdown", (event) => this.grab(event));
    canvas.addEventListener("pointermove", (event) => this.pull(event));
    for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, () => this.drop());
    globalThis.addEventListener?.("resize", () => (this.dirty = true));
    this.tones?.addEventListener?.("change", () => (this.dirty = true));
    this.button();
  }

  build_policies() {
    const { document, info, stage } = this, moments = info.moments;
    const slider = this.get("moment");
    slider.max = String(moments.length - 1);
    slider.value = String(moments.indexOf(info.first));
    slider.addEventListener("input", () => {
      for (const team of info.teams) if (moments.includes(stage.chosen[team])) stage.choose(team, this.moment());
      this.moment_text();
      this.show();
    });
    this.get("history").hidden = moments.length < 2;
    this.moment_text();
    const others = info.policies.map((policy, k) => [policy, k]).filter(([policy]) => policy.other);
    for (const team of others.length ? info.teams : []) {
      const select = element(document, "select", {
        onchange: () => {
          const value = Number(select.value);
          stage.choose(team, value < 0 ? this.moment() : value);
          this.show();
          this.say(`Team ${team} now follows ${select.selectedOptions[0].textContent}.`);
        },
      });
      select.setAttribute("data-team", team);
      select.append(element(document, "option", { value: "-1", textContent: info.run }));
      for (const [policy, k] of others) select.append(element(document, "option", { value: String(k), textContent: policy.label }));
      this.get("swaps").append(element(document, "label", {}, `Team ${team} `, select));
    }
  }

  // Takes a newer policy of the run, which is still training, and follows it if the slider is at its end.
  learn(policy) {
    const { info, stage } = this, slider = this.get("moment"), last = info.moments[info.moments.length - 1];
    if (stage.policies[last].episodes >= policy.episodes) return false;
    const following = Number(slider.value) === info.moments.length - 1 || info.moments.length === 1;
    stage.policies.push({ ...policy, parameters: policy.arrays.map((text) => decoded(text, policy.bits)) });
    info.policies.push(policy);
    info.moments.push(stage.policies.length - 1);
    slider.max = String(info.moments.length - 1);
    this.get("history").hidden = false;
    if (following) {
      slider.value = slider.max;
      for (const team of info.teams) if (info.moments.includes(stage.chosen[team])) stage.choose(team, this.moment());
      this.say(`The team is now as ${policy.label}.`);
    }
    this.moment_text();
    this.show();
    return following;
  }

  // Light or dark whatever the system says; empty: as the system says.
  theme(name) {
    this.document.documentElement.dataset.theme = name;
    this.dirty = true;
  }

  moment() {
    return this.info.moments[Number(this.get("moment").value) || 0];
  }

  moment_text() {
    const text = this.info.policies[this.moment()].label;
    this.get("moment-text").textContent = text;
    this.get("moment").setAttribute("aria-valuetext", text);
  }

  play(on) {
    this.playing = on;
    this.last = performance.now();
    if (on) this.share = Math.min(this.share, 1);
    this.button();
    this.show();
  }

  button() {
    const button = this.get("play");
    button.textContent = this.playing ? "Pause" : "Play";
    button.setAttribute("aria-pressed", String(this.playing));
  }

  step(by) {
    this.play(false);
    this.shaken = false;
    if (by > 0) this.step_once();
    else this.stage.seek(this.stage.cursor - 1);
    this.show();
  }

  reset(seed) {
    this.stage.start(seed);
    this.view = null;
    this.share = 1;
    this.known = null;
    this.show();
  }

  faster(speed) {
    this.speed = speed;
    this.get("speed-text").textContent = `${speed < 10 ? Math.round(speed * 10) / 10 : Math.round(speed)} steps/s`;
  }

  // Shows the current frame's numbers.
  show() {
    const { stage, info } = this, { frame } = stage;
    this.dirty = true;
    const scrub = this.get("scrub");
    scrub.max = String(Math.max(stage.frames.length - 1, 1));
    scrub.value = String(stage.cursor);
    scrub.setAttribute("aria-valuetext", `step ${frame.time}`);
    if (this.document.activeElement !== this.get("seed")) this.get("seed").value = String(stage.seed);
    const picture = stage.picture();
    this.get("caption").textContent = picture ? picture.caption.replace(/^.*? {2}/, "") || picture.caption : `step ${frame.time}`;
    const outcome = this.get("outcome"), { reached, text } = this.outcome();
    outcome.textContent = text;
    outcome.hidden = !text;
    outcome.classList.toggle("missed", !reached);
    let most = 1e-9;
    for (const past of stage.frames) for (const reward of past.reward) most = Math.max(most, Math.abs(reward));
    info.agents.forEach((agent, i) => {
      const { row, said, reward, sum, button } = this.rows[i], value = frame.reward[i];
      reward.textContent = number(value);
      reward.style.setProperty("--share", String(Math.min(Math.abs(value) / most, 1)));
      reward.classList.toggle("loss", value < 0);
      sum.textContent = number(frame.returns[i]);
      said.textContent = this.spoken(agent, i, frame);
      row.classList.toggle("over", !frame.alive[i]);
      const mine = stage.held?.agent === i;
      button.textContent = mine ? "Release" : "Play";
      button.setAttribute("aria-pressed", String(mine));
      row.classList.toggle("mine", mine);
    });
    this.get("metrics").textContent = info.metrics.map((name, k) => `${name.replaceAll("_", " ")} ${number(frame.metrics[k])}`).join(" · ");
    if (!this.playing) this.get("stage").setAttribute("aria-label", `${info.world}, ${this.get("caption").textContent}`);
  }

  outcome() {
    const k = this.info.metrics.indexOf("success"), { frame, cursor, frames } = this.stage;
    const [success, failure] = this.info.outcomes, reached = frame.metrics[k] >= 1;
    if (k < 0 || cursor === 0) return { reached, text: "" };
    if (reached) {
      let first = cursor;
      while (first > 0 && frames[first - 1].metrics[k] >= 1) first--;
      return { reached, text: first ? `${success} in ${first} step${first === 1 ? "" : "s"}` : success };
    }
    return { reached, text: frame.done ? failure : "" };
  }

  // What an agent did last: the word if it can speak, else the number of its choice.
  spoken(agent, i, frame) {
    if (!frame.action) return "";
    const own = frame.action.subarray(i * this.info.act_size, i * this.info.act_size + agent.size);
    if (!agent.heads) return Array.from(own.subarray(0, 3), (value) => value.toFixed(1)).join(" ") + (own.length > 3 ? " …" : "");
    let start = 0;
    return agent.heads
      .map((width, head) => {
        const part = Array.from(own.subarray(start, (start += width))), best = part.indexOf(Math.max(...part));
        return agent.speaks === head ? `says ${word_name(best)}` : `${best}`;
      })
      .join(", ");
  }

  say(text) {
    this.get("news").textContent = text;
  }

  // --- Taking over.

  // Forgets which keys are down: whoever is elsewhere lets go unseen.
  release() {
    this.pressed.clear();
    this.choice = undefined;
  }

  take(agent) {
    const { stage, info } = this;
    stage.held = agent === null ? null : { agent, action: stage.resting(agent) };
    this.release();
    this.words = agent === null ? [] : (info.agents[agent].heads ?? []).map(() => 0);
    this.known = null;
    this.build_pad();
    if (agent !== null) {
      stage.forget_future();
      if (stage.frame.done) this.reset(stage.seed + 1);
      this.say(`You play ${info.agents[agent].name}. Arrow keys or the buttons below the picture move it; Escape releases it.`);
      this.get("stage").focus({ preventScroll: true });
      if (!this.playing) this.play(true);
    } else this.say("The policy plays all agents again.");
    this.show();
  }

  build_pad() {
    const { document, info, stage } = this, pad = this.get("pad");
    pad.replaceChildren();
    pad.hidden = !stage.held;
    if (!stage.held) return;
    const agent = info.agents[stage.held.agent];
    const moves = element(document, "div", { className: "arrows" });
    for (const [name, sign] of [["left", "←"], ["up", "↑"], ["down", "↓"], ["right", "→"]]) {
      const button = element(document, "button", { type: "button", textContent: sign });
      button.setAttribute("aria-label", name);
      button.addEventListener("pointerdown", (event) => {
        event.preventDefault();
        this.pressed.add(name);
      });
      for (const kind of ["pointerup", "pointerleave", "pointercancel"]) button.addEventListener(kind, () => this.pressed.delete(name));
      moves.append(button);
    }
    pad.append(element(document, "span", {}, `You play ${agent.name}: `), moves);
    (agent.heads ?? []).forEach((width, head) => {
      if (head === 0 && agent.speaks !== 0) return; // the arrows are its first choice
      const group = element(document, "div", { className: "words", role: "group" });
      group.setAttribute("aria-label", agent.speaks === head ? "word" : `choice ${head}`);
      for (let k = 0; k < width; k++) {
        const button = element(document, "button", { type: "button", textContent: agent.speaks === head ? word_name(k) : String(k) });
        button.addEventListener("click", () => this.word(head, k));
        group.append(button);
      }
      pad.append(group);
    });
    this.mark_words();
  }

  word(head, choice) {
    this.words[head] = choice;
    this.mark_words();
  }

  mark_words() {
    const { info, stage } = this, agent = info.agents[stage.held.agent];
    const groups = [...this.get("pad").querySelectorAll(".words")];
    const heads = (agent.heads ?? []).map((_, head) => head).filter((head) => head > 0 || agent.speaks === 0);
    groups.forEach((group, g) => [...group.children].forEach((button, k) => button.setAttribute("aria-pressed", String(this.words[heads[g]] === k))));
  }

  // Sets the vector of the next step from the keys that are down.
  hold_action() {
    const { stage, info } = this;
    if (!stage.held) return;
    if (!stage.at_end) stage.forget_future();
    const { agent } = stage.held, { heads, size } = info.agents[agent];
    const found = this.known ?? stage.directions(agent);
    if (found.left && found.right && found.up && found.down) this.known = found; // all four: they will not change
    let action = found.rest;
    const wanted = [...this.pressed].filter((name) => found[name]);
    if (wanted.length && heads) action = found[wanted[wanted.length - 1]];
    else if (wanted.length) {
      action = stage.resting(agent);
      for (const name of wanted) for (let k = 0; k < size; k++) if (found[name][k] !== stage.resting(agent)[k]) action[k] = found[name][k];
    }
    action = action.slice();
    if (this.choice !== undefined && heads && info.agents[agent].speaks !== 0) {
      action.fill(0, 0, heads[0]);
      action[this.choice] = 1;
    }
    (heads ?? []).reduce((start, width, head) => {
      if (head > 0 || info.agents[agent].speaks === 0) {
        action.fill(0, start, start + width);
        action[start + (this.words[head] ?? 0)] = 1;
      }
      return start + width;
    }, 0);
    stage.held = { agent, action };
  }

  key(event, down) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target?.tagName ?? "");
    const arrow = ARROWS[event.key], digit = /^[0-9]$/.test(event.key) ? Number(event.key) : null;
    const { stage, info } = this;
    if (!down) {
      if (arrow) this.pressed.delete(arrow);
      if (digit !== null && this.choice === digit) this.choice = undefined;
      return;
    }
    if (typing) return;
    if (stage.held && arrow && event.shiftKey) this.nudge(arrow);
    else if (stage.held && arrow) {
      this.pressed.delete(arrow);
      this.pressed.add(arrow);
    } else if (stage.held && digit !== null) {
      const { heads, speaks } = info.agents[stage.held.agent];
      const head = speaks ?? -1;
      if (head >= 0 && digit < heads[head]) this.word(head, digit);
      else if (heads && digit < heads[0]) this.choice = digit;
    } else if (event.key === "Escape" && stage.held) this.take(null);
    else if (event.key === " " && event.target?.tagName !== "BUTTON") this.play(!this.playing);
    else if (event.key === "." || (arrow === "right" && event.key === "ArrowRight")) this.step(1);
    else if (event.key === "," || event.key === "ArrowLeft") this.step(-1);
    else if (event.key === "r" || event.key === "R") this.reset(stage.seed);
    else if (event.key === "n" || event.key === "N") this.reset(stage.seed + 1);
    else return;
    event.preventDefault();
  }

  // --- Dragging.

  grab(event) {
    const picture = this.shown ?? this.stage.picture();
    if (!picture) return;
    const [x, y] = this.pointer(event), { painter, info } = this;
    let best = null, nearest = Infinity;
    for (const shape of picture.shapes) {
      if (!info.handles[shape[1]]) continue;
      let away = Infinity;
      if (shape[0] === "c") {
        const [px, py] = painter.pinned(shape[2], shape[3]);
        away = Math.hypot(px - x, py - y) - Math.max(shape[4] * painter.scale, 14);
      } else if (shape[0] === "p") {
        away = inside([x, y], shape[2].map(([a, b]) => painter.at(a, b))) ? -1 : Infinity;
      }
      if (away < Math.min(nearest, 0)) [best, nearest] = [shape, away];
    }
    if (!best) return;
    const handle = info.handles[best[1]];
    const start = Object.fromEntries(Object.entries(handle).map(([axis, [leaf, entry]]) => [axis, this.stage.frame.state[leaf][entry]]));
    this.drag = { handle, start, from: painter.from(x, y), shape: best[1] };
    this.get("stage").setPointerCapture?.(event.pointerId);
    event.preventDefault();
    this.pull(event);
  }

  pull(event) {
    if (!this.drag) return;
    const now = this.painter.from(...this.pointer(event)), { handle, start, from } = this.drag;
    this.move(handle, start, [now[0] - from[0], now[1] - from[1]]);
  }

  move(handle, start, by) {
    const entries = Object.entries(handle).map(([axis, [leaf, entry, factor, whole]]) => {
      const value = start[axis] + by[axis === "x" ? 0 : 1] / factor;
      return [leaf, entry, whole ? Math.round(value) : value];
    });
    this.stage.change(entries);
    this.shaken = true;
    this.known = null;
    this.show();
  }

  drop() {
    if (!this.drag) return;
    this.drag = null;
    this.shaken = false;
    this.share = 1;
    this.last = performance.now();
    this.show();
  }

  // Moves the body of the agent that the visitor plays, by keyboard.
  nudge(arrow) {
    const { stage, info } = this, name = info.agents[stage.held.agent].name;
    const shape = stage.picture()?.shapes.find((s) => (s[0] === "c" && s[6] === name) || (s[0] === "p" && s[4] === name));
    const handle = shape && info.handles[shape[1]];
    if (!handle) return;
    const size = handle.x?.[3] ? 1 : (stage.picture().window[2] - stage.picture().window[0]) / 26;
    const by = { left: [-size, 0], right: [size, 0], up: [0, size], down: [0, -size] }[arrow];
    const start = Object.fromEntries(Object.entries(handle).map(([axis, [leaf, entry]]) => [axis, stage.frame.state[leaf][entry]]));
    this.move(handle, start, by);
    this.shaken = false;
  }

  pointer(event) {
    const box = this.get("stage").getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  }
}

function number(value) {
  if (!Number.isFinite(value)) return String(value);
  return Math.abs(value) >= 100 ? value.toFixed(0) : Math.abs(value) >= 10 ? value.toFixed(1) : Math.abs(value) >= 0.1 || value === 0 ? value.toFixed(2) : value.toFixed(3);
}

function inside([x, y], corners) {
  let odd = false;
  corners.forEach(([x1, y1], k) => {
    const [x2, y2] = corners[(k + 1) % corners.length];
    if (y1 > y !== y2 > y && x < ((x2 - x1) * (y - y1)) / (y2 - y1) + x1) odd = !odd;
  });
  return odd;
}
