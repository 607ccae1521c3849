"use strict";
// The traces of a Gantt chart: bars of requests, stripes of stages, and shares where bars would be
// thinner than a pixel.
window.orsched.gantt = (() => {
  const { data, several, seconds, exact, plain, clientText, requestText, stageText, tone, colours, isDark } = window.orsched;
  const BLUE = ["#0072B2", "#56B4E9"], GREEN = ["#009E73", "#7FCEB9"];
  const CODES = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"; // shares in 63rds

  function bars(name, rows, part, colour, texts, extra) {
    const { marker, ...more } = extra ?? {};
    return {
      type: "bar", orientation: "h", name, y: part.lane.map((lane) => rows.row[lane]), base: part.start.map(seconds),
      x: part.start.map((s, k) => seconds(part.end[k] - s)), hovertext: texts, hoverinfo: "text",
      textposition: "none", marker: { color: colour, line: { width: 0 }, ...marker }, showlegend: false, width: 1, ...more,
    };
  }

  // All stages of a kind as one path: thousands of shapes would be slow.
  function stripes(stages, rows, kind, name, opacity) {
    const x = [], y = [];
    stages.phase.forEach((phase, k) => {
      const low = rows.edges[stages.worker[k]] - 0.5, high = rows.edges[stages.worker[k] + 1] - 0.5;
      if (phase !== kind || low === high) return;
      const a = seconds(stages.start[k]), b = seconds(stages.end[k]);
      x.push(a, b, b, a, a, null);
      y.push(low, low, high, high, low, null);
    });
    return {
      type: "scatter", mode: "lines", name, x, y, fill: "toself",
      fillcolor: `rgba(230,159,0,${opacity})`, line: { width: 0 }, hoverinfo: "skip", showlegend: false, zorder: 2,
    };
  }

  function restarts(method, rows) {
    const { start, lane, request, stay } = method.restarts;
    const table = method.requests;
    const name = (r) => (table.id ? plain(table.id[r]) : table.row[r]);
    return {
      type: "scatter", mode: "markers", name: "restarts", x: start.map(seconds), y: lane.map((l) => rows.row[l]),
      marker: { symbol: "diamond", size: 8, color: tone("#D55E00"), line: { color: colours().paper, width: 1 } },
      hovertext: start.map((at, k) => `<b>request ${name(request[k])}</b> on ${clientText(lane[k])}<br>` +
        `restart ${stay[k]} at ${exact(at)}`),
      hoverinfo: "text", showlegend: false, zorder: 5,
    };
  }

  // What parts the rows: lines in the colour of the paper, never that of a bubble.
  function partings(rows, end, width) {
    const x = [], y = [];
    for (let row = 1; row < rows.count; row += 1) {
      if (rows.edges.includes(row)) continue; // workers are parted by broader lines
      x.push(0, end, null);
      y.push(row - 0.5, row - 0.5, null);
    }
    return {
      type: "scatter", mode: "lines", name: "partings", x, y, hoverinfo: "skip", showlegend: false, zorder: 4,
      line: { color: colours().paper, width, simplify: false },
    };
  }

  // The decode bars of bulk requests, or of the others; all are of one kind without the column.
  function picked(part, bulk) {
    const kept = part.start.map((_, k) => k).filter((k) => (part.bulk ? part.bulk[k] : 0) === bulk);
    return Object.fromEntries(Object.entries(part).map(([name, column]) =>
      [name, kept.map((k) => column[k])]));
  }

  function single(method, rows, gap) {
    const { prefill, decode, invalid, paused, stages } = method;
    const texts = (part, phase) => part.request.map((_, k) => requestText(method, part, k, phase));
    const interactive = picked(decode, 0), bulk = picked(decode, 1);
    const shades = (part, pair) => part.shade.map((s) => tone(pair[s]));
    const stageBars = { lane: stages.worker, start: stages.start, end: stages.end };
    const found = [
      bars("decode", rows, interactive, shades(interactive, BLUE), texts(interactive, "decode"), { zorder: 1 }),
      bars("prefill", rows, prefill, tone("#000000"), texts(prefill, "prefill"), { zorder: 3 }),
      stripes(stages, rows, 0, "prefill stages", isDark() ? 0.34 : 0.42),
      { ...bars("stages", { row: stageBars.lane }, stageBars,
        stages.phase.map((phase) => ["#E69F00", tone("#c9d7e2"), tone("#F3CF80")][phase]),
        stages.start.map((_, k) => stageText(stages, k)), { width: 0.9, yaxis: "y2" }), y: stages.worker },
      partings(rows, seconds(method.shown_ns), gap),
    ];
    if (stages.phase.includes(2)) found.push(stripes(stages, rows, 2, "mixed steps", 0.15));
    if (paused.start.length) {
      found.push(bars("paused", rows, paused, tone("#A9A9A9"), texts(paused, "paused"), { zorder: 1 }));
    }
    if (invalid.start.length) {
      const colour = tone("#882255");
      found.push(bars("invalid", rows, invalid, colour, texts(invalid, "invalid"), { zorder: 1,
        marker: { pattern: { shape: "/", bgcolor: colour, fgcolor: colours().paper, size: 7, solidity: 0.2 } } }));
    }
    if (bulk.start.length) {
      found.push(bars("bulk", rows, bulk, shades(bulk, GREEN), texts(bulk, "decode"), { zorder: 1,
        marker: { pattern: { shape: "\\", fgcolor: colours().paper, fillmode: "overlay", size: 9, solidity: 0.2 } } }));
    }
    if (method.restarts.start.length) found.push(restarts(method, rows));
    return found;
  }

  const shares = (text) => [...text].map((code) => CODES.indexOf(code) / 63);

  function heat(name, x, y, z, texts, from, to, more) {
    return {
      type: "heatmap", name, x, y, z, zmin: 0, zmax: 1, showscale: false, hovertext: texts, hoverinfo: "text",
      colorscale: [[0, from], [1, to]], hoverongaps: false, zsmooth: false, ...more,
    };
  }

  // Shares of client-time in use, by some clients and a stretch of time each.
  function dense(method, rows) {
    const { columns, lanes, use, prefill } = method.density;
    const step = seconds(method.makespan) / columns;
    const x = Array.from({ length: columns + 1 }, (_, k) => k * step);
    const when = (k) => `${x[k].toPrecision(5)} s to ${x[k + 1].toPrecision(5)} s`;
    const y = [], z = [], texts = [];
    lanes.forEach(([first, last], g) => {
      const top = rows.row[first] - 0.5;
      if (y.length && y.at(-1) < top) { // clients that never hold a request, unfolded
        z.push(new Array(columns).fill(0));
        texts.push(new Array(columns).fill("never in use"));
      }
      if (!y.length || y.at(-1) < top) y.push(top);
      const who = first === last - 1 ? clientText(first) : `${clientText(first)} to ${clientText(last - 1)}`;
      y.push(rows.row[last - 1] + 0.5);
      z.push(shares(use[g]));
      texts.push(z.at(-1).map((share, k) => `<b>${who}</b><br>${when(k)}: ${(100 * share).toFixed(0)} % in use`));
    });
    const stages = prefill.map(shares);
    const told = stages.map((row, w) => row.map((share, k) =>
      `<b>${several ? plain(data.instance.workers[w]) + ": " : ""}${(100 * share).toFixed(0)} % of the time in steps that prefill</b><br>${when(k)}`));
    const edges = stages.map((_, w) => w - 0.45).concat(stages.length - 0.55);
    return [
      heat("density", x, y, z, texts, colours().idle, tone("#0072B2")),
      heat("stage density", x, edges, stages, told, tone("#c9d7e2"), "#E69F00", { yaxis: "y2" }),
    ];
  }

  return { single, dense };
})();
