// Pictures on a canvas, in the style of the films: the same shapes, colours and messages.

import { middle } from "./stage.js";

const TRAIL = 12; // past positions behind a body
const LIGHT = { ground: [247, 247, 244], beyond: [236, 236, 232], ink: [50, 54, 62], grey: [110, 114, 122], paper: [255, 255, 255] };
const DARK = { ground: [30, 33, 39], beyond: [22, 24, 29], ink: [232, 234, 238], grey: [160, 164, 172], paper: [44, 48, 56] };
const EDGE = [50, 54, 62];

export function css(rgb, opacity = 1) {
  return `rgba(${rgb[0]},${rgb[1]},${rgb[2]},${opacity})`;
}

function mix(a, b, share) {
  return a.map((x, k) => Math.round(x + (b[k] - x) * share));
}

// The picture between two others: bodies glide from one step to the next.
export function between(a, b, share) {
  if (!a || share >= 1) return b;
  const before = new Map(a.shapes.map((shape) => [shape[1], shape]));
  const glide = (x, y) => (Number.isFinite(x) ? x + (y - x) * share : y);
  const shapes = b.shapes.map((shape) => {
    const old = before.get(shape[1]);
    if (!old || old[0] !== shape[0]) return shape;
    const now = [...shape];
    if (shape[0] === "c" || shape[0] === "s") {
      now[2] = glide(old[2], shape[2]);
      now[3] = glide(old[3], shape[3]);
    } else if (old[2].length === shape[2].length) {
      now[2] = shape[2].map(([x, y], k) => [glide(old[2][k][0], x), glide(old[2][k][1], y)]);
    }
    return now;
  });
  return { ...b, shapes };
}

export class Painter {
  constructor(canvas, colours) {
    this.canvas = canvas;
    this.pen = canvas.getContext("2d");
    this.colours = colours;
    this.window = null;
    this.dark = false;
  }

  // Fits the canvas to its width on the page; the view keeps the picture's proportions.
  fit(window) {
    const ratio = globalThis.devicePixelRatio || 1, across = window[2] - window[0], up = window[3] - window[1];
    const width = Math.max(this.canvas.clientWidth, 50), height = Math.round((width * up) / across);
    if (this.canvas.width !== Math.round(width * ratio) || this.canvas.height !== Math.round(height * ratio)) {
      this.canvas.width = Math.round(width * ratio);
      this.canvas.height = Math.round(height * ratio);
    }
    this.ratio = ratio;
    this.width = width;
    this.height = height;
    this.window = window;
    this.scale = width / across;
    this.unit = Math.max(width / 480, 0.75);
  }

  // The view grows, up to four times, so that no body is lost; it never shrinks within an episode.
  grown(picture, least) {
    const [x0, y0, x1, y1] = least ?? picture.window;
    let low = [x0, y0], high = [x1, y1];
    const home = picture.window, spare = [(home[2] - home[0]) * 1.5, (home[3] - home[1]) * 1.5];
    for (const shape of picture.shapes) {
      if (shape[0] !== "c") continue;
      const place = [shape[2], shape[3]], reach = 1.3 * shape[4];
      for (const axis of [0, 1]) {
        if (!Number.isFinite(place[axis])) continue;
        low[axis] = Math.max(Math.min(low[axis], place[axis] - reach), home[axis] - spare[axis]);
        high[axis] = Math.min(Math.max(high[axis], place[axis] + reach), home[axis + 2] + spare[axis]);
      }
    }
    const factor = Math.max((high[0] - low[0]) / (home[2] - home[0]), (high[1] - low[1]) / (home[3] - home[1]));
    return [0, 1]
      .map((axis) => (low[axis] + high[axis]) / 2 - ((home[axis + 2] - home[axis]) * factor) / 2)
      .concat([0, 1].map((axis) => (low[axis] + high[axis]) / 2 + ((home[axis + 2] - home[axis]) * factor) / 2));
  }

