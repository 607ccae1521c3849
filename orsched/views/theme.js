"use strict";
// Colours and words that all charts of the page share.
window.orsched = (() => {
  const read = (id) => JSON.parse(document.getElementById(id).textContent);
  const data = read("orsched-data");
  const night = window.matchMedia("(prefers-color-scheme: dark)");
  const LIGHT = {
    paper: "#ffffff", ink: "#1b1f24", soft: "#57606a", line: "#d0d7de", grid: "#e4e8ec", idle: "#EBE5DA",
    hover: "#ffffff", decode: "#eef3f7",
  };
  const DARK = {
    paper: "#0f1318", ink: "#e6edf3", soft: "#9aa4af", line: "#3a424c", grid: "#262d35", idle: "#2c2b28",
    hover: "#1b2129", decode: "#26323d",
  };
  // What a colour of the data is on dark paper: lighter, the same order of lightness within a chart.
  const TONES = {
    "#000000": "#f2f5f8", "#0072B2": "#2f8fd3", "#56B4E9": "#79bdea", "#009E73": "#1fb58c",
    "#7FCEB9": "#93e0cb", "#D55E00": "#f2813d", "#882255": "#c65f92", "#999999": "#8b939b",
    "#A9A9A9": "#767e86", "#F0E442": "#d8ce4c", "#c9d7e2": "#33414f", "#F3CF80": "#a8874a",
  };

  const isDark = () => night.matches;
  const colours = () => (isDark() ? DARK : LIGHT);
  const tone = (colour) => (isDark() ? TONES[colour] ?? colour : colour);
  // Black or white, what is read better on a colour.
  const onTop = (colour) => {
    const [r, g, b] = [1, 3, 5].map((k) => parseInt(colour.slice(k, k + 2), 16));
    return 0.3 * r + 0.59 * g + 0.11 * b > 125 ? "#000000" : "#ffffff";
  };
  const font = () => ({
    family: "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif", size: 13, color: colours().ink,
  });

  // What all layouts begin with; an axis without a grid takes the colour of its line from here.
  function layout(more) {
    const c = colours();
    const axis = (given) => ({ linecolor: c.line, tickcolor: c.soft, gridcolor: c.grid, zerolinecolor: c.line, ...given });
    const axes = Object.fromEntries(Object.entries(more).filter(([name]) => /^[xy]axis\d*$/.test(name))
      .map(([name, given]) => [name, axis(given)]));
    return {
      font: font(), paper_bgcolor: c.paper, plot_bgcolor: c.paper, hovermode: "closest", dragmode: "zoom",
      hoverlabel: { align: "left", bgcolor: c.hover, bordercolor: c.soft, font: font() },
      modebar: { bgcolor: "rgba(0,0,0,0)", color: c.soft, activecolor: c.ink },
      legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", traceorder: "normal" },
      ...more, ...axes,
    };
  }

  const CONFIG = {
    displaylogo: false, responsive: true, doubleClick: false, showTips: false, scrollZoom: false,
    modeBarButtons: [["zoom2d", "pan2d", "toImage"]],
  };
  const QUIET = { ...CONFIG, displayModeBar: false };

  const drawings = [];
  // Draw now, and again when the reader's colours change; a drawing that is not shown draws nothing.
  function drawn(draw) {
    drawings.push(draw);
    return draw();
  }
  night.addEventListener("change", () => drawings.forEach((draw) => draw()));

  return { data, read, colours, tone, onTop, font, layout, drawn, isDark, CONFIG, QUIET };
})();
