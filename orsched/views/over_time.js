"use strict";
// Charts over time below the Gantt chart: clients by use, requests, KV blocks, and what classes get.
window.orsched.overTime = (() => {
  const { data, several, seconds, plain, tone, colours, layout, QUIET, time } = window.orsched;
  const LEFT = several ? 104 : 64;

  // Rows of lines on the axis of time, each point the mean until the next one; levels across them.
  function rows(id, found) {
    if (!found) return null;
    const parts = found.rows, x = found.borders.map(seconds), many = parts.length, gap = 0.36 / many;
    const part = (1 - gap * (many - 1)) / many, top = (r) => 1 - r * (part + gap);
    const axes = {}, numbered = (name, r) => (r ? `${name}${r + 1}` : name);
    const lines = parts.flatMap((row, r) => {
      axes[numbered("yaxis", r)] = {
        title: { text: row.title }, domain: [Math.max(top(r) - part, 0), Math.min(top(r), 1)], zeroline: false,
        rangemode: "tozero", fixedrange: true, showgrid: true, nticks: 5, automargin: false,
        ...(row.title.endsWith("(%)") ? { range: [0, 103] } : {}),
      };
      return row.lines.map(([name, colour, dash, values, stacked]) => ({
        type: "scatter", mode: "lines", name: plain(name), x, y: [...values, values.at(-1) ?? null],
        yaxis: numbered("y", r), hoverinfo: "x+y+name", connectgaps: false, legend: numbered("legend", r),
        line: { shape: "hv", color: tone(colour), dash, width: stacked ? 0 : 1.8 },
        ...(stacked ? { stackgroup: `stack${r}`, fillcolor: tone(colour) } : {}),
      }));
    });
    const levels = parts.flatMap((row, r) => row.levels.map(([y, colour]) => ({
      type: "line", xref: "paper", x0: 0, x1: 1, yref: numbered("y", r), y0: y, y1: y,
      line: { color: colour ? tone(colour) : colours().ink, width: 1, dash: "dot" },
    })));
    const legends = Object.fromEntries(parts.map((_, r) => [numbered("legend", r), {
      orientation: "h", x: 0, y: Math.min(top(r), 1), yanchor: "bottom", traceorder: "normal", bgcolor: "rgba(0,0,0,0)",
    }]));
    const chart = document.getElementById(id);
    return Plotly.newPlot(chart, lines, layout({
      height: 80 + 150 * many, margin: { l: LEFT, r: 16, t: 40, b: 46 }, showlegend: true, ...legends, shapes: levels,
      xaxis: { title: { text: "time (s)" }, range: time.current(), zeroline: false, showgrid: false,
        anchor: `y${many > 1 ? many : ""}`, ticks: "outside", ticklen: 4 },
      ...axes,
    }), QUIET).then(() => time.link(chart));
  }

  return {
    usage: (index) => rows(`usage-${index}`, data.methods[index].usage),
    classes: (index) => rows(`classes-${index}`, data.methods[index].classes),
  };
})();