  at(x, y) {
    return [(x - this.window[0]) * this.scale, (this.window[3] - y) * this.scale];
  }

  pinned(x, y) {
    const [x0, y0, x1, y1] = this.window;
    return this.at(Math.min(Math.max(x, x0), x1), Math.min(Math.max(y, y0), y1));
  }

  // From a place on the canvas to the picture's own coordinates.
  from(px, py) {
    return [px / this.scale + this.window[0], this.window[3] - py / this.scale];
  }

  colour(role) {
    return this.colours[role] ?? [140, 143, 150];
  }

  // past: earlier pictures, oldest first; marked: the label of a body to highlight.
  paint(picture, past, marked) {
    const pen = this.pen, tone = this.dark ? DARK : LIGHT;
    pen.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    pen.fillStyle = css(tone.beyond);
    pen.fillRect(0, 0, this.width, this.height);
    const [left, top] = this.at(picture.window[0], picture.window[3]), [right, bottom] = this.at(picture.window[2], picture.window[1]);
    pen.fillStyle = css(tone.ground);
    pen.fillRect(left, top, right - left, bottom - top);
    this.trails([...past.slice(-TRAIL), picture], tone);
    for (const shape of picture.shapes) this.body(shape, tone, marked);
    for (const shape of picture.shapes) if (shape[0] === "s") this.speech(shape, picture, tone);
  }

  trails(pictures, tone) {
    const paths = new Map();
    for (const picture of pictures) {
      for (const shape of picture.shapes) {
        if (shape[0] !== "c" || !shape[8] || !Number.isFinite(shape[2] + shape[3])) continue;
        if (!paths.has(shape[8])) paths.set(shape[8], { points: [] });
        const path = paths.get(shape[8]);
        path.points.push(this.pinned(shape[2], shape[3]));
        path.shape = shape;
      }
    }
    const pen = this.pen;
    pen.lineCap = "round";
    for (let age = TRAIL; age > 0; age--) {
      const fresh = 1 - age / (TRAIL + 1);
      for (const { points, shape } of paths.values()) {
        if (age >= points.length) continue;
        const a = points[points.length - age - 1], b = points[points.length - age];
        pen.strokeStyle = css(mix(tone.ground, this.colour(shape[5]), 0.08 + 0.5 * fresh));
        pen.lineWidth = Math.min(2 * shape[4] * this.scale, 9 * this.unit) * (0.25 + 0.5 * fresh);
        pen.beginPath();
        pen.moveTo(...a);
        pen.lineTo(...b);
        pen.stroke();
      }
    }
  }

  body(shape, tone, marked) {
    const pen = this.pen, unit = this.unit;
    if (shape[0] === "c") {
      const [, , x, y, radius, role, label, heading, , owner] = shape;
      if (!Number.isFinite(x + y)) return;
      const [px, py] = this.pinned(x, y), pixels = Math.max(radius * this.scale, 2);
      this.disc(px, py, pixels, role, owner, heading, tone);
      if (marked && label === marked) this.ring(px, py, pixels + 4 * unit, tone);
      this.label(px, py, pixels, role, label, tone);
    } else if (shape[0] === "p") {
      const [, , points, role, label, owner] = shape;
      const corners = points.map(([x, y]) => this.at(x, y)), [x, y] = middle(corners);
      const xs = corners.map((corner) => corner[0]), ys = corners.map((corner) => corner[1]);
      const half = Math.min(Math.max(...xs) - Math.min(...xs), Math.max(...ys) - Math.min(...ys)) / 2;
      const colour = this.colour(owner || role);
      pen.lineJoin = "round";
      if (role === "cell" || role === "grid") this.area(corners, css(tone.paper), css(mix(colour, EDGE, 0.12)), unit);
      else if (role === "goal" || role === "forest") this.area(corners, css(colour, 0.27), css(colour), 1.4 * unit);
      else this.area(corners, css(colour), css(role === "wall" ? colour : mix(colour, EDGE, 0.35)), 1.2 * unit);
      if (role === "goal") this.area(star(x, y, 0.55 * half), css(colour));
      if (marked && label === marked) this.area(corners, null, css(tone.ink), 2.5 * unit);
      this.label(x, y, half, role, label, tone);
    } else if (shape[0] === "l") {
      const [, , points, role, width] = shape;
      pen.strokeStyle = css(this.colour(role));
      pen.lineWidth = Math.max(width * this.scale, unit);
      pen.lineCap = pen.lineJoin = "round";
      pen.beginPath();
      points.forEach(([x, y], k) => (k ? pen.lineTo(...this.at(x, y)) : pen.moveTo(...this.at(x, y))));
      pen.stroke();
    }
  }

