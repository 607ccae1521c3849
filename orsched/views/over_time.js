"use strict";
// Charts over time below the Gantt chart: clients by use, requests, KV blocks, and what classes get.
window.orsched.overTime = (() => {
  const { data, several, seconds, plain, tone, colours, layout, QUIET, time } = window.orsched;
  const LEFT = several ? 104 : 64;

  // Rows of lines on the axis of time, each point the mean until the next one.
  function rows(id, borders, parts, adapt) {
    const chart = document.getElementById(id);
    const x = borders.map(seconds), many = parts.length, gap = 0.36 / many;
    const part = (1 - gap * (many - 1)) / many, top = (r) => 1 - r * (part + gap);
    const axes = {};
    const lines = parts.flatMap((row, r) => {
      axes[r ? `yaxis${r + 1}` : "yaxis"] = {
        title: { text: row.title }, domain: [Math.max(top(r) - part, 0), Math.min(top(r), 1)], zeroline: false,
        rangemode: "tozero", fixedrange: true, showgrid: true, nticks: 5, automargin: false, ...row.axis,
      };
      return row.lines.map(({ name, values, colour, dash, stacked, more }) => ({
        type: "scatter", mode: "lines", name: plain(name), x, y: [...values, values.at(-1) ?? null],
        yaxis: r ? `y${r + 1}` : "y", hoverinfo: "x+y+name", connectgaps: false, legend: r ? `legend${r + 1}` : "legend",
        line: { shape: "hv", color: tone(colour), dash: dash ?? "solid", width: stacked ? 0 : 1.8 },
        ...(stacked ? { stackgroup: `stack${r}`, fillcolor: tone(colour) } : {}), ...more,
      }));
    });
    const legends = Object.fromEntries(parts.map((_, r) => [r ? `legend${r + 1}` : "legend", {
      orientation: "h", x: 0, y: Math.min(top(r), 1), yanchor: "bottom", traceorder: "normal", bgcolor: "rgba(0,0,0,0)",
    }]));
    return Plotly.newPlot(chart, lines, layout({
      height: 80 + 150 * many, margin: { l: LEFT, r: 16, t: 40, b: 46 }, showlegend: true, ...legends, ...adapt,
      xaxis: { title: { text: "time (s)" }, range: time.current(), zeroline: false, showgrid: false,
        anchor: `y${many > 1 ? many : ""}`, ticks: "outside", ticklen: 4 },
      ...axes,
    }), QUIET).then(() => time.link(chart));
  }

  // Clients by use, stacked; requests that wait and run; KV blocks.
  function usage(index) {
    const { borders, uses, blocks, requests } = data.methods[index].usage;
    const clients = data.instance.offsets.at(-1);
    const areas = data.instance.usage
      .map(([name, colour], u) => ({ name, colour, values: uses[u], stacked: true }))
      .filter((area) => area.values.some((value) => value > 0));
    const parts = [
      { title: "clients", lines: areas },
      { title: "requests", lines: [
        { name: "waiting", colour: "#D55E00", values: requests.waiting },
        { name: "running", colour: "#0072B2", values: requests.running, dash: "dash" },
      ] },
    ];
    if (blocks.length) {
      parts.push({ title: "KV blocks", lines: blocks.map(({ name, values }, k) => ({
        name: `${name}: blocks`, values, colour: data.instance.colours[k % data.instance.colours.length],
      })) });
    }
    const across = (yref, y, colour) => ({ type: "line", xref: "paper", x0: 0, x1: 1, yref, y0: y, y1: y,
      line: { color: colour, width: 1, dash: "dot" } });
    const highest = Math.max(0, ...blocks.flatMap(({ values }) => values));
    const limits = blocks.map(({ limit }, k) => [limit, data.instance.colours[k % data.instance.colours.length]])
      .filter(([limit]) => limit <= 3 * highest) // one that is far away would flatten the lines
      .map(([limit, colour]) => across("y3", limit, tone(colour)));
    return rows(`usage-${index}`, borders, parts, { shapes: [across("y", clients, colours().ink), ...limits] });
  }

  // What classes and tenants get.
  function classes(index) {
    const found = data.methods[index].classes;
    if (!found) return null;
    return rows(`classes-${index}`, found.borders, found.rows.map((row) => ({
      title: row.title, axis: row.title.endsWith("(%)") ? { range: [0, 103] } : {},
      lines: row.lines.map(([name, colour, dash, values, stacked]) => ({ name, colour, dash, values, stacked })),
    })), {});
  }

  return { usage, classes };
})();
