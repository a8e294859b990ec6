// Axes of charts. Pure: numbers in, round numbers out.

/** Round marks from 0 to at least `most` (to 1 when that is 0), about `wanted` of them. */
export function marks(greatest, wanted = 4) {
  const most = greatest > 0 ? greatest : 1;
  const rough = most / wanted;
  const size = 10 ** Math.floor(Math.log10(rough));
  const step = size * ([1, 2, 2.5, 5, 10].find((each) => each * size >= rough * 0.999) ?? 10);
  return Array.from({ length: Math.ceil((most / step) * 0.999) + 1 }, (_, index) => Number((index * step).toPrecision(9)));
}

const STEPS_S = [1, 5, 15, 30, 60, 300, 900, 1800, 3600, 10800, 21600, 43200, 86400, 172800, 604800, 1209600, 2592000];

/** Round local times between two, at most `wanted`, each with its text: `[seconds, text]`. */
export function timeMarks(from, to, wanted = 6) {
  const step = STEPS_S.find((each) => (to - from) / each <= wanted) ?? 86400 * 365;
  const shift = new Date(from * 1000).getTimezoneOffset() * 60;
  const first = Math.ceil((from - shift) / step) * step + shift;
  const found = [];
  for (let at = first; at <= to; at += step) found.push([at, timeText(at, step)]);
  return found;
}

export function timeText(at, step) {
  const date = new Date(at * 1000);
  if (step >= 86400 || (step >= 3600 && !date.getHours())) return date.toLocaleDateString("en", { month: "short", day: "numeric" });
  return date.toLocaleTimeString("en", { hour: "2-digit", minute: "2-digit", hourCycle: "h23", ...(step < 60 ? { second: "2-digit" } : {}) });
}

/** Which of ascending numbers is next to this one. */
export function nearest(numbers, wanted) {
  let best = 0;
  for (let index = 1; index < numbers.length; index += 1) if (Math.abs(numbers[index] - wanted) < Math.abs(numbers[best] - wanted)) best = index;
  return best;
}