  disc(x, y, radius, role, owner, heading, tone) {
    const pen = this.pen, unit = this.unit, colour = this.colour(owner || role), edge = mix(colour, EDGE, 0.35);
    if (role === "goal") {
      const ring = Math.max(radius, 6 * unit);
      this.circle(x, y, ring, css(tone.paper), css(colour), 1.6 * unit);
      this.area(star(x, y, 0.78 * ring), css(colour));
      return;
    }
    if (role === "forest") {
      this.circle(x, y, radius, css(colour, 0.27), css(colour, 0.5), 1.2 * unit);
      return;
    }
    if (heading !== null && Number.isFinite(heading)) {
      const reach = 1.2 + Math.max(0.25, (3.5 * unit) / radius);
      const tip = [[0, reach], [0.45, 1], [-0.45, 1]].map(([turn, r]) => [
        x + r * radius * Math.cos(heading + turn),
        y - r * radius * Math.sin(heading + turn),
      ]);
      this.area(tip, css(edge));
    }
    this.circle(x, y, radius, css(colour), css(edge), 1.2 * unit);
    pen.setLineDash([]);
  }

  ring(x, y, radius, tone) {
    this.circle(x, y, radius, null, css(tone.ink), 2 * this.unit);
  }

  circle(x, y, radius, fill, edge, width) {
    const pen = this.pen;
    pen.beginPath();
    pen.arc(x, y, radius, 0, 2 * Math.PI);
    this.ink(fill, edge, width);
  }

  area(points, fill, edge, width) {
    const pen = this.pen;
    pen.beginPath();
    points.forEach((point, k) => (k ? pen.lineTo(...point) : pen.moveTo(...point)));
    pen.closePath();
    this.ink(fill, edge, width);
  }

  ink(fill, edge, width) {
    const pen = this.pen;
    if (fill) {
      pen.fillStyle = fill;
      pen.fill();
    }
    if (edge) {
      pen.strokeStyle = edge;
      pen.lineWidth = width;
      pen.stroke();
    }
  }

  label(x, y, radius, role, label, tone) {
    if (!label) return;
    const unit = this.unit, numbered = /^(.+)_(\d+)$/.exec(label);
    const text = numbered && (role === label || role === numbered[1]) ? numbered[2] : label;
    if (role === "goal") return this.text(x + 0.75 * radius, y + 0.75 * radius, text, 10 * unit, css(tone.grey));
    const size = Math.min(11 * unit, 1.35 * radius);
    this.pen.font = `${size}px system-ui, sans-serif`;
    if (size >= 8 * unit && this.pen.measureText(text).width < 1.7 * radius) {
      const [r, g, b] = this.colour(role), light = 0.3 * r + 0.59 * g + 0.11 * b;
      const dark = light > 160 || role === "cell" || role === "grid";
      return this.text(x, y, text, size, dark ? css(EDGE) : "#fff");
    }
    this.text(x, y + radius + 8 * unit, text, 10 * unit, css(tone.grey));
  }

  text(x, y, text, size, colour) {
    const pen = this.pen;
    pen.font = `${size}px system-ui, sans-serif`;
    pen.fillStyle = colour;
    pen.textAlign = "center";
    pen.textBaseline = "middle";
    pen.fillText(text, x, y);
  }

