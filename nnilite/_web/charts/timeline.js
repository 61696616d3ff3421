// Which host ran what, when: a bar for each attempt, hosts below each other.

import { useAttempts } from "../lib/attempts.js";
import { clipped, clock, duration, plural } from "../lib/format.js";
import { now, trialById, version } from "../lib/live_data.js";
import { STATE_WORDS } from "../lib/trials.js";
import { html, useMemo } from "../lib/ui.js";
import { axis, base, colours, plotArea, STATE_COLOURS, tip } from "../parts/chart.js";
import { ChartCard } from "../parts/chart_card.js";
import { Empty } from "../parts/layout.js";
import { placedAxis } from "../parts/log_scale.js";

/** @import { Trial } from "../lib/trials.js" */
/** @import { AttemptRow, JobState, TrialState } from "../lib/wire.d.ts" */
/** @import { Option, Series } from "../vendor/echarts.js" */

const LANE = 16; // pixels

/** @typedef {AttemptRow & { started: number }} Started */

/**
 * @param {AttemptRow} one
 * @returns {one is Started}
 */
const hasStarted = (one) => one.started !== null;

/** @type {Set<TrialState>} the reasons for which an attempt is canceled */
const CANCELED_FOR = new Set(["EARLY_STOPPED", "USER_CANCELED", "SYS_CANCELED"]);

/**
 * The state that a bar shows. The trial of a canceled attempt tells why: an assessor, a person or the system.
 * @param {AttemptRow} one
 * @param {Trial} [trial]
 * @returns {TrialState | JobState}
 */
export function shownState(one, trial = trialById(one.trial)) {
  const state = one.state === "CANCELED" && trial?.state;
  return state && CANCELED_FOR.has(state) ? state : one.state;
}

/** @param {{ rows: Trial[] }} props */
export default function Timeline({ rows }) {
  const { attempts, problem } = useAttempts();
  const shown = useMemo(() => {
    const wanted = new Set(rows.map(({ id }) => id));
    return arrange((attempts ?? []).filter(hasStarted).filter((one) => wanted.has(one.trial)));
  }, [attempts, rows, version.value]);
  if (problem && !attempts) return html`<p class="note bad">${problem}</p>`;
  if (!attempts) return html`<${Empty} title="Loading …" />`;
  if (!shown.bars.length)
    return html`<div class="card"><${Empty} title="Nothing has run yet">Each attempt of a trial becomes a bar here, on the host that ran it.</${Empty}></div>`;
  return html`<${ChartCard} title="Timeline of hosts" name="timeline" deps=${[shown]} height=${Math.min(1200, Math.max(220, 110 + shown.lanes * (LANE + 8) + shown.rows * 8))}
    draw=${() => option(shown)}
    note=${`${plural(shown.bars.length, "attempt")} on ${plural(shown.hosts, "host")}. Drag or scroll to zoom; a click opens the trial.`}
    data=${() => ({
      header: ["trial", "attempt", "service", "host", "state", "started", "ended", "exit code", "cost"],
      rows: shown.bars.map(({ one }) => [
        one.trial,
        one.number,
        one.service,
        one.host,
        one.state,
        one.started,
        one.ended,
        one.exitCode,
        one.cost,
      ]),
    })} />`;
}

/**
 * Attempts to lanes: within a host, one that starts when another has ended takes its lane.
 * @param {Started[]} attempts
 */
function arrange(attempts) {
  /** @type {Map<string, number[]>} until when each lane is taken */
  const hosts = new Map();
  const several = new Set(attempts.map((one) => one.service)).size > 1;
  const bars = [];
  for (const one of [...attempts].sort((a, b) => a.started - b.started)) {
    const name = [several ? one.service : "", one.host].filter(Boolean).join(": ") || one.service || "unknown";
    const lanes = hosts.get(name) ?? [];
    hosts.set(name, lanes);
    const end = one.ended ?? now.peek();
    let lane = lanes.findIndex((until) => until <= one.started);
    if (lane < 0) lane = lanes.push(0) - 1;
    lanes[lane] = Math.max(end, one.started);
    bars.push({ one, name, lane, end });
  }
  const names = [...hosts.keys()].sort();
  /** @type {Map<string, number>} */
  const first = new Map();
  let lanes = 0;
  for (const name of names) {
    first.set(name, lanes);
    lanes += hosts.get(name)?.length ?? 0;
  }
  return {
    bars: bars.map((bar) => ({ ...bar, row: (first.get(bar.name) ?? 0) + bar.lane })),
    hosts: new Set(attempts.map((one) => one.host || one.service)).size,
    rows: names.length,
    lanes,
    first,
  };
}

/**
 * @param {ReturnType<typeof arrange>} shown
 * @returns {Option}
 */
function option({ bars, lanes, first }) {
  const c = colours();
  const states = new Set(bars.map(({ one }) => shownState(one)));
  const names = new Map([...first].map(([name, row]) => [row, clipped(name)]));
  const between = [...names.keys()].filter((row) => row > 0).map((row) => row - 0.5);
  return {
    ...base(),
    grid: plotArea({ top: 34, bottom: 30 }),
    legend: { top: 0, type: "scroll", textStyle: { color: c.soft } },
    dataZoom: [
      { type: "inside", filterMode: "weakFilter" },
      {
        type: "slider",
        height: 16,
        bottom: 4,
        borderColor: c.line,
        filterMode: "weakFilter",
        showDetail: false,
        brushSelect: false,
      },
    ],
    xAxis: axis({ type: "time", axisLine: { onZero: false, lineStyle: { color: c.line } } }),
    yAxis: placedAxis(names, {
      type: "value",
      inverse: true,
      min: -0.5,
      max: lanes - 0.5,
      axisTick: { show: false, customValues: between }, // also those of the lines between hosts
    }),
    series: [...states].map((state) =>
      barsOf(
        state,
        bars.filter(({ one }) => shownState(one) === state),
      ),
    ),
  };
}

/**
 * The bars of one state.
 * @param {ReturnType<typeof shownState>} state
 * @param {ReturnType<typeof arrange>["bars"]} bars
 * @returns {Series}
 */
function barsOf(state, bars) {
  const word = STATE_WORDS[state];
  const fill = colours()[STATE_COLOURS[state]];
  return {
    type: "custom",
    name: word,
    itemStyle: { color: fill }, // of the legend
    encode: { x: [1, 2], y: 0 },
    clip: true,
    renderItem: (_, api) => {
      const [left, right] = [api.coord([api.value(1), api.value(0)]), api.coord([api.value(2), api.value(0)])];
      const high = Math.min(api.size([0, 1])[1] * 0.72, 22);
      return {
        type: "rect",
        shape: {
          x: left[0],
          y: left[1] - high / 2,
          width: Math.max(right[0] - left[0] - 0.5, 1.5),
          height: high,
          r: 3,
        },
        style: { fill, opacity: 0.85 },
      };
    },
    data: bars.map(({ one, row, end }) => ({ value: [row, one.started * 1000, end * 1000], id: one.trial })),
    tooltip: {
      formatter: ({ dataIndex }) => {
        const { one, end, name } = bars[dataIndex];
        return tip(`Trial ${one.trial}${one.number ? `, attempt ${one.number + 1}` : ""}`, [
          ["host", name],
          ["service", one.service],
          ["state", word.toLowerCase()],
          ["from", clock(one.started)],
          ["took", duration(end - one.started)],
          ["number", trialById(one.trial)?.sequence ?? one.sequence],
        ]);
      },
    },
  };
}
