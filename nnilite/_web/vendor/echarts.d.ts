// What the page uses of ECharts. Its own types take 57 MB to install, and check too little of options to be worth that.

/** What to draw: axes, series and so on, as ECharts' documentation describes them. Only functions in it are checked. */
export interface Option {
  series?: Series[];
  [part: string]: unknown;
}

export interface Series {
  type: string;
  tooltip?: { formatter(item: Item): HTMLElement | string };
  renderItem?(params: { dataIndex: number }, api: RenderApi): unknown;
  [part: string]: unknown;
}

/** What a handler of an event or the formatter of a tooltip gets. Of the data, points of trials have the trial's id. */
// biome-ignore lint/suspicious/noExplicitAny: it depends on the kind of series, which the option tells.
export interface Item<Value = any> {
  name: string;
  seriesId: string;
  seriesName: string;
  dataIndex: number;
  data: { id?: string; value: Value };
  value: Value;
}

/** What draws a custom series in the coordinates of the chart. */
export interface RenderApi {
  value(dimension: number): number;
  coord(values: [number, number]): [number, number];
  size(values: [number, number]): [number, number];
  visual(name: "color"): string;
}

export interface Chart {
  setOption(option: Option, how?: boolean | { notMerge?: boolean; lazyUpdate?: boolean }): void;
  on(event: string, handler: (item: Item) => void): void;
  resize(options?: { animation?: { duration: number } }): void;
  renderToCanvas(options: { pixelRatio: number; backgroundColor: string }): HTMLCanvasElement;
  getModel(): { getSeries(): { getRawIndicesByActiveState(state: string): number[] }[] };
  clear(): void;
  getZr(): { flush(): void };
  dispose(): void;
}

export function init(box: HTMLElement, theme: null, options: { renderer: "canvas" }): Chart;