  // A bubble with the letter of the strongest word and a bar for every word.
  speech(shape, picture, tone) {
    const [, , sx, sy, role, strengths] = shape, unit = this.unit, pen = this.pen;
    const words = strengths.map((word) => Math.min(Math.max(word || 0, 0), 1)), best = words.indexOf(Math.max(...words));
    if (!words.length || words[best] < 0.01) return;
    const [x, y] = this.pinned(sx, sy), colour = this.colour(role);
    const body = picture.shapes.find((s) => s[0] === "c" && Math.hypot(s[2] - sx, s[3] - sy) < 1e-6);
    const radius = (body ? body[4] : 0) * this.scale, width = (24 + 3.5 * words.length) * unit, height = 20 * unit;
    const clamp = (v, low, high) => Math.min(Math.max(v, low), high), pad = 2 * unit;
    const above = y - radius - 7 * unit - height;
    const left = clamp(x + 0.6 * radius - 4 * unit, pad, this.width - width - pad);
    const top = above >= pad ? above : y + radius + 7 * unit;
    const root = clamp(x, left + 6 * unit, left + width - 6 * unit), side = top < y ? top + height : top;
    this.area([[root - 3 * unit, side], [x, top < y ? y - radius - unit : y + radius + unit], [root + 3 * unit, side]], css(tone.paper), css(mix(colour, tone.ink, 0.2)), 1.2 * unit);
    pen.beginPath();
    pen.roundRect(left, top, width, height, 6 * unit);
    this.ink(css(tone.paper), css(mix(colour, tone.ink, 0.2)), 1.2 * unit);
    this.text(left + 11 * unit, top + height / 2, word_name(best), 13 * unit, css(mix(tone.paper, tone.ink, 0.25 + 0.75 * words[best])));
    words.forEach((word, k) => {
      const tall = Math.max(10 * word, 1) * unit;
      pen.fillStyle = css(k === best ? colour : mix(tone.paper, colour, 0.55));
      pen.fillRect(left + (20 + 3.5 * k) * unit, top + height - 5 * unit - tall, 2.5 * unit, tall);
    });
  }

  // For a world that does not draw itself: what each agent observes, one row of cells per agent.
  numbers(obs, info) {
    const rows = info.agents.length, columns = info.obs_size;
    this.fit([0, 0, 480, Math.max(60, rows * 34)]);
    const pen = this.pen, tone = this.dark ? DARK : LIGHT, wide = (this.width - 90 * this.unit) / columns;
    pen.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    pen.fillStyle = css(tone.ground);
    pen.fillRect(0, 0, this.width, this.height);
    info.agents.forEach((agent, i) => {
      const y = ((i + 0.5) * this.height) / rows;
      pen.textAlign = "left";
      pen.textBaseline = "middle";
      pen.font = `${11 * this.unit}px system-ui, sans-serif`;
      pen.fillStyle = css(tone.ink);
      pen.fillText(agent.name, 6, y, 82 * this.unit);
      for (let k = 0; k < agent.obs_size; k++) {
        const value = Math.tanh(obs[i * columns + k]);
        pen.fillStyle = css(value < 0 ? [232, 108, 114] : [82, 130, 184], Math.abs(value));
        pen.fillRect(88 * this.unit + k * wide, y - 10 * this.unit, Math.max(wide - 1, 0.5), 20 * this.unit);
      }
    });
  }
}

export function word_name(index) {
  return index < 26 ? String.fromCharCode(65 + index) : String(index);
}

function star(x, y, radius) {
  return Array.from({ length: 10 }, (_, k) => {
    const angle = Math.PI * (k / 5 - 0.5), reach = k % 2 ? 0.45 * radius : radius;
    return [x + reach * Math.cos(angle), y + reach * Math.sin(angle)];
  });
}
