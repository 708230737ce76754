// Plotly, loaded when the first chart is drawn, in the colours of the page.

import { element } from "./dom.js";

let loading = null;

export function plotly() {
  loading ??= new Promise((done, failed) => {
    const script = element("script", { src: "/plotly.js", onload: () => done(globalThis.Plotly), onerror: () => failed(new Error("Plotly's script cannot be loaded.")) });
    document.head.append(script);
  });
  return loading;
}

// A text for Plotly, which reads some markup in texts: shown as it is, and cut to a bearable length.
export function literal(text, most = 60) {
  const short = text.length > most ? `${text.slice(0, most - 1)}…` : text;
  return short.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}

export function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

// A colour such as #2f63a3 as it is seen on the page: lighter on a dark one.
export function seen(hex) {
  const dark = parseInt(colour("--paper").slice(1, 3), 16) < 128;
  return dark ? `#${[1, 3, 5].map((k) => Math.round(0.65 * parseInt(hex.slice(k, k + 2), 16) + 0.35 * 255).toString(16).padStart(2, "0")).join("")}` : hex;
}

// A colour such as #2f63a3 with an opacity.
export function faint(hex, opacity) {
  const part = (k) => parseInt(hex.slice(k, k + 2), 16);
  return `rgba(${part(1)},${part(3)},${part(5)},${opacity})`;
}

export function layout(more = {}) {
  const ink = colour("--ink"), line = colour("--line"), paper = colour("--paper");
  const axis = { gridcolor: line, zerolinecolor: line, linecolor: line, tickcolor: line, automargin: true, title: { font: { size: 12 } } };
  const { xaxis, yaxis, ...rest } = more;
  return {
    paper_bgcolor: paper, plot_bgcolor: paper,
    font: { color: ink, family: "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif", size: 12 },
    margin: { l: 56, r: 12, t: 36, b: 44 },
    hoverlabel: { bgcolor: colour("--soft"), bordercolor: line, font: { color: ink }, namelength: 40 },
    legend: { orientation: "h", x: 0, xanchor: "left", y: -0.22, yanchor: "top", font: { size: 12 } },
    xaxis: { ...axis, ...xaxis },
    yaxis: { ...axis, ...yaxis },
    ...rest,
  };
}

// Buttons are named one by one: by default Plotly also offers to send the data to its own server.
export const CONFIG = {
  responsive: true, displaylogo: false, modeBarButtons: [["zoom2d", "pan2d", "zoomIn2d", "zoomOut2d", "resetScale2d"]], doubleClick: "reset",
  plotlyServerURL: "", showSendToCloud: false,
};

// Zooms and moves a chart by keys: + − ← → 0.
export function keys(chart) {
  chart.addEventListener("keydown", (event) => {
    const axis = chart._fullLayout?.xaxis;
    if (!axis || event.ctrlKey || event.metaKey || event.altKey) return;
    const [low, high] = axis.range.map(Number), width = high - low, middle = (low + high) / 2;
    const ranges = {
      "+": [middle - width / 4, middle + width / 4], "=": [middle - width / 4, middle + width / 4], "-": [middle - width, middle + width],
      ArrowLeft: [low - width / 5, high - width / 5], ArrowRight: [low + width / 5, high + width / 5],
    };
    if (event.key === "0") globalThis.Plotly.relayout(chart, { "xaxis.autorange": true, "yaxis.autorange": true });
    else if (ranges[event.key]) globalThis.Plotly.relayout(chart, { "xaxis.range": ranges[event.key] });
    else return;
    event.preventDefault();
  });
}

// Saves a chart as a picture.
export async function save(chart, format, name) {
  const Plotly = await plotly();
  const { width, height } = chart.getBoundingClientRect();
  const filename = name.replace(/[^\w.-]+/g, "-").slice(0, 80) || "chart";
  await Plotly.downloadImage(chart, { format, filename, width: Math.round(width), height: Math.round(height), scale: format === "png" ? 2 : 1 });
}
