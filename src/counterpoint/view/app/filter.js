// Search, filters and order of the list: plain functions of runs.

export const STATES = ["running", "stopped", "finished", "unreadable"];

// What a run is sorted and filtered by: a column, or else a setting.
export function value_of(run, key) {
  switch (key) {
    case "name": case "env": case "algorithm": case "state": case "episodes": case "success": case "speed": case "written": case "started":
      return run[key];
    case "progress":
      return run.planned ? run.episodes / run.planned : null;
    case "return":
      return run.returns.good ?? Object.values(run.returns)[0] ?? null;
    case "differs":
      return Object.entries(run.differs).map((pair) => pair.join("=")).join(" ");
    case "trouble":
      return run.trouble.join(" ");
    default:
      return run.settings[key.replaceAll("-", "_")] ?? null;
  }
}

function pattern(text) {
  const escaped = text.toLowerCase().replace(/[.+^${}()|[\]\\]/g, "\\$&").replaceAll("*", ".*").replaceAll("?", ".");
  return new RegExp(`^${escaped}$`, "s");
}

function meets(value, wanted) {
  if (value === null || value === undefined) return wanted === "";
  if (wanted !== "" && Number.isFinite(Number(wanted)) && Number(value) === Number(wanted)) return true;
  return pattern(wanted).test(String(value).toLowerCase());
}

// Returns the test that a search text stands for. Words must occur; conditions such as lr=0.01 must be met.
export function search(text) {
  const words = text.trim().split(/\s+/).filter(Boolean);
  const tests = words.map((word) => {
    const [, key, wanted] = /^([\w-]+)=(.*)$/.exec(word) ?? [];
    if (key) return (run) => meets(value_of(run, key), wanted);
    const part = word.toLowerCase();
    return (run) => text_of(run).includes(part);
  });
  return (run) => tests.every((test) => test(run));
}

function text_of(run) {
  const settings = Object.entries(run.settings).map(([name, value]) => `${name}=${value}`).join(" ");
  return `${run.name} ${run.env} ${run.algorithm} ${run.state} ${run.trouble.join(" ")} ${settings}`.toLowerCase();
}

// Returns the runs in order; those without a value come last either way.
export function sorted(runs, key, descending) {
  const sign = descending ? -1 : 1;
  const rank = (run) => {
    const value = value_of(run, key);
    return value === "" || value === undefined || Number.isNaN(value) ? null : value;
  };
  return [...runs].sort((a, b) => {
    const [x, y] = [rank(a), rank(b)];
    if (x === null || y === null) return (x === null) - (y === null) || a.name.localeCompare(b.name);
    const both = Number.isFinite(Number(x)) && Number.isFinite(Number(y));
    const order = both ? Number(x) - Number(y) : String(x).localeCompare(String(y), "en", { numeric: true });
    return sign * order || a.name.localeCompare(b.name);
  });
}
