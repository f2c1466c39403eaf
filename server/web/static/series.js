/**
 * Samples of one server or of several, as series over time that charts draw.
 */

/** Seconds that the charts show. */
export const SPAN_S = 300;

/**
 * Names and values over time; `values[i]` belongs to `times[i]`, and NaN is no value.
 * @typedef {{name: string, values: number[]}} Series
 */

/**
 * Add up the samples of several servers, second by second. What cannot be added is the greatest of theirs (percentiles) or
 * their mean (batches).
 * @param {any[][]} histories samples of each server
 * @returns {any[]} samples, oldest first
 */
export function sumSamples(histories) {
  if (histories.length === 1) return histories[0];
  const bySecond = histories.map((history) => new Map(history.map((sample) => [Math.round(sample.time), sample])));
  const seconds = [...new Set(bySecond.flatMap((samples) => [...samples.keys()]))].sort((one, other) => one - other);
  return seconds.map((second) => {
    // Servers take their samples at different moments, a little more than a second apart: at times there is none in a second.
    const samples = bySecond.map((known) => known.get(second) ?? known.get(second - 1) ?? known.get(second - 2));
    return sumOf(samples.filter(Boolean), second);
  });
}

function sumOf(samples, time) {
  if (samples.length === 1) return samples[0];
  const total = { time, seconds: Math.max(...samples.map((sample) => sample.seconds)) };
  for (const [name, value] of Object.entries(samples[0])) {
    if (name in total || name === "tick_ms" || name === "mean_batch") continue;
    if (typeof value === "number") total[name] = samples.reduce((sum, sample) => sum + (sample[name] ?? 0), 0);
    else if (value && typeof value === "object") total[name] = sumByName(samples.map((sample) => sample[name] ?? {}));
  }
  const ticks = samples.map((sample) => sample.tick_ms).filter(Boolean);
  const greatest = (name) => Math.max(...ticks.map((tick) => tick[name]));
  total.tick_ms = ticks.length ? { p50: greatest("p50"), p95: greatest("p95"), p99: greatest("p99") } : null;
  const busy = samples.filter((sample) => sample.ticks);
  total.mean_batch = busy.reduce((sum, sample) => sum + sample.mean_batch, 0) / (busy.length || 1);
  return total;
}

function sumByName(objects) {
  const sum = {};
  for (const object of objects) for (const [name, value] of Object.entries(object)) sum[name] = (sum[name] ?? 0) + value;
  return sum;
}

/** Return all names that occur in a field of the samples, in the order in which they come. */
export function namesIn(samples, field) {
  return [...new Set(samples.flatMap((sample) => Object.keys(sample[field] ?? {})))];
}

/** Return the rate of something a second, from its count in each sample. */
export const rates = (samples, count) => samples.map((sample) => count(sample) / (sample.seconds || 1));
