"use strict";
(() => {
  const read = (id) => JSON.parse(document.getElementById(id).textContent);
  const data = read("orsched-data");
  const run = read("orsched-run");
  const lanes = data.instance.offsets.at(-1);
  const several = data.instance.workers.length > 1;
  const BLUE = ["#0072B2", "#56B4E9"];
  const GREEN = ["#009E73", "#7FCEB9"];
  const FONT = { family: "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif", size: 13, color: "#1b1f24" };
  const HOVER = {
    align: "left", bgcolor: "#fff", bordercolor: "#57606a", font: { ...FONT },
  };
  const CONFIG = {
    displaylogo: false, responsive: true, doubleClick: "reset", showTips: false,
    modeBarButtons: [["zoom2d", "pan2d", "zoomIn2d", "zoomOut2d", "resetScale2d", "toImage"]],
  };

  const seconds = (ns) => ns / 1e9;
  // Plotly reads a few tags in labels: names must stay plain text.
  const plain = (name) => String(name).replace(/[\u0000-\u001f\u007f]/g, " ")
    .replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
  const count = (n) => n.toLocaleString("en-US");

  // Exact decimal seconds of whole nanoseconds, without trailing zeros.
  function exact(ns) {
    const sign = ns < 0 ? "-" : "";
    const whole = Math.floor(Math.abs(ns) / 1e9);
    const rest = String(Math.abs(ns) - whole * 1e9).padStart(9, "0").replace(/0+$/, "");
    return `${sign}${whole}${rest ? "." + rest : ""} s`;
  }

  function shortTime(ns) {
    if (ns >= 1e9) return `${(ns / 1e9).toFixed(3)} s`;
    return ns >= 1e6 ? `${(ns / 1e6).toFixed(1)} ms` : `${(ns / 1e3).toFixed(1)} µs`;
  }

  function workerOf(lane) {
    let worker = 0;
    while (data.instance.offsets[worker + 1] <= lane) worker += 1;
    return worker;
  }

  function clientText(lane) {
    const worker = workerOf(lane);
    const client = `client ${lane - data.instance.offsets[worker]}`;
    return several ? `${plain(data.instance.workers[worker])}, ${client}` : client;
  }

  function requestText(method, bars, k, phase) {
    const table = method.requests;
    const r = bars.request[k];
    const name = table.id ? plain(table.id[r]) : table.row[r];
    const doing = { decode: "decode", invalid: "invalid tokens", paused: "paused" }[phase];
    const stages = phase === "prefill"
      ? `prefill stage ${bars.first[k]}`
      : bars.first[k] === bars.last[k]
        ? `${doing} after prefill stage ${bars.first[k]}`
        : `${doing} after prefill stages ${bars.first[k]} to ${bars.last[k]}`;
    return `<b>request ${name}</b> on ${clientText(bars.lane[k])}<br>` +
      `${stages}: ${exact(bars.start[k])} to ${exact(bars.end[k])}<br>` +
      `prompt ${count(table.prompt[r])} tokens, output ${count(table.output[r])} tokens<br>` +
      `arrival ${exact(table.arrival[r])}, prefill ${exact(table.admit[r])} to ${exact(table.prefilled[r])}<br>` +
      `first token ${exact(table.first[r])}, finish ${exact(table.finish[r])}`;
  }

  function stageText(stages, k) {
    const where = several ? `${plain(data.instance.workers[stages.worker[k]])}: ` : "";
    const what = stages.phase[k] === 2
      ? `<b>${where}mixed step ${stages.bin[k]}</b><br>${count(stages.prefilled[k])} requests, ${count(stages.tokens[k])} prompt tokens, ` +
        `beside a round of ${count(stages.requests[k] - stages.prefilled[k])} requests`
      : stages.phase[k] === 0
      ? `<b>${where}prefill stage ${stages.bin[k]}</b><br>${count(stages.requests[k])} requests, ${count(stages.tokens[k])} prompt tokens`
      : `<b>${where}decode after prefill stage ${stages.bin[k]}</b><br>${count(stages.rounds[k])} rounds, at most ${count(stages.requests[k])} requests`;
    return `${what}<br>${exact(stages.start[k])} to ${exact(stages.end[k])}`;
  }

  function bars(name, y, start, end, colour, texts, extra) {
    return {
      type: "bar", orientation: "h", name, y, base: start.map(seconds),
      x: start.map((s, k) => seconds(end[k] - s)), hovertext: texts, hoverinfo: "text",
      textposition: "none", marker: { color: colour, line: { width: 0 } }, showlegend: false, ...extra,
    };
  }

  // All stages of a kind as one path: thousands of shapes would be slow.
  function stripes(stages, kind, name, opacity) {
    const x = [], y = [];
    stages.phase.forEach((phase, k) => {
      if (phase !== kind) return;
      const a = seconds(stages.start[k]), b = seconds(stages.end[k]);
      const low = data.instance.offsets[stages.worker[k]] - 0.5;
      const high = data.instance.offsets[stages.worker[k] + 1] - 0.5;
      x.push(a, b, b, a, a, null);
      y.push(low, low, high, high, low, null);
    });
    return {
      type: "scatter", mode: "lines", name, x, y, fill: "toself",
      fillcolor: `rgba(230,159,0,${opacity})`, line: { width: 0 }, hoverinfo: "skip", showlegend: false, zorder: 2,
    };
  }

  function restarts(method) {
    const { start, lane, request, stay } = method.restarts;
    const table = method.requests;
    const name = (r) => (table.id ? plain(table.id[r]) : table.row[r]);
    return {
      type: "scatter", mode: "markers", name: "restarts", x: start.map(seconds), y: lane,
      marker: { symbol: "diamond", size: 8, color: "#D55E00", line: { color: "#fff", width: 1 } },
      hovertext: start.map((at, k) => `<b>request ${name(request[k])}</b> on ${clientText(lane[k])}<br>` +
        `restart ${stay[k]} at ${exact(at)}`),
      hoverinfo: "text", showlegend: false, zorder: 4,
    };
  }

  // The decode bars of bulk requests, or of the others; all are of one kind without the column.
  function picked(part, bulk) {
    const kept = part.start.map((_, k) => k).filter((k) => (part.bulk ? part.bulk[k] : 0) === bulk);
    return Object.fromEntries(Object.entries(part).map(([name, column]) =>
      [name, kept.map((k) => column[k])]));
  }

  function traces(method) {
    const { prefill, decode, invalid, paused, stages } = method;
    const width = 0.84;
    const texts = (part, phase) => part.request.map((_, k) => requestText(method, part, k, phase));
    const interactive = picked(decode, 0), bulk = picked(decode, 1);
    return [
      bars("decode", interactive.lane, interactive.start, interactive.end,
        interactive.shade.map((s) => BLUE[s]), texts(interactive, "decode"), { width, zorder: 1 }),
      bars("prefill", prefill.lane, prefill.start, prefill.end, "#000000",
        texts(prefill, "prefill"), { width, zorder: 3 }),
      stripes(stages, 0, "prefill stages", 0.42),
      bars("stages", stages.worker, stages.start, stages.end,
        stages.phase.map((phase) => ["#E69F00", "#c9d7e2", "#F3CF80"][phase]),
        stages.start.map((_, k) => stageText(stages, k)), { width: 0.9, yaxis: "y2" }),
      ...(stages.phase.includes(2) ? [stripes(stages, 2, "mixed steps", 0.15)] : []),
      ...(paused.start.length ? [bars("paused", paused.lane, paused.start, paused.end, "#A9A9A9",
        texts(paused, "paused"), { width, zorder: 1 })] : []),
      ...(invalid.start.length ? [bars("invalid", invalid.lane, invalid.start, invalid.end, "#882255",
        texts(invalid, "invalid"), { width, zorder: 1, marker: { color: "#882255", line: { width: 0 },
          pattern: { shape: "/", bgcolor: "#882255", fgcolor: "#fff", size: 7, solidity: 0.2 } } })] : []),
      ...(bulk.start.length ? [bars("bulk", bulk.lane, bulk.start, bulk.end, "#009E73",
        texts(bulk, "decode"), { width, zorder: 1, marker: { color: bulk.shade.map((s) => GREEN[s]),
          line: { width: 0 }, pattern: { shape: "\\", fgcolor: "#fff", fillmode: "overlay",
            size: 9, solidity: 0.2 } } })] : []),
      ...(method.restarts.start.length ? [restarts(method)] : []),
    ];
  }

  function line(x, style) {
    return { type: "line", x0: x, x1: x, yref: "paper", y0: 0, y1: 1, line: style };
  }

  function shapes(method) {
    const end = seconds(method.shown_ns);
    const all = [{
      type: "rect", layer: "below", x0: 0, x1: end, y0: -0.5, y1: lanes - 0.5,
      fillcolor: "#EBE5DA", line: { width: 0 },
    }];
    if (method.shown_ns === method.makespan) {
      all.push(line(end, { color: "#000", width: 1.5 }));
      if (method.bound !== null) {
        all.push(line(seconds(method.bound), { color: "#fff", width: 4 }));
        all.push(line(seconds(method.bound), { color: "#D55E00", width: 2.5, dash: "6px,3px" }));
      }
    }
    data.instance.offsets.slice(1, -1).forEach((edge) => all.push({
      type: "line", xref: "paper", x0: 0, x1: 1, y0: edge - 0.5, y1: edge - 0.5,
      line: { color: "#fff", width: 3 },
    }));
    return all;
  }

  function layout(method) {
    const workers = data.instance.workers.length;
    const plot = Math.min(Math.max(lanes * 24, 120), 620);
    const top = Math.min(24 * workers, 90);
    const height = plot + top + 18 + 84;
    const inner = plot + top + 18;
    const right = seconds(method.shown_ns === method.makespan
      ? Math.max(method.makespan, method.bound ?? 0) : method.shown_ns);
    const middles = data.instance.workers.map((_, w) =>
      (data.instance.offsets[w] + data.instance.offsets[w + 1] - 1) / 2);
    const names = data.instance.workers.map(plain);
    const every = Math.ceil(workers / 30); // more names would overlap
    const some = (values) => values.filter((_, w) => w % every === 0);
    const axis = { ticks: "outside", ticklen: 4, showgrid: false, zeroline: false };
    return {
      height, margin: { l: several ? 110 : 64, r: 16, t: 34, b: 50 }, font: FONT,
      paper_bgcolor: "#fff", plot_bgcolor: "#fff", barmode: "overlay", hovermode: "closest",
      dragmode: "zoom", hoverlabel: HOVER,
      shapes: shapes(method),
      xaxis: { ...axis, title: { text: "time (s)" }, range: [0, right * 1.01 || 1], anchor: "y" },
      yaxis: {
        ...axis, range: [lanes - 0.5, -0.5], domain: [0, plot / inner],
        ...(several ? { tickvals: some(middles), ticktext: some(names) } : { title: { text: "client" }, tickformat: "d" }),
      },
      yaxis2: {
        range: [workers - 0.5, -0.5], domain: [1 - top / inner, 1], fixedrange: true,
        ...(several && workers <= 4
          ? { tickvals: names.map((_, w) => w), ticktext: names }
          : { tickvals: [(workers - 1) / 2], ticktext: ["stages"] }),
        showgrid: false, zeroline: false,
      },
    };
  }

  // Clients by use, stacked, and KV blocks below them; each point is the mean until the next one.
  function usage(index) {
    const { borders, uses, blocks } = data.methods[index].usage;
    const x = borders.map(seconds);
    const held = (values) => [...values, values.at(-1) ?? 0];
    const line = (name, values, colour, more) => ({
      type: "scatter", mode: "lines", name: plain(name), x, y: held(values),
      line: { shape: "hv", color: colour, width: 1.5 }, hoverinfo: "x+y+name", ...more,
    });
    const areas = data.instance.usage
      .map(([word, colour], u) => line(word, uses[u], colour, {
        stackgroup: "clients", fillcolor: colour, line: { shape: "hv", color: colour, width: 0 },
      }))
      .filter((area) => area.y.some((value) => value > 0));
    const lines = blocks.map((worker, k) => line(`${worker.name}: blocks`, worker.values,
      data.instance.colours[k % data.instance.colours.length], { yaxis: "y2" }));
    const axis = { zeroline: false, rangemode: "tozero", fixedrange: true, showgrid: false };
    const two = blocks.length > 0;
    Plotly.newPlot(`usage-${index}`, [...areas, ...lines], {
      height: two ? 330 : 210, font: FONT, margin: { l: several ? 110 : 64, r: 16, t: 40, b: 46 },
      hovermode: "closest", hoverlabel: HOVER, showlegend: true,
      legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", traceorder: "normal" },
      shapes: [{ type: "line", xref: "paper", x0: 0, x1: 1, y0: lanes, y1: lanes,
        line: { color: "#000", width: 1, dash: "dot" } }],
      xaxis: { title: { text: "time (s)" }, range: [0, 1.01 * x.at(-1) || 1], zeroline: false,
        fixedrange: true, anchor: two ? "y2" : "y" },
      yaxis: { ...axis, title: { text: "clients" }, domain: [two ? 0.55 : 0, 1] },
      yaxis2: { ...axis, title: { text: "KV blocks" }, domain: [0, 0.45] },
    }, { ...CONFIG, displayModeBar: false });
  }

  // What classes and tenants get: rows on one time axis, each point the mean until the next one.
  function classes(index) {
    const found = data.methods[index].classes;
    if (!found) return;
    const x = found.borders.map(seconds), count = found.rows.length, gap = 0.09;
    const part = (1 - gap * (count - 1)) / count;
    const layout = {
      height: 60 + 130 * count, font: FONT, margin: { l: several ? 110 : 64, r: 16, t: 60, b: 46 },
      hovermode: "closest", hoverlabel: HOVER, showlegend: true,
      legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", traceorder: "normal" },
      xaxis: { title: { text: "time (s)" }, range: [0, 1.01 * x.at(-1) || 1], zeroline: false,
        fixedrange: true, anchor: `y${count > 1 ? count : ""}` },
    };
    const lines = found.rows.flatMap((row, r) => {
      const axis = r ? `y${r + 1}` : "y", top = 1 - r * (part + gap);
      layout[r ? `yaxis${r + 1}` : "yaxis"] = {
        title: { text: row.title }, domain: [Math.max(top - part, 0), top], zeroline: false,
        rangemode: "tozero", fixedrange: true, showgrid: false,
        ...(row.title.endsWith("(%)") ? { range: [0, 103] } : {}),
      };
      return row.lines.map(([name, colour, dash, values, stacked]) => ({
        type: "scatter", mode: "lines", name: plain(name), x, y: [...values, values.at(-1) ?? null],
        yaxis: axis, hoverinfo: "x+y+name", connectgaps: false,
        line: { shape: "hv", color: colour, dash, width: stacked ? 0 : 1.8 },
        ...(stacked ? { stackgroup: "owners", fillcolor: colour } : {}),
      }));
    });
    Plotly.newPlot(`classes-${index}`, lines, layout, { ...CONFIG, displayModeBar: false });
  }

  function draw(index) {
    const panel = document.getElementById(`panel-${index}`);
    if (panel.dataset.drawn) return;
    panel.dataset.drawn = "started";
    const method = data.methods[index];
    if (method.shown_ns < method.makespan) {
      const part = panel.querySelector(".part");
      part.textContent = `The chart shows the first ${exact(method.shown_ns)} of ${exact(method.makespan)}: ` +
        "the schedule has too many bars for a page.";
      part.hidden = false;
    }
    Plotly.newPlot(`gantt-${index}`, traces(method), layout(method), CONFIG)
      .then(() => { usage(index); classes(index); panel.dataset.drawn = "done"; });
  }

  function choose(index) {
    document.querySelectorAll("[role=tab]").forEach((tab, k) => {
      tab.setAttribute("aria-selected", String(k === index));
      tab.tabIndex = k === index ? 0 : -1;
      document.getElementById(`panel-${k}`).hidden = k !== index;
    });
    draw(index);
    Plotly.Plots.resize(`gantt-${index}`);
    for (const name of [`usage-${index}`, `classes-${index}`]) {
      if (document.getElementById(name)?.data) Plotly.Plots.resize(name);
    }
  }

  function tabs() {
    const all = [...document.querySelectorAll("[role=tab]")];
    all.forEach((tab, k) => {
      tab.addEventListener("click", () => choose(k));
      tab.addEventListener("keydown", (event) => {
        const to = { ArrowRight: k + 1, ArrowLeft: k - 1, Home: 0, End: all.length - 1 }[event.key];
        if (to === undefined) return;
        event.preventDefault();
        const next = (to + all.length) % all.length;
        choose(next);
        all[next].focus();
      });
    });
  }

  function bubbles() {
    const labels = data.methods.map((m) => plain(m.label));
    const totals = data.methods.map((m) => m.use.reduce((a, b) => a + b, 0) || 1);
    const pattern = ["", "/", "x", ".", "\\", "-"];
    const series = data.uses.map(([word, colour], u) => {
      const shares = data.methods.map((m, k) => (100 * m.use[u]) / totals[k]);
      return {
        type: "bar", orientation: "h", name: word, y: labels, x: shares,
        text: shares.map((s) => (s >= 4 ? `${s.toFixed(1)} %` : "")), textposition: "inside",
        insidetextanchor: "middle", textangle: 0,
        textfont: { color: ["#0072B2", "#882255"].includes(colour) ? "#fff" : "#000" },
        hovertext: data.methods.map((m, k) =>
          `<b>${labels[k]}</b>: ${word}<br>${shares[k].toFixed(3)} % of client-time<br>${exact(m.use[u])} client-seconds`
            .replace(" s client", " client")),
        hoverinfo: "text",
        marker: { color: colour, line: { color: "#fff", width: 1 },
          pattern: { shape: pattern[u], bgcolor: colour, fgcolor: "rgba(0,0,0,0.22)", size: 7, solidity: 0.18 } },
      };
    });
    Plotly.newPlot("bubbles", series, {
      barmode: "stack", height: 96 + 40 * labels.length, font: FONT, bargap: 0.3,
      margin: { l: 10, r: 16, t: 34, b: 44 }, hovermode: "closest", hoverlabel: HOVER,
      xaxis: { range: [0, 100], ticksuffix: " %", title: { text: "share of clients × makespan" }, zeroline: false, fixedrange: true },
      yaxis: { autorange: "reversed", automargin: true, fixedrange: true, type: "category", ticksuffix: "  " },
      legend: { orientation: "h", x: 0, y: 1, yanchor: "bottom", traceorder: "normal" },
    }, { ...CONFIG, displayModeBar: false });
  }

  function decisions() {
    run.forEach((block, k) => {
      const p99 = block.decision_ns?.p99;
      if (p99 === undefined || p99 === null) return;
      const cell = document.querySelector(`#comparison tr[data-index="${k}"] [data-field=decision]`);
      cell.dataset.ns = p99;
      cell.textContent = shortTime(p99);
    });
  }

  window.orschedCharts = { data, lanes, several, seconds, exact, plain, traces, CONFIG, FONT, HOVER };
  decisions();
  tabs();
  bubbles();
  choose(0);
})();
