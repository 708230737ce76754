// An episode in the page: the world, its teams and what the visitor does to them. No document is needed here.

import { F } from "./runtime.js";

// A frame is one moment: {state, obs, carries, reward, returns, action, metrics, time, done}. Arrays in it are never changed.
export class Stage {
  // program: the translated functions; info: agents, sizes and names; teams: [{label, kind, parameters, episodes}].
  constructor(program, info, policies) {
    this.program = program;
    this.info = info;
    this.policies = policies;
    this.chosen = Object.fromEntries(info.teams.map((team) => [team, info.first]));
    this.held = null; // {agent, action}: whom the visitor plays, and the action vector of the next step
    this.start(info.seed);
  }

  start(seed) {
    this.seed = seed;
    const low = Uint32Array.of(seed >>> 0), high = Uint32Array.of(Math.floor(seed / 4294967296) >>> 0);
    [this.run_key, this.reset_key] = this.program.first_keys(low, high);
    const results = this.program.reset(this.reset_key);
    const { num_state, agents } = this.info;
    const state = results.slice(0, num_state);
    this.frames = [
      {
        state,
        obs: results[num_state],
        carries: {},
        reward: new Float32Array(agents.length),
        returns: new Float64Array(agents.length),
        action: null,
        metrics: this.program.metrics(...state).map((value) => value[0]),
        time: 0,
        done: false,
        alive: new Uint8Array(agents.length).fill(1),
      },
    ];
    this.cursor = 0;
  }

  get frame() {
    return this.frames[this.cursor];
  }

  get at_end() {
    return this.cursor === this.frames.length - 1;
  }

  // Moves on by one step: along what is recorded, then by computing. Returns whether there was one.
  advance() {
    if (!this.at_end) {
      this.cursor++;
      return true;
    }
    if (this.frame.done) return false;
    this.frames.push(this.after(this.frame));
    this.cursor++;
    return true;
  }

  seek(index) {
    this.cursor = Math.min(Math.max(Math.round(index), 0), this.frames.length - 1);
  }

  // What follows would have been otherwise: drop it.
  forget_future() {
    this.frames.length = this.cursor + 1;
  }

  choose(team, policy) {
    this.chosen[team] = policy;
    this.forget_future();
  }

  // The action vectors [N, A] of a frame's teams, and the carries after them.
  decide(frame) {
    const { agents, act_size } = this.info;
    const masks = this.program.legal ? this.program.legal(...frame.state) : [];
    const action = new Float32Array(agents.length * act_size), carries = { ...frame.carries }, acted = {};
    agents.forEach((agent, i) => {
      const which = this.chosen[agent.team];
      if (!acted[which]) {
        const { kind, parameters } = this.policies[which];
        const functions = this.program.teams[kind];
        const carry = carries[which] ?? functions.begin(this.reset_key);
        const [all, ...after] = functions.act(...parameters, ...carry, frame.obs, ...masks);
        acted[which] = all;
        carries[which] = after;
      }
      action.set(acted[which].subarray(i * act_size, (i + 1) * act_size), i * act_size);
    });
    return { action, carries };
  }

  after(frame) {
    const { agents, num_state, act_size } = this.info;
    const { action, carries } = this.decide(frame);
    if (this.held) action.set(this.held.action, this.held.agent * act_size);
    const key = this.program.step_key(this.run_key, Int32Array.of(frame.time))[0];
    const results = this.program.step(key, ...frame.state, action);
    const state = results.slice(0, num_state);
    const [obs, reward, terminated, truncated] = results.slice(num_state);
    const alive = reward.map((_, i) => (terminated[i] || truncated[i] ? 0 : 1));
    const returns = frame.returns.map((sum, i) => sum + reward[i]);
    const metrics = this.program.metrics(...state).map((value) => value[0]);
    return { state, obs, carries, reward, returns, action, metrics, time: frame.time + 1, done: !alive.some(Boolean), alive };
  }

  // Changes entries of the state: [[leaf, entry, value], …]. What was recorded after this moment is dropped.
  change(entries) {
    this.forget_future();
    const frame = { ...this.frame, picture: undefined, state: this.frame.state.map((leaf) => leaf.slice()) };
    for (const [leaf, entry, value] of entries) frame.state[leaf][entry] = value;
    if (this.program.observe) frame.obs = this.program.observe(...frame.state)[0];
    frame.metrics = this.program.metrics(...frame.state).map((value) => value[0]);
    this.frames[this.cursor] = frame;
  }

  // A frame's picture; it is drawn once, and trails read it again.
  picture(frame = this.frame) {
    frame.picture ??= this.program.draw ? this.program.draw(frame.state) : null;
    return frame.picture;
  }

  // Where an agent's body is drawn, or null.
  place(state, agent) {
    const picture = this.program.draw?.(state);
    const name = this.info.agents[agent].name;
    const shape = picture?.shapes.find((s) => (s[0] === "c" && s[6] === name) || (s[0] === "p" && s[4] === name));
    if (!shape) return null;
    return shape[0] === "c" ? [shape[2], shape[3]] : middle(shape[2]);
  }

