// Elements and numbers. Everything that comes from a run is set as text, never as markup.

export function get(id) {
  return document.getElementById(id);
}

// Makes an element; properties that begin with "on" are listeners, those with a dash are attributes.
export function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name.includes("-") || !(name in made)) made.setAttribute(name, value);
    else made[name] = value;
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

// Fills a select with [value, text] pairs and keeps what was chosen if it is still there.
export function options(select, pairs, wanted = select.value) {
  const same = select.options.length === pairs.length && pairs.every(([value, text], k) => select.options[k].value === value && select.options[k].text === text);
  if (!same) select.replaceChildren(...pairs.map(([value, text]) => element("option", { value, textContent: text })));
  if (pairs.some(([value]) => value === wanted)) select.value = wanted;
}

// Sets a text only if it is another one, so that screen readers are not told the same again.
export function say(target, text) {
  if (target.textContent !== text) target.textContent = text;
}

export function table(header, rows) {
  const numeric = header.map((_, k) => rows.length > 0 && rows.every((row) => /^[-−+]?[\d.,]+%?$|^–$/.test(String(row[k]))));
  const cell = (tag, text, k, scope) => element(tag, { ...(scope ? { scope } : {}), className: numeric[k] ? "number" : "" }, String(text));
  return element(
    "table", {},
    element("thead", {}, element("tr", {}, ...header.map((text, k) => cell("th", text, k, "col")))),
    element("tbody", {}, ...rows.map((row) => element("tr", {}, ...row.map((text, k) => (k === 0 ? cell("th", text, k, "row") : cell("td", text, k)))))),
  );
}

export function number(value, digits = 3) {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  if (size >= 1e6 || (size > 0 && size < 1e-3)) return value.toExponential(2);
  return size >= 100 ? value.toFixed(1) : value.toFixed(size >= 10 ? 2 : digits);
}

export function whole(value) {
  return Math.round(value).toLocaleString("en");
}

export function speed(value) {
  if (value === null || value === undefined) return "–";
  return value >= 1e6 ? `${(value / 1e6).toFixed(1)}M` : value >= 1e3 ? `${(value / 1e3).toFixed(1)}k` : value.toFixed(value < 10 ? 1 : 0);
}

export function ago(seconds) {
  for (const [unit, size] of [["d", 86400], ["h", 3600], ["min", 60]]) if (seconds >= size) return `${Math.round(seconds / size)} ${unit} ago`;
  return `${Math.max(0, Math.round(seconds))} s ago`;
}
