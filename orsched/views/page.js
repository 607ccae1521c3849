"use strict";
// Tabs, the bars of client-time, and the start of the page.
(() => {
  const { data, read, plain, exact, shortTime, tone, onTop, colours, layout, drawn, QUIET, time, ganttPanel, overTime } = window.orsched;
  let chosen = 0;

  function draw(index, again = false) {
    const panel = document.getElementById(`panel-${index}`);
    if (panel.dataset.drawn && !again) return Promise.resolve();
    panel.dataset.drawn = "started";
    return ganttPanel.draw(index)
      .then(() => Promise.all([overTime.usage(index), overTime.classes(index)]))
      .then(() => { panel.dataset.drawn = "done"; });
  }

  function choose(index) {
    chosen = index;
    document.querySelectorAll("[role=tab]").forEach((tab, k) => {
      tab.setAttribute("aria-selected", String(k === index));
      tab.tabIndex = k === index ? 0 : -1;
      document.getElementById(`panel-${k}`).hidden = k !== index;
    });
    for (const name of [`gantt-${index}`, `usage-${index}`, `classes-${index}`]) {
      if (document.getElementById(name)?.data) Plotly.Plots.resize(name);
    }
    time.apply();
    return draw(index);
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
    const series = data.uses.map(([word, given], u) => {
      const colour = tone(given);
      const shares = data.methods.map((m, k) => (100 * m.use[u]) / totals[k]);
      return {
        type: "bar", orientation: "h", name: word, y: labels, x: shares,
        text: shares.map((s) => (s >= 4 ? `${s.toFixed(1)} %` : "")), textposition: "inside",
        insidetextanchor: "middle", textangle: 0, textfont: { color: onTop(colour) },
        hovertext: data.methods.map((m, k) =>
          `<b>${labels[k]}</b>: ${word}<br>${shares[k].toFixed(3)} % of client-time<br>${exact(m.use[u])} client-seconds`
            .replace(" s client", " client")),
        hoverinfo: "text",
        marker: { color: colour, line: { color: colours().paper, width: 1 },
          pattern: { shape: pattern[u], bgcolor: colour, fgcolor: "rgba(0,0,0,0.22)", size: 7, solidity: 0.18 } },
      };
    });
    return Plotly.newPlot("bubbles", series, layout({
      barmode: "stack", height: 96 + 40 * labels.length, bargap: 0.3, margin: { l: 10, r: 16, t: 34, b: 44 },
      xaxis: { range: [0, 100], ticksuffix: " %", title: { text: "share of clients × makespan" }, zeroline: false, fixedrange: true, showgrid: false },
      yaxis: { autorange: "reversed", automargin: true, fixedrange: true, type: "category", ticksuffix: "  " },
    }), QUIET);
  }

  function decisions() {
    read("orsched-run").forEach((block, k) => {
      const p99 = block.decision_ns?.p99;
      if (p99 === undefined || p99 === null) return;
      const cell = document.querySelector(`#comparison tr[data-index="${k}"] [data-field=decision]`);
      cell.dataset.ns = p99;
      cell.textContent = shortTime(p99);
    });
  }

  // Other colours: the chart that is shown at once, the others when they are chosen.
  let first = true;
  function panels() {
    document.querySelectorAll("[role=tabpanel]").forEach((panel, k) => { if (k !== chosen) delete panel.dataset.drawn; });
    if (!first) return draw(chosen, true);
    first = false;
    return choose(chosen);
  }

  decisions();
  tabs();
  // The chart of the first schedule first: it is what takes longest, and the page answers meanwhile.
  drawn(panels).then(() => {
    drawn(bubbles);
    window.orsched.latencies?.();
  });
})();