  // The vector of an agent that does nothing: the first choice of every head, or the middle of every bound.
  resting(agent) {
    const { heads, low, high } = this.info.agents[agent];
    const vector = new Float32Array(this.info.act_size);
    if (heads) heads.reduce((start, width) => ((vector[start] = 1), start + width), 0);
    else low.forEach((bound, k) => (vector[k] = F((bound + high[k]) / 2)));
    return vector;
  }

  // What an agent can do with its arrow keys: {left, right, up, down, rest} → action vectors. The world itself tells: each
  // choice is tried for a few steps on a copy, and the keys get the choices that move the body their way.
  directions(agent) {
    const { heads, low, high } = this.info.agents[agent];
    const options = [];
    if (heads) {
      for (let k = 0; k < heads[0]; k++) {
        const vector = this.resting(agent);
        vector.fill(0, 0, heads[0]);
        vector[k] = 1;
        options.push(vector);
      }
    } else {
      low.forEach((bound, k) => {
        for (const end of [bound, high[k]]) {
          const vector = this.resting(agent);
          vector[k] = end;
          options.push(vector);
        }
      });
      options.push(this.resting(agent));
    }
    const moved = options.map((vector) => this.#tried(agent, vector));
    if (moved.some((shift) => shift === null)) return { rest: this.resting(agent) };
    // Stones roll on: what counts is the difference to the usual motion.
    const drift = [0, 1].map((axis) => median(moved.map((shift) => shift[axis])));
    const pushes = moved.map((shift) => [shift[0] - drift[0], shift[1] - drift[1]]);
    const sizes = pushes.map(([x, y]) => Math.hypot(x, y));
    const found = { rest: options[sizes.indexOf(Math.min(...sizes))] };
    if (Math.max(...sizes) < 1e-6) return found;
    for (const [name, x, y] of [["left", -1, 0], ["right", 1, 0], ["up", 0, 1], ["down", 0, -1]]) {
      const along = pushes.map(([dx, dy], k) => (sizes[k] > 1e-6 && dx * x + dy * y > 0.8 * sizes[k] ? sizes[k] : 0));
      const best = along.indexOf(Math.max(...along));
      if (along[best] > 0) found[name] = options[best];
    }
    return found;
  }

  #tried(agent, vector) {
    const { num_state, act_size } = this.info;
    let { state, time } = this.frame;
    const action = new Float32Array(this.info.agents.length * act_size);
    this.info.agents.forEach((_, i) => action.set(i === agent ? vector : this.resting(i), i * act_size));
    const before = this.place(state, agent);
    for (let k = 0; k < 3; k++) {
      const key = this.program.step_key(this.run_key, Int32Array.of(time + k))[0];
      state = this.program.step(key, ...state, action).slice(0, num_state);
      const now = this.place(state, agent);
      if (!before || !now) return null;
      if (Math.hypot(now[0] - before[0], now[1] - before[1]) > 1e-6 && k >= 1) break;
    }
    const after = this.place(state, agent);
    return [after[0] - before[0], after[1] - before[1]];
  }
}

export function middle(points) {
  const sum = points.reduce(([a, b], [x, y]) => [a + x, b + y], [0, 0]);
  return [sum[0] / points.length, sum[1] / points.length];
}

function median(numbers) {
  const sorted = [...numbers].sort((a, b) => a - b), half = sorted.length >> 1;
  return sorted.length % 2 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

// Numbers as base64: float32, or float16 for the policies of the history.
export function decoded(text, bits) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  if (bits === 32) return new Float32Array(bytes.buffer);
  const halves = new Uint16Array(bytes.buffer);
  return Float32Array.from(halves, (half) => {
    const sign = half & 0x8000 ? -1 : 1, exponent = (half >> 10) & 31, fraction = half & 1023;
    if (exponent === 0) return sign * fraction * 2 ** -24;
    if (exponent === 31) return fraction ? NaN : sign * Infinity;
    return sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
  });
}

// Python's modulo, round and number formats, for captions.
export function modulo(a, b) {
  return a - b * Math.floor(a / b);
}

export function rounded(x, digits) {
  const scale = 10 ** digits, near = Math.round(x * scale);
  return (Math.abs((x * scale) % 1) === 0.5 && near % 2 ? near - 1 : near) / scale;
}

export function formatted(value, spec, kind) {
  if (kind === "bool" && !spec) return value ? "True" : "False";
  const found = /^([+ ]?)(0?)(\d*)(,?)(?:\.(\d+))?([dfge%]?)$/.exec(spec);
  if (!found) return String(value);
  const [, sign, zero, width, comma, digits, letter] = found;
  let text;
  if (letter === "%") text = (100 * value).toFixed(digits ?? 6) + "%";
  else if (letter === "f" || (digits !== undefined && !letter)) text = value.toFixed(digits ?? 6);
  else if (letter === "e") text = value.toExponential(digits ?? 6);
  else if (letter === "g") text = String(Number(value.toPrecision(digits ?? 6)));
  else if (kind === "float" && Number.isInteger(value)) text = value.toFixed(1);
  else text = String(value);
  if (comma) text = text.replace(/\B(?=(\d{3})+(?!\d))/g, ",");
  if (sign && value >= 0) text = sign + text;
  return width ? text.padStart(Number(width), zero ? "0" : " ") : text;
}
