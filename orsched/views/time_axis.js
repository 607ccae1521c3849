"use strict";
// One axis of time for all charts of the page: zooming one zooms all, and tabs keep the range.
window.orsched.time = (() => {
  const { data, seconds } = window.orsched;
  const ends = data.methods.flatMap((m) => [m.makespan, m.bound ?? 0]);
  const end = seconds(Math.max(...ends)) || 1;
  const WHOLE = [0, 1.01 * end], LEAST = WHOLE[1] * 1e-7;
  const PAUSE_MS = 300; // wheel events further apart than this are two turns of the wheel
  const REST_MS = 120;
  const charts = new Map();
  let range = WHOLE, waiting = false, resting = 0, turn = { at: -Infinity, over: null, x: -1, y: -1 };

  const isWhole = () => range[0] <= WHOLE[0] && range[1] >= WHOLE[1];
  const isShown = (chart) => chart.offsetParent !== null;

  function limited([from, to]) {
    const width = Math.min(Math.max(to - from, LEAST), WHOLE[1] - WHOLE[0]);
    const left = Math.min(Math.max((from + to - width) / 2, WHOLE[0]), WHOLE[1] - width);
    return [left, left + width];
  }

  function set(wanted) {
    range = limited(wanted ?? WHOLE);
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => { waiting = false; apply(false); });
  }

  // Give every chart that is shown the range; those in other tabs get it when they are chosen.
  // Charts of many bars are stretched at first, and drawn when the wheel rests.
  function apply(atOnce = true) {
    clearTimeout(resting);
    for (const [chart, { adapt }] of charts) {
      if (!isShown(chart) || !chart._fullLayout?.xaxis) continue;
      if (adapt && !atOnce) stretch(chart, range);
      else draw(chart, adapt ? adapt(range) : {});
    }
    tell();
    if (!atOnce) resting = setTimeout(apply, REST_MS);
  }

  function draw(chart, restyle) {
    const [from, to] = chart._fullLayout.xaxis.range;
    const changes = from !== range[0] || to !== range[1] ? { "xaxis.range": [...range] } : {};
    stretch(chart, null);
    if (Object.keys(restyle).length) Plotly.update(chart, restyle, changes);
    else if (Object.keys(changes).length) Plotly.relayout(chart, changes);
  }

  // What is drawn, moved and stretched to a range as Plotly does while one drags; null: as it was.
  function stretch(chart, wanted) {
    for (const { plot, clipRect, xaxis, yaxis } of Object.values(chart._fullLayout._plots ?? {})) {
      const [drawing, clip] = [plot?.node?.(), clipRect?.node?.()];
      if (!drawing || !clip) continue;
      const [a, b] = xaxis.range, [from, to] = wanted ?? xaxis.range;
      const scale = (b - a) / (to - from), shift = ((a - from) / (to - from)) * xaxis._length;
      drawing.setAttribute("transform", `translate(${xaxis._offset + shift},${yaxis._offset}) scale(${scale},1)`);
      clip.setAttribute("transform", `translate(${-shift / scale},0) scale(${1 / scale},1)`);
    }
  }

  function tell() {
    const digits = Math.max(0, Math.min(9, 2 - Math.floor(Math.log10(range[1] - range[0]))));
    const words = isWhole() ? "whole time" : `${range[0].toFixed(digits)} s to ${range[1].toFixed(digits)} s`;
    document.querySelectorAll(".range output").forEach((place) => { place.textContent = words; });
    document.querySelectorAll(".range .all").forEach((button) => { button.disabled = isWhole(); });
  }

  function zoom(factor, at = (range[0] + range[1]) / 2) {
    set([at - (at - range[0]) * factor, at + (range[1] - at) * factor]);
  }

  function move(share) {
    const step = share * (range[1] - range[0]);
    set([range[0] + step, range[1] + step]);
  }

  // A turn of the wheel belongs to what it began over: the page does not stop when a chart comes
  // under a pointer that rests.
  function begin(event) {
    const rests = Math.hypot(event.clientX - turn.x, event.clientY - turn.y) < 4;
    const goesOn = event.timeStamp - turn.at < PAUSE_MS && rests;
    turn = {
      at: event.timeStamp, x: event.clientX, y: event.clientY,
      over: goesOn ? turn.over : event.target.closest?.(".time") ?? null,
    };
  }

  function wheel(chart, event) {
    if (turn.over !== chart || event.ctrlKey || event.metaKey) return;
    const lines = event.deltaMode === 1 ? 24 : event.deltaMode === 2 ? 400 : 1;
    const [across, down] = [event.deltaX * lines, event.deltaY * lines];
    if (event.shiftKey) {
      event.preventDefault();
      window.scrollBy({ top: down || across, behavior: "instant" });
    } else if (Math.abs(across) > Math.abs(down)) {
      if (isWhole()) return;
      event.preventDefault();
      move(across / chart.clientWidth);
    } else if (down < 0 || !isWhole()) { // nothing to zoom out of: the page scrolls
      event.preventDefault();
      const { _offset: left, _length: length } = chart._fullLayout.xaxis;
      const share = (event.clientX - chart.getBoundingClientRect().x - left) / length;
      const at = range[0] + Math.max(0, Math.min(1, share)) * (range[1] - range[0]);
      zoom(Math.exp(Math.max(-0.5, Math.min(0.5, down * 0.002))), at);
    }
  }

  function key(event) {
    const act = {
      "+": () => zoom(0.7), "=": () => zoom(0.7), "-": () => zoom(1 / 0.7), "0": () => set(null),
      ArrowLeft: () => move(-0.2), ArrowRight: () => move(0.2),
    }[event.key];
    if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    act();
  }

  // A chart with the axis of time as its x axis, drawn by Plotly; ``adapt`` returns what else a range
  // changes in it, and says that it has many bars; ``whole`` undoes what else was zoomed.
  function link(chart, adapt = null, whole = null) {
    if (!charts.has(chart)) {
      chart.classList.add("time");
      chart.tabIndex = 0;
      chart.addEventListener("wheel", (event) => wheel(chart, event), { passive: false });
      chart.addEventListener("keydown", key);
    }
    charts.set(chart, { adapt });
    chart.removeAllListeners?.("plotly_relayout");
    chart.on("plotly_relayout", (change) => {
      const given = change["xaxis.range"] ?? [change["xaxis.range[0]"], change["xaxis.range[1]"]];
      const [from, to] = given.map(Number);
      if (Number.isFinite(from) && Number.isFinite(to) && (from !== range[0] || to !== range[1])) set([from, to]);
    });
    chart.removeAllListeners?.("plotly_doubleclick");
    chart.on("plotly_doubleclick", () => { set(null); whole?.(); });
  }

  function buttons() {
    const acts = { in: () => zoom(0.5), out: () => zoom(2), all: () => set(null) };
    for (const [name, act] of Object.entries(acts)) {
      document.querySelectorAll(`.range .${name}`).forEach((button) => button.addEventListener("click", act));
    }
  }

  document.addEventListener("wheel", begin, { capture: true, passive: true });
  buttons();
  tell();
  return { WHOLE, link, apply, set, current: () => [...range] };
})();
