// Light, dark, or as the system says; remembered in this browser.

import { get } from "./dom.js";

const NAMES = ["", "light", "dark"], KEY = "counterpoint-theme";

export class Theme {
  // changed(): called after the colours have changed.
  constructor(changed) {
    this.changed = changed;
    this.chosen = NAMES.includes(stored()) ? stored() : "";
    get("theme").addEventListener("click", () => this.choose(NAMES[(NAMES.indexOf(this.chosen) + 1) % NAMES.length]));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.changed());
    this.#show();
  }

  choose(name) {
    this.chosen = name;
    try {
      localStorage.setItem(KEY, name);
    } catch {
      // a browser may refuse to remember
    }
    this.#show();
    this.changed();
  }

  #show() {
    document.documentElement.dataset.theme = this.chosen;
    const text = { "": "System colours", light: "Light", dark: "Dark" }[this.chosen];
    get("theme").textContent = text;
    get("theme").setAttribute("aria-label", `Colours: ${text}. Press to change.`);
  }
}

function stored() {
  try {
    return localStorage.getItem(KEY) ?? "";
  } catch {
    return "";
  }
}
